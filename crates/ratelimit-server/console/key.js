// Key: the state of each limit for one key, and when more permits pass. Peeking spends nothing.

import * as api from './api.js';
import { address, ask, badge, card, column, copyable, empty, field, form, h, head, input, loading, moment, problem, put,
  table, toast } from './dom.js';
import { forecastChart } from './chart.js';
import { int, span } from './format.js';
import { changeButton } from './session.js';

/** Algorithms that refill evenly; the others do so at once, at the end of their window. */
const IS_EVEN = /TOKEN|LEAKY|GCRA|COUNTER/;

/** The gauge of one limit, which refills while one looks. */
function gauge({ text, by }) {
  const [level, state, refill, remaining] = [h('i'), h('small'), h('small'), h('strong')];
  const el = h('div.gauge', h('code.wrap', by ? `${text} by ${by}` : text), remaining, h('div.bar', level), state, refill);
  let seen;
  return {
    el,
    show(limit, permits) {
      seen = limit;
      el.className = `gauge ${limit.allowed ? 'c-allow' : 'c-deny'}`;
      remaining.textContent = `${int(limit.remaining)} of ${int(limit.limit)} remaining`;
      state.textContent = limit.allowed ? 'allows'
        : limit.passesAfterMicros === null ? `never holds ${int(permits)}` : `denies for ${span(limit.passesAfterMicros)}`;
    },
    paint(left) {
      const { limit, resetAfterMicros: whole } = seen;
      const rest = left(whole);
      const share = IS_EVEN.test(seen.algorithm) ? whole && rest / whole : rest > 0 ? 1 : 0;
      const spent = whole ? (limit - seen.remaining) * share : limit - seen.remaining;
      level.style.width = `${limit ? 100 * (limit - spent) / limit : 0}%`;
      if (rest > 0) put(refill, `fully refilled in ${span(rest)}, at `, moment((Date.now() + rest / 1e3) / 1e3));
      else refill.textContent = 'full';
    },
  };
}

/** The answers about a key: made once, then shown again and again. */
function answers(reset) {
  const verdict = h('span');
  const [wait, reason, notes, gauges] = [h('b.num'), h('p.soft'), h('div.stack'), h('div')];
  const chart = forecastChart('Permits that pass from now on');
  const exact = h('small');
  const values = h('tbody');
  const el = h('div.grid g11',
    card('Verdict', changeButton('reset', 'danger', 'Reset', reset), h('div.verdict', verdict, wait, reason), notes, gauges),
    card('Permits that pass from now on', h('small', 'if no other check comes first'), chart.el, exact,
      h('details', h('summary', 'Values'), table('Permits that pass', [column('permits', ''), column('pass in')], values))));
  let limits = [];
  let seen;
  let at = 0;
  const left = (micros) => Math.max(0, micros - (performance.now() - at) * 1e3);
  const paint = () => {
    const rest = seen.passesAfterMicros === null ? null : left(seen.passesAfterMicros);
    wait.textContent = rest === null ? 'Never passes' : rest > 0 ? `Passes in ${span(rest)}` : 'Passes now';
    for (const one of limits) one.paint(left);
    return seen.passesAfterMicros > 0 && rest === 0;
  };
  return {
    el,
    paint,
    show(explanation, curve) {
      at = performance.now();
      const isNew = seen?.limits.map(({ text }) => text).join() !== explanation.limits.map(({ text }) => text).join();
      seen = explanation;
      if (isNew) {
        limits = seen.limits.map(gauge);
        put(gauges, limits.map((one) => one.el));
      }
      limits.forEach((one, i) => one.show(seen.limits[i], seen.permits));
      const [css, word] = seen.shadow ? ['c-shadow', 'shadow: would deny'] : seen.allowed ? ['c-allow', 'allowed'] : ['c-deny', 'denied'];
      put(verdict, badge(css, word));
      reason.textContent = seen.reason;
      const isConcurrent = seen.limits.some(({ algorithm }) => algorithm === 'CONCURRENCY');
      put(notes,
        seen.store === 'local' && note('Redis did not answer: these are the local budgets of this server.'),
        seen.store === 'none' && note('Redis did not answer, and the failure mode decides without budgets.'),
        seen.prefetch && h('small', `${int(seen.prefetch.onHand)} prefetched units on hand in this server`));
      chart.show(curve);
      const isWhole = curve.points.every(([permits], i) => permits === i + 1);
      exact.textContent = isConcurrent ? 'The latest times: callers may release slots of a concurrency limit earlier.'
        : isWhole ? '' : 'Exact at the dots, and at least as many between them.';
      put(values, curve.points.map(([permits, after]) => h('tr', h('td', int(permits)), h('td.r', { title: after === null ? '' : `${after} us` },
        after === 0 ? 'now' : span(after)))));
      paint();
    },
  };
}

