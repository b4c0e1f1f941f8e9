// Numbers and durations for people.

const isNone = n => n === null || n === undefined;

export const int = n => (isNone(n) ? '–' : Math.round(n).toLocaleString('en'));

/** A rate: whole from 10 on. */
export function rate(n) {
  if (isNone(n) || n >= 9.95) return int(n);
  return n > 0 ? n.toFixed(n < 0.095 ? 2 : 1) : '0';
}

export function percent(part, whole) {
  const share = (100 * part) / whole;
  return whole ? `${share.toFixed(share > 0 && share < 9.95 ? 1 : 0)} %` : '–';
}

/** A duration of whole microseconds; null is never. */
export function span(micros) {
  if (isNone(micros)) return 'never';
  const s = micros / 1e6;
  if (s < 1e-3) return `${Math.round(micros)} us`;
  if (s < 0.9995) return `${+(s * 1e3).toPrecision(3)} ms`;
  if (s < 99.95) return `${s.toFixed(s < 9.995 ? 2 : 1)} s`;
  const two = (of, per, big, small) => `${Math.floor(of / per)} ${big} ${of % per} ${small}`;
  if (s < 7199.5) return two(Math.round(s), 60, 'min', 's');
  return s < 172770 ? two(Math.round(s / 60), 60, 'h', 'min') : two(Math.round(s / 3600), 24, 'd', 'h');
}
