// Overview: how much is checked and denied, how fast, and who decides.

import * as api from './api.js';
import {
  badge,
  card,
  column,
  copyable,
  empty,
  facts,
  h,
  link,
  loading,
  meter,
  moment,
  newest,
  problem,
  put,
  table,
  update
} from './dom.js';
import {areaChart, latencyChart, spark} from './chart.js';
import {policyCells, shareCell} from './cells.js';
import {int, percent, rate, span} from './format.js';
import {live} from './live.js';

// The first three are all checks. The last two are parts of them, and are not stacked.
const SERIES = [
  ['allowed', 'allowed', 'c-allow'],
  ['over', 'over', 'c-over'],
  ['denied', 'denied', 'c-deny'],
  ['unchecked', 'unchecked', 'c-fall'],
  ['would deny', 'wouldDeny', 'c-shadow']
].map(([name, key, css], i) => ({name, key, css, isPart: i > 2}));
const CHECKS = {name: 'checks', key: 'checks', css: 'c-accent'};
const LATENCY = [
  {key: 'p50Micros', css: 'c-accent faint'},
  {key: 'p99Micros', css: 'c-accent'}
];

function tile({key, name, css}) {
  const [now, sum, line] = [h('b'), h('small'), spark(css, key)];
  return {
    el: h('section.card tile', h('h2', h(`span.key ${css}`), name), now, sum, line.el),
    redraw(tick) {
      put(now, rate(tick[key]), h('small', key === 'checks' ? ' a second' : ` ${percent(tick[key], tick.checks)}`));
      // A rate times the true span of its sample is a count.
      const counts = live.samples.map(one => Math.round(((one[key] ?? 0) * (one.elapsedMicros ?? 1e6)) / 1e6));
      sum.textContent = `${int(counts.reduce((x, y) => x + y, 0))} in ${counts.length} s`;
      line.redraw();
    }
  };
}

function storeFacts({store, roundTripMicros, denyCached, reload}) {
  const isMemory = store.kind === 'memory';
  const red = store.up ? '' : 'c-deny';
  const roundTrip = roundTripMicros ? ` · round trip ${span(roundTripMicros)}` : '';
  return facts([
    [
      'store',
      isMemory ? 'memory of this process' : `Redis ${store.version ?? ''} · ${store.server ?? 'not connected'}`
    ],
    ['decides now', isMemory ? 'this process' : store.up ? 'Redis' : 'local fallback', red],
    !isMemory && ['connection', store.up ? `up${roundTrip}` : 'down', red],
    !isMemory && ['connection attempts', int(store.reconnects)],
    !isMemory && ['outcome unknown', int(store.ambiguous)],
    ['evicted keys', int(store.evicted), store.evicted ? 'c-deny' : ''],
    ['deny cache', `${rate(denyCached)}/s`],
    ['policy file', reload ? [`${reload.result}, `, moment(reload.at)] : 'as at the start'],
    ['started', moment(live.info.startedAt)]
  ]);
}

const shadowPolicy = ({policy, enforced, checks, wouldDeny}) =>
  h(
    'div.c-shadow',
    h(
      'div.row',
      link('policies', {name: policy}, policy),
      badge('', enforced ? `enforced ${enforced} %` : 'shadow'),
      h('span.grow'),
      h('b.num', percent(wouldDeny, checks))
    ),
    meter([(100 * wouldDeny) / checks]),
    h('small', `${rate(wouldDeny)} of ${rate(checks)} a second`)
  );

/** The most denied keys of all policies. Those of shadow policies were not denied, and say so. */
const topKeys = answer =>
  [answer.policies, answer.shadow ?? {}]
    .flatMap((policies, isShadow) =>
      Object.entries(policies).flatMap(([policy, keys]) => keys.map(key => ({...key, policy, isShadow})))
    )
    .sort((a, b) => b.denied - a.denied)
    .slice(0, 8);

const isDigest = ({key}) => /^\w+~/.test(key);