const note = (text) => h('div.banner warn', h('span.dot warn'), h('div', text));

export function key({ main, params, signal }) {
  const names = [...params.keys()].filter((name) => name.startsWith('keys.'));
  const options = h('datalist', { id: 'policy-names' });
  const policy = input('policy', params.get('policy') ?? '', { required: true, list: 'policy-names', oninput: suggest, onchange: listKeys });
  const name = input('key', params.get('key') ?? '', { required: !names.length });
  const permits = input('permits', params.get('permits') ?? 1, { type: 'number', min: 1 });
  const others = h('div.row wide');
  const out = h('div');
  const peek = form('row', submit, field('Policy', policy), field('Key', name), field('Permits', permits), h('button.main', 'Peek'), others, options);
  put(main, head('Key', 'The state of each limit for one key. Peeking spends nothing.'), peek, out);

  const showKeys = (list) => put(others, list.map((one) =>
    field(`Key for limits by ${one.slice(5)}`, input(one, params.get(one) ?? '', { required: !name.value }))));
  showKeys(names);
  /** @returns {Record<string, string>} */
  const keysOf = (data) => Object.fromEntries([...data].filter(([field, value]) => field !== 'permits' && value !== ''));
  // The key that was asked for; the fields may be about to change.
  const chosen = keysOf(params);

  async function suggest() {
    const page = await api.policies({ q: policy.value, sort: 'name', limit: 20 }, signal).catch(() => null);
    if (page) put(options, page.policies.map((one) => h('option', { value: one.name })));
  }
  /** Asks for the keys that limits `by NAME` count by. */
  async function listKeys() {
    const found = await api.policy(policy.value, signal).catch(() => null);
    const by = new Set(found?.limits.map((limit) => limit.by).filter((one) => one && one !== 'global'));
    if (!signal.aborted && found) showKeys([...by].map((one) => `keys.${one}`));
  }
  function submit() {
    const to = address('key', { ...keysOf(new FormData(peek)), permits: permits.value });
    if (location.hash === to) load();
    else location.hash = to;
  }
  async function reset() {
    const shown = Object.entries(chosen).filter(([field]) => field !== 'policy').map(([, value]) => value).join(', ');
    const yes = await ask('Reset this key?', 'Reset', 'danger', h('p', 'Restores the full budget of ', h('code.wrap', shown),
      ' under ', h('code.wrap', chosen.policy), ', on every server that shares the store.'));
    if (!yes || signal.aborted) return;
    await api.reset(chosen).then(() => toast('Reset.'), (error) => toast(error.message));
    if (!signal.aborted) load();
  }

  let view = null;
  let newest = 0;
  async function load() {
    const mine = ++newest;
    if (!chosen.policy || Object.keys(chosen).length < 2) return put(out, empty('Name a policy and a key.'));
    try {
      const found = await Promise.all([api.explain(chosen, params.get('permits') || 1, signal), api.forecast(chosen, signal)]);
      if (mine !== newest || signal.aborted) return;
      if (!view) {
        view = answers(reset);
        put(out, h('p.soft what', 'Key ', copyable(found[0].key || Object.values(chosen).at(-1))), view.el);
      }
      view.show(...found);
    } catch (error) {
      if (mine !== newest || signal.aborted) return;
      view = null;
      put(out, problem(error.message));
      if (/counts by/.test(error.message)) listKeys();
    }
  }
  if (params.get('policy')) {
    put(out, loading());
    if (!names.length) listKeys();
  }
  load();
  let isDue = false;
  return {
    slow: load,
    fast() {
      // The countdown has ended: peek again at once, and once only.
      const wasDue = isDue;
      isDue = Boolean(view?.paint());
      if (isDue && !wasDue) load();
    },
  };
}
