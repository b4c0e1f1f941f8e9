// Overview: how much is checked and denied, how fast, and who decides.

import * as api from './api.js';
import { badge, card, column, copyable, empty, facts, h, link, loading, meter, moment, put, table, update } from './dom.js';
import { deciders, int, percent, rate, span } from './format.js';
import { areaChart, latencyChart, spark } from './chart.js';
import { live } from './live.js';

// The first three are all checks. The others are parts of them, and are not stacked.
const SERIES = [
  { name: 'allowed', key: 'allowed', css: 'c-allow' },
  { name: 'over', key: 'over', css: 'c-over' },
  { name: 'denied', key: 'denied', css: 'c-deny' },
  { name: 'unchecked', key: 'unchecked', css: 'c-fall', isPart: true },
  { name: 'would deny', key: 'wouldDeny', css: 'c-shadow', isPart: true },
];
const ABOUT = {
  checks: 'All checks: allowed, over and denied',
  allowed: 'Allowed within the limits',
  over: 'Allowed beyond a soft limit',
  denied: 'Denied by a limit',
  unchecked: 'Part of the checks: the store did not decide',
  wouldDeny: 'Part of the checks: denied if the policy were enforced',
};
const OFFENDERS = 8;

export const storeName = () => live.last?.store.kind === 'memory' ? 'memory' : 'Redis';

/** The share of each decider as a bar, with words. */
export function decidersCell(decided) {
  const { store = 0, fallback = 0, prefetched = 0 } = decided ?? {};
  const all = store + fallback + prefetched;
  const share = (n) => all ? 100 * n / all : 0;
  const bar = meter(['c-accent', share(store)], ['c-fall', share(fallback)], ['c-over', share(prefetched)]);
  return h('td.by hide', h('small', deciders(decided, storeName())), all ? bar : '');
}

/** The name and the limits of a policy, and on phones who decides. */
export const policyCell = (name, limits, decided) => h('td.cut', link('policies', { name }, name),
  h('small.mono', { title: limits }, limits), h('small.phone', deciders(decided, storeName())));

export const shareCell = (part, whole, css) =>
  h(`td.r ${part ? css : 'soft'}`, percent(part, whole), meter(['', whole ? 100 * part / whole : 0]));

/** The sum of a series: a sample counts for one second. */
const total = (key) => live.history[key]?.reduce((sum, n) => sum + (n ?? 0), 0) ?? 0;

function tile({ key, name, css }) {
  const now = h('b');
  const about = h('small');
  const line = spark(css, () => live.history[key] ?? []);
  return {
    el: h('section.card tile', { title: ABOUT[key] }, h('h2', h(`span.key ${css}`), name), now, about, line.el),
    redraw(tick) {
      put(now, rate(tick[key]), h('small', key === 'checks' ? ' a second' : ` ${percent(tick[key], tick.checks)}`));
      const seconds = live.history.t.length;
      about.textContent = `${int(total(key))} in ${seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`}`;
      line.redraw();
    },
  };
}

function storeFacts({ store, roundTripMicros, denyCached, reload }) {
  const isDown = store.kind === 'redis' && !store.up;
  const red = isDown ? 'c-deny' : '';
  const redis = () => [
    ['Redis', `${store.server} · ${store.version ?? 'version unknown'}`],
    ['connection', isDown ? 'down' : `up · round trip ${roundTripMicros === null ? '–' : span(roundTripMicros)}`, red],
    ['decides now', isDown ? 'local fallback' : 'Redis', red],
    ['reconnects', int(store.reconnects)],
    ['outcome unknown', int(store.ambiguous)],
    ['evicted by Redis', int(store.evicted), store.evicted ? 'c-deny' : ''],
    ['deny cache', `${rate(denyCached)}/s`],
  ];
  return facts([
    ...store.kind === 'memory' ? [['kind', 'memory of this process'], ['decides now', 'this process']] : redis(),
    ['policy file', reload ? [`${reload.result}, `, moment(reload.at)] : 'as at the start'],
    live.info.startedAt && ['started', moment(live.info.startedAt)],
  ]);
}

function outage({ store }) {
  if (store.kind !== 'redis' || store.up) return '';
  return h('div.banner', { role: 'alert' }, h('span.dot bad'),
    h('div', h('b', `Redis has not answered for ${span(store.downMicros)}.`),
      'The failure mode of each policy decides: local budgets with the same limits, or 503 where it is closed.'));
}

function shadowPolicy({ policy, enforced, checks, wouldDeny }) {
  return h('div.c-shadow', h('div.row', link('policies', { name: policy }, policy),
    badge('', enforced ? `enforced ${enforced} %` : 'shadow'), h('span.grow'), h('b.num', percent(wouldDeny, checks))),
    meter(['', checks ? 100 * wouldDeny / checks : 0]),
    h('small', `${rate(wouldDeny)} of ${rate(checks)} a second`));
}

/** The most denied keys of all policies. Those of shadow policies were not denied, and say so. */
export function rank(answer) {
  const list = (policies, isShadow) => Object.entries(policies ?? {})
    .flatMap(([policy, keys]) => keys.map((key) => ({ ...key, policy, isShadow })));
  return [...list(answer.policies, false), ...list(answer.shadow, true)].sort((a, b) => b.denied - a.denied);
}

function offender({ key, by, policy, denied, error, isShadow }, most) {
  const isDigest = /^[a-z0-9]+~/.test(key);
  const params = { policy, ...by ? { [`keys.${by}`]: key.slice(by.length + 1) } : { key: key.replace(/^key:/, '') } };
  const shown = h('code', { title: key }, key);
  const name = h('td.cut', isDigest ? copyable(key, shown) : h('a', { href: `#/key?${new URLSearchParams(params)}` }, shown),
    h('small', policy, isShadow ? [' ', badge('c-shadow', 'shadow')] : ''));
  const times = error ? `${int(denied - error)} – ${int(denied)}` : int(denied);
  const css = isShadow ? 'c-shadow' : 'c-deny';
  return h('tr', name, h(`td.r ${css}`, times, meter(['', 100 * denied / most])));
}