function deniedKey({key, by, policy, denied, error, isShadow}, _, all) {
  const shown = h('code', {title: key}, key);
  const params = by ? {[`keys.${by}`]: key.slice(by.length + 1)} : {key};
  return h(
    'tr',
    h(
      'td.cut',
      isDigest({key}) ? copyable(key, shown) : link('key', {policy, ...params}, shown),
      h('small', `${policy} `, isShadow ? badge('c-shadow', 'shadow') : '')
    ),
    h(
      `td.r ${isShadow ? 'c-shadow' : 'c-deny'}`,
      error ? `${int(denied - error)} – ${int(denied)}` : int(denied),
      meter([(100 * denied) / all[0].denied])
    )
  );
}

/** Shows or removes an alert. It is announced when it appears, so only its headline changes later. */
function alert(el, headline, ...body) {
  if (!headline) return put(el);
  if (!el.firstChild) put(el, h('div.banner', {role: 'alert'}, h('span.dot bad'), h('div', h('b'), body)));
  el.querySelector('b').textContent = headline;
}

export function overview({main, signal}) {
  const tiles = [CHECKS, ...SERIES].map(tile);
  const rates = areaChart(SERIES, 'Checks a second, last 5 minutes');
  const latency = latencyChart(LATENCY, 'Decision latency, last 5 minutes');
  const [outage, rejection, store, busy, denied, shadow, latencyNow] = [
    h('div'),
    h('div'),
    h('div', loading()),
    h('div'),
    h('div', loading()),
    h('div.stack'),
    h('small.legend')
  ];
  const legend = h(
    'div.legend',
    SERIES.map(({name, css, isPart}) => h(`span.${css}`, h(`span.key ${isPart ? 'part' : ''}`), h('em', name)))
  );
  put(
    main,
    outage,
    rejection,
    h('h1.sr', 'Overview'),
    h(
      'div.grid',
      h(
        'div.grid g6',
        tiles.map(({el}) => el)
      ),
      h(
        'div.grid g21',
        h('div.stack', card('Checks a second', legend, rates.el), card('Decision latency', latencyNow, latency.el)),
        h('div.stack', card('Store', '', store), card('Shadow policies', h('small', 'would deny'), shadow))
      ),
      h(
        'div.grid g11',
        card('Busiest policies', link('policies', null, 'all'), busy),
        card('Top denied keys', h('small', 'last 10 to 20 minutes'), denied)
      )
    )
  );

  const latest = newest(signal);
  const slow = () =>
    latest(
      api.offenders(signal),
      answer => {
        const keys = topKeys(answer);
        update(
          denied,
          keys.length
            ? table('Top denied keys', [column('key', ''), column('times')], keys.map(deniedKey))
            : empty('No key was denied.'),
          keys.some(isDigest) && h('small', 'Keys are digests; --offender-keys shown shows them.')
        );
      },
      error => put(denied, problem(error))
    );
  slow();
  const row = one =>
    h('tr', policyCells(one.policy, one.limits, one, h('td.r', rate(one.checks)), shareCell(one.denied, one.checks)));
  return {
    slow,
    tick(tick) {
      const {
        store: {up, downMicros},
        top,
        watched,
        reload,
        p50Micros: p50,
        p99Micros: p99
      } = tick;
      alert(
        outage,
        !up && `Redis has not answered for ${span(downMicros)}.`,
        'The failure mode of each policy decides: local budgets with the same limits, or 503 where it is closed.'
      );
      alert(
        rejection,
        reload?.result === 'rejected' && 'The policy file is rejected, and the policies before it run.',
        link('file', null, 'See its findings')
      );
      for (const one of [...tiles, rates, latency]) one.redraw(tick);
      put(
        latencyNow,
        p50
          ? [p50, p99].map((micros, i) =>
              h('span', h(`span.key part ${LATENCY[i].css}`), h('em', `p${i ? 99 : 50} ${span(micros)}`))
            )
          : 'no check was timed'
      );
      update(store, storeFacts(tick));
      const heads = [column('policy', ''), column('checks/s'), column('denied'), column('decided by', 'hide')];
      update(busy, top.length ? table('Busiest policies', heads, top.map(row)) : empty('No check yet.'));
      update(shadow, watched.length ? watched.map(shadowPolicy) : empty('No policy is in shadow mode.'));
    }
  };
}
