// Key: the state of each limit for one key, and when more permits pass. Peeking spends nothing.

import * as api from './api.js';
import {
  address,
  ask,
  badge,
  card,
  column,
  empty,
  field,
  form,
  h,
  head,
  input,
  loading,
  moment,
  newest,
  problem,
  put,
  table,
  toast,
  warning
} from './dom.js';
import {forecastChart} from './chart.js';
import {int, span} from './format.js';
import {live} from './live.js';
import {changeButton} from './session.js';

/** Algorithms that refill evenly; the others do so at the end of a window. */
const IS_EVEN = /TOKEN|LEAKY|COUNTER/;

/** The gauge of one limit, which refills while one looks. */
function gauge(seen, permits) {
  const {text, by, algorithm, allowed, limit, remaining, resetAfterMicros: whole, passesAfterMicros: passes} = seen;
  const [level, wait, refill] = [h('i'), h('small'), h('small')];
  return {
    el: h(
      `div.gauge ${allowed ? 'c-allow' : 'c-deny'}`,
      h('code.wrap', by ? `${text} by ${by}` : text),
      h('strong', `${int(remaining)} of ${int(limit)} remaining`),
      h('div.bar', level),
      wait,
      refill
    ),
    paint(left) {
      const rest = left(whole);
      wait.textContent = allowed
        ? 'allows'
        : passes === null
          ? `never holds ${int(permits)}`
          : left(passes)
            ? `denies for ${span(left(passes))}`
            : 'allows';
      const share = IS_EVEN.test(algorithm) && whole ? rest / whole : rest > 0 ? 1 : 0;
      level.style.width = `${100 - ((100 * (limit - remaining)) / limit) * (whole ? share : 1)}%`;
      if (rest > 0) put(refill, `fully refilled in ${span(rest)}, at `, moment((Date.now() + rest / 1e3) / 1e3));
      else refill.textContent = 'full';
    }
  };
}

/** The answers about a key: made once, then shown again and again. */
function answers(reset, isOwn) {
  const [verdict, gauges, exact] = [h('div.verdict'), h('div'), h('small')];
  const values = table('Permits that pass', [column('permits', ''), column('pass in')]);
  const chart = forecastChart('Permits that pass from now on');
  let [at, passes, isShadow, wait, limits, cells] = [0, 0, false, null, [], []];
  let now = 0;
  const left = micros => Math.max(0, micros - (now - at) * 1e3);
  const words = rest => {
    if (isShadow) return `Passes now (shadow); would ${rest === null ? 'never pass' : `be denied for ${span(rest)}`}`;
    return rest === null ? 'Never passes' : rest ? `Passes in ${span(rest)}` : 'Passes now';
  };
  /** Draws the countdowns; true if the key passes only since the last look. */
  const paint = () => {
    now = performance.now();
    const rest = passes === null ? null : left(passes);
    wait.textContent = words(rest);
    for (const one of limits) one.paint(left);
    for (const [cell, after] of cells)
      cell.textContent = after === null ? 'never' : left(after) ? span(left(after)) : 'now';
    return passes > 0 && rest === 0;
  };
  return {
    el: h(
      'div.grid g11',
      card('Verdict', reset, verdict, gauges),
      card(
        'Permits that pass from now on',
        h('small', 'if no other check comes first'),
        chart.el,
        exact,
        h('details', h('summary', 'Values'), values)
      )
    ),
    paint,
    show([seen, curve]) {
      [at, passes, isShadow, wait] = [performance.now(), seen.passesAfterMicros, seen.shadow, h('b.num')];
      const [css, word] = seen.shadow
        ? ['c-shadow', 'shadow: would deny']
        : seen.allowed
          ? ['c-allow', 'allowed']
          : ['c-deny', 'denied'];
      put(
        verdict,
        badge(css, word),
        wait,
        h('p.soft', seen.reason),
        isOwn && h('small', 'Key is empty: limits without a name show the budget of the address of this browser.'),
        seen.store &&
          warning(
            'Redis did not decide: ',
            seen.store === 'local'
              ? 'these are the local budgets of this server.'
              : 'the failure mode decides without budgets.'
          ),
        seen.prefetch && h('small', `${int(seen.prefetch.onHand)} prefetched units held by this server`)
      );
      limits = seen.limits.map(one => gauge(one, seen.permits));
      put(
        gauges,
        limits.map(({el}) => el)
      );
      chart.show(curve);
      const isWhole = curve.points.every(([permits], i) => permits === i + 1);
      exact.textContent = seen.limits.some(({algorithm}) => algorithm === 'CONCURRENCY')
        ? 'The latest times: callers may release slots of a concurrency limit earlier.'
        : isWhole
          ? ''
          : 'Exact at the dots, and at least as many between them.';
      cells = curve.points.map(([, after]) => [h('td.r', {title: after === null ? '' : `${after} us`}), after]);
      put(
        values.tBodies[0],
        cells.map(([cell], i) => h('tr', h('td', int(curve.points[i][0])), cell))
      );
      paint();
    }
  };
}

