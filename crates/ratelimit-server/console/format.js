// Numbers and durations for people.

export const int = (n) => n === null || n === undefined ? '–' : Math.round(n).toLocaleString('en');

/** A rate: whole from 10 on, with one decimal below. */
export function rate(n) {
  if (n === null || n === undefined) return '–';
  if (n >= 9.95) return int(n);
  return n > 0 ? n.toFixed(n < 0.095 ? 2 : 1) : '0';
}

export function percent(part, whole) {
  if (!whole || part === null || part === undefined) return '–';
  const share = 100 * part / whole;
  return `${share.toFixed(share > 0 && share < 9.95 ? 1 : 0)} %`;
}

/** A duration of whole microseconds; null is never. */
export function span(micros) {
  if (micros === null || micros === undefined) return 'never';
  const s = micros / 1e6;
  if (s < 1e-3) return `${Math.round(micros)} us`;
  if (s < 0.9995) return `${+(s * 1e3).toPrecision(3)} ms`;
  if (s < 99.95) return `${s.toFixed(s < 9.995 ? 2 : 1)} s`;
  const whole = Math.round(s);
  const two = (big, small, of, per) => `${Math.floor(of / per)} ${big} ${of % per} ${small}`;
  if (whole < 7200) return two('min', 's', whole, 60);
  if (whole < 172800) return two('h', 'min', Math.round(s / 60), 60);
  return two('d', 'h', Math.round(s / 3600), 24);
}

/** Who decides, in words: `Redis 92 %, prefetched units 8 %`. */
export function deciders(decided, store) {
  const { store: stored = 0, fallback = 0, prefetched = 0 } = decided ?? {};
  const all = stored + fallback + prefetched;
  if (!all) return '–';
  const parts = [[store, stored], ['local fallback', fallback], ['prefetched units', prefetched]];
  const present = parts.filter(([, n]) => n > 0);
  return present.map(([name, n]) => present.length > 1 ? `${name} ${percent(n, all)}` : name).join(', ');
}