export function overview({ main, signal }) {
  const history = () => live.history;
  const tiles = [{ key: 'checks', name: 'checks', css: 'c-accent' }, ...SERIES].map(tile);
  const rates = areaChart({ series: SERIES, history, label: 'Checks a second, last 5 minutes' });
  const latency = latencyChart({
    series: [{ key: 'p50Micros', css: 'c-accent faint' }, { key: 'p99Micros', css: 'c-accent' }],
    history, budget: () => live.info.timeBudgetMicros, label: 'Decision latency, last 5 minutes',
  });
  const [banner, store, shadow] = [h('div'), h('div'), h('div.stack')];
  const [latencyNow, busy, denied] = [h('small'), h('tbody'), h('div', loading())];
  const legend = h('div.legend', SERIES.map(({ name, css, isPart }) =>
    h(`span.${css}`, h(`span.key ${isPart ? 'part' : ''}`), h('em', name))));
  const busiest = table('Busiest policies',
    [column('policy', ''), column('checks/s'), column('denied'), column('decided by', 'hide')], busy);
  put(main, banner, h('h1.sr', 'Overview'), h('div.grid',
    h('div.grid g6', tiles.map(({ el }) => el)),
    h('div.grid g21',
      h('div.stack', card('Checks a second', legend, rates.el), card('Decision latency', latencyNow, latency.el)),
      h('div.stack', card('Store', '', store), card('Shadow policies', h('small', 'would deny'), shadow))),
    h('div.grid g11', card('Busiest policies', link('policies', null, 'all'), busiest),
      card('Top denied keys', h('small', 'last 10 to 20 minutes'), denied))));

  const slow = async () => {
    try {
      const list = rank(await api.offenders(signal)).slice(0, OFFENDERS);
      const rows = list.map((one) => offender(one, list[0].denied));
      const all = table('Top denied keys', [column('key', ''), column('times')], h('tbody', rows));
      update(denied, rows.length ? all : empty('No key was denied.'));
    } catch (error) {
      if (!signal.aborted) put(denied, h('p.err', { role: 'alert' }, error.message));
    }
  };
  slow();
  let isOut;
  return {
    slow,
    tick(tick) {
      const text = outage(tick);
      // An alert is announced when it appears, not each second.
      if (isOut && text) banner.querySelector('b').textContent = text.querySelector('b').textContent;
      else put(banner, text);
      isOut = Boolean(text);
      for (const one of [...tiles, rates, latency]) one.redraw(tick);
      const timed = tick.p50Micros === null || tick.p50Micros === undefined;
      latencyNow.textContent = timed ? 'no check was timed' : `p50 ${span(tick.p50Micros)}, p99 ${span(tick.p99Micros)}`;
      update(store, storeFacts(tick));
      update(busy, tick.top.map(({ policy, limits, checks, denied, decidedBy }) => h('tr', policyCell(policy, limits, decidedBy),
        h('td.r', rate(checks)), shareCell(denied, checks, 'c-deny'), decidersCell(decidedBy))));
      update(shadow, tick.watched.length ? tick.watched.map(shadowPolicy) : empty('No policy is in shadow mode.'));
      if (!tick.top.length) put(busy, h('tr', h('td', { colSpan: 4 }, empty('No check yet.'))));
    },
  };
}