/** @returns {Record<string, string>} policy, key and keys.NAME */
const keysOf = data => Object.fromEntries([...data].filter(([name, value]) => name !== 'permits' && value));

export function key({main, params, signal}) {
  // The key that was asked for; the fields may be about to change.
  const chosen = keysOf(params);
  const permits = params.get('permits') || 1;
  const [others, out, failed] = [h('div.row wide'), h('div'), h('p.err', {role: 'alert'})];
  const policy = input('policy', chosen.policy, {required: true, onchange: () => showNames(policy.value)});
  const peek = form(
    'row',
    submit,
    field('Policy', policy),
    field('Key', input('key', chosen.key)),
    field('Permits', input('permits', permits, {type: 'number', min: 1})),
    h('button.main', 'Peek'),
    others
  );
  put(main, head('Key', 'The state of each limit for one key. Peeking spends nothing.'), peek, out);

  const resetButton = () => h('div', changeButton('reset', 'danger', 'Reset', reset), failed);

  /** Shows fields for the keys that limits `by NAME` of a policy count by. */
  async function showNames(name) {
    const found = await api.policy(name, signal).catch(() => null);
    const names = new Set(found?.limits.map(({by}) => by).filter(by => by && by !== 'global'));
    if (!signal.aborted)
      put(
        others,
        [...names].map(by => field(`Key for limits by ${by}`, input(`keys.${by}`, chosen[`keys.${by}`])))
      );
  }
  function submit() {
    const to = address('key', {...keysOf(new FormData(peek)), permits: peek.elements.permits.value});
    if (location.hash === to) load();
    else location.hash = to;
  }
  async function reset() {
    const {policy, ...keys} = chosen;
    const yes = await ask(
      'Reset this key?',
      'Reset',
      'danger',
      h(
        'p',
        'Restores the full budget of ',
        h('code.wrap', Object.values(keys).join(', ')),
        ' under ',
        h('code.wrap', policy),
        live.last?.store.up === false ? '. Redis is down: only this server.' : ', on every server that shares the store.'
      )
    );
    if (!yes || signal.aborted) return;
    failed.textContent = '';
    await api.reset(chosen).then(
      () => toast('Reset.'),
      ({message}) => {
        failed.textContent = message;
      }
    );
    load();
  }

  let [view, isRefused] = [null, false];
  /** Tells why there is no answer. A missing key is told by its field, which gets the focus. */
  async function refuse(error) {
    view = null;
    // The same call would be refused again.
    isRefused = error.status === 400;
    if (isRefused) await named;
    const gap = isRefused && [...others.querySelectorAll('input')].find(({name}) => !chosen[name]);
    if (signal.aborted) return;
    if (!gap) return put(out, problem(error));
    const message = `Limits of ${chosen.policy} count by ${gap.name.slice(5)}: fill in “${gap.labels[0].textContent}”.`;
    put(out, problem({message}), resetButton());
    gap.ariaInvalid = 'true';
    gap.focus();
  }
  const latest = newest(signal);
  const load = () =>
    latest(
      Promise.all([api.explain(chosen, permits, signal), api.forecast(chosen, signal)]),
      found => {
        if (!view) {
          view = answers(resetButton(), !chosen.key);
          put(out, view.el);
        }
        view.show(found);
      },
      refuse
    );
  const named = chosen.policy && showNames(chosen.policy);
  if (!chosen.policy || Object.keys(chosen).length < 2) {
    put(out, empty('Name a policy and a key.'));
    return {};
  }
  put(out, loading());
  load();
  let wasDue = false;
  return {
    slow() {
      if (!isRefused) load();
    },
    fast() {
      // At the end of the countdown the page peeks again, once.
      const isDue = Boolean(view?.paint());
      if (isDue && !wasDue) load();
      wasDue = isDue;
    }
  };
}
