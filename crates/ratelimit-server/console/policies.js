// Policies: their limits, settings and rates.

import * as api from './api.js';
import {
  badge,
  button,
  card,
  column,
  copyable,
  empty,
  facts,
  h,
  head,
  link,
  loading,
  newest,
  problem,
  put,
  table,
  update
} from './dom.js';
import {deciders, policyCells, shareCell} from './cells.js';
import {int, percent, rate, span} from './format.js';

const badges = ({enforced, throttle, onFailure, builtIn, envoy}) =>
  h(
    'div.badges',
    enforced < 100 && badge('c-shadow', enforced ? `enforced ${enforced} %` : 'shadow'),
    throttle !== 'hard' && badge('c-over', throttle),
    onFailure !== 'local' && badge('c-fall', `fails ${onFailure}`),
    envoy && badge('c-accent', `Envoy ${envoy.domain}`),
    builtIn && badge('', 'built in')
  );

const row = (policy, chosen) =>
  h(
    `tr.${policy.name === chosen ? 'on' : ''}`,
    policyCells(
      policy.name,
      policy.text,
      policy,
      h('td.hide', badges(policy)),
      h('td.r', rate(policy.checks)),
      shareCell(policy.denied, policy.checks),
      h('td.r hide c-shadow', policy.wouldDeny ? percent(policy.wouldDeny, policy.checks) : '')
    )
  );

const list = texts => texts.join(', ') || 'none';
const lines = texts => texts.map(text => h('span.block', text));

function details(policy) {
  const {name, text, limits, throttle, charge_on: chargeOn, settle, prefetch, tiers, tenants, exempt, blocked} = policy;
  return card(
    name,
    badges(policy),
    h(
      'div.stack',
      limits.map(({text, words, by}) => h('div', copyable(by ? `${text} by ${by}` : text), h('small.block', words))),
      facts([
        ['checks', `${rate(policy.checks)}/s`],
        ['denied', `${rate(policy.denied)}/s`],
        ['would deny', `${rate(policy.wouldDeny)}/s`],
        ['decided by', lines(deciders(policy).map(([who, n]) => `${who} ${rate(n)}/s`))],
        ['p99 of decisions', policy.p99Micros ? span(policy.p99Micros) : 'not timed'],
        ['failure mode', policy.onFailure],
        ['throttle', throttle],
        ['cost of a hit', `${policy.cost}`],
        prefetch && ['prefetched share', `${prefetch} %`],
        chargeOn?.length && ['charged on', list(chargeOn)],
        settle && ['settle', settle],
        ['exempt', list(exempt)],
        ['blocked', blocked.length ? `${list(blocked)} (${policy.blockedStatus})` : 'none'],
        ...Object.entries(tiers).map(([tier, text]) => [`tier ${tier}`, text, 'mono']),
        tenants.total && [
          'tenants',
          [int(tenants.total), ...lines(Object.entries(tenants.first).map(one => one.join(': ')))]
        ]
      ]),
      h(
        'div.row btns',
        policy.peek === false ? h('small', `No peek: ${policy.peekReason}.`) : link('key', {policy: name}, 'Peek at a key'),
        link('try', {a: text, throttle}, 'Try a change')
      )
    )
  );
}

const COLUMNS = [
  ['policy', 'name', ''],
  ['', '', 'hide'],
  ['checks/s', 'checks', 'r'],
  ['denied', 'denied', 'r'],
  ['would deny', 'wouldDeny', 'r hide'],
  ['decided by', '', 'hide']
];

export function policies({main, params, signal}) {
  const chosen = params.get('name');
  let [sort, whole] = ['checks', ''];
  const filter = h('input', {
    type: 'search',
    id: 'filter',
    ariaLabel: 'Filter policies',
    placeholder: 'Filter by name or limit  ( / )',
    oninput: load
  });
  const [count, side] = [h('span', {role: 'status'}), h(`div.stack ${chosen ? 'first' : ''}`)];
  const rows = h('div.scroll', {tabIndex: 0, role: 'region', ariaLabel: 'Policies'}, loading());
  const heads = COLUMNS.map(([name, key, css]) =>
    column(
      key
        ? button('', name, () => {
            sort = key;
            load();
          })
        : name || h('span.sr', 'modes'),
      css
    )
  );
  const all = table('Policies', heads);
  put(main, head('Policies', count), h('div.grid g31', h('section.card', filter, rows), side));

  const latest = newest(signal);
  function load() {
    COLUMNS.forEach(([, key], i) => {
      if (key) heads[i].ariaSort = key !== sort ? 'none' : key === 'name' ? 'ascending' : 'descending';
    });
    const one = chosen && api.policy(chosen, signal).catch(why => (why.status === 404 ? null : Promise.reject(why)));
    latest(
      Promise.all([api.policies({q: filter.value, sort, limit: 100}, signal), one]),
      ([page, policy]) => {
        const shown = page.policies.length;
        if (!filter.value) whole = page.total;
        count.textContent =
          page.total > shown
            ? `${shown} of ${int(page.total)}; filter to see others`
            : `${int(page.total)} ${filter.value ? whole && `of ${int(whole)}` : 'in all'}`;
        update(
          all.tBodies[0],
          page.policies.map(policy => row(policy, chosen))
        );
        if (!shown) put(rows, empty(filter.value ? `No policy matches ${filter.value}.` : 'There is no policy.'));
        else if (rows.firstChild !== all) put(rows, all);
        update(
          side,
          policy
            ? details(policy)
            : card(
                'One policy',
                '',
                empty(chosen ? `There is no policy ${chosen}.` : 'Choose one to see its settings.')
              )
        );
      },
      error => put(rows, problem(error))
    );
  }
  load();
  return {slow: load};
}
