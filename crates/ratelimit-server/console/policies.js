// Policies: their limits, settings and rates.

import * as api from './api.js';
import { badge, card, column, copyable, empty, facts, h, head, link, loading, problem, put, table, update } from './dom.js';
import { deciders, int, percent, rate, span } from './format.js';
import { decidersCell, policyCell, shareCell, storeName } from './overview.js';

const badges = (policy) => h('div.badges', [
  policy.shadow && badge('c-shadow', 'shadow'),
  !policy.shadow && policy.enforced < 100 && badge('c-shadow', `enforced ${policy.enforced} %`),
  policy.throttle !== 'hard' && badge('c-over', policy.throttle),
  policy.onFailure !== 'local' && badge('c-fall', `fail ${policy.onFailure}`),
  policy.builtIn && badge('', 'built in'),
]);

const row = (policy, chosen) => h(`tr.${policy.name === chosen ? 'on' : ''}`,
  policyCell(policy.name, policy.text, policy.decidedBy), h('td.hide', badges(policy)), h('td.r', rate(policy.checks)),
  shareCell(policy.denied, policy.checks, 'c-deny'),
  h('td.r hide c-shadow', policy.wouldDeny ? percent(policy.wouldDeny, policy.checks) : ''),
  decidersCell(policy.decidedBy));

const list = (texts) => texts?.length ? texts.join(', ') : 'none';

function details(policy) {
  const { tiers = {}, tenants = { total: 0, first: {} }, decidedBy, charge_on: chargeOn } = policy;
  const by = Object.entries(decidedBy ?? {}).filter(([, n]) => n > 0);
  const names = { store: storeName(), fallback: 'local fallback', prefetched: 'prefetched units' };
  return card(policy.name, badges(policy), h('div.stack',
    policy.limits.map(({ text, words, by: key }) =>
      h('div', copyable(key ? `${text} by ${key}` : text), h('small.block', words))),
    facts([
      ['checks', `${rate(policy.checks)}/s`],
      ['denied', `${rate(policy.denied)}/s`],
      ['would deny', `${rate(policy.wouldDeny)}/s`],
      ['decided by', by.length ? by.map(([who, n]) => h('span.block', `${names[who]} ${rate(n)}/s`)) : deciders(null)],
      ['p99 of decisions', policy.p99Micros === null ? 'not timed' : span(policy.p99Micros)],
      ['failure mode', policy.onFailure],
      ['throttle', policy.throttle],
      ['cost of a hit', String(policy.cost ?? 1)],
      chargeOn?.length && ['charged on', chargeOn.join(', ')],
      policy.settle && ['settle', String(policy.settle)],
      ['exempt', list(policy.exempt)],
      ['blocked', policy.blocked?.length ? `${list(policy.blocked)} (${policy.blockedStatus})` : 'none'],
      ...Object.entries(tiers).map(([name, text]) => [`tier ${name}`, text, 'mono']),
      tenants.total > 0 && ['tenants', [int(tenants.total), ...Object.entries(tenants.first)
        .map(([name, tier]) => h('span.block mono', `${name}: ${tier}`))]],
    ]),
    h('div.row btns', link('key', { policy: policy.name }, 'Peek at a key'), link('try', { a: policy.text }, 'Try a change'))));
}

export function policies({ main, params, signal }) {
  const chosen = params.get('name');
  let sort = 'checks';
  let newest = 0;
  const filter = h('input', {
    type: 'search', id: 'filter', ariaLabel: 'Filter policies', placeholder: 'Filter by name or limit  ( / )',
    autocomplete: 'off', spellcheck: false, oninput: () => load(),
  });
  const body = h('tbody');
  const count = h('span', { role: 'status' });
  const rows = h('div.scroll', { tabIndex: 0, role: 'region', ariaLabel: 'Policies' }, loading());
  const side = h(`div.stack ${chosen ? 'first' : ''}`);
  const heads = [['policy', 'name', ''], ['', '', 'hide'], ['checks/s', 'checks', 'r'], ['denied', 'denied', 'r'],
    ['would deny', 'wouldDeny', 'r hide'], ['decided by', '', 'hide']].map(([name, key, css]) => {
    if (!key) return column(name || h('span.sr', 'modes'), css);
    const order = key === 'name' ? 'ascending' : 'descending';
    const choose = () => { sort = key; load(); };
    return Object.assign(column(h('button', { type: 'button', onclick: choose }, name), css), { key, order });
  });
  const all = table('Policies', heads, body);
  put(main, head('Policies', count), h('div.grid g31', h('section.card', filter, rows), side));

  async function load() {
    const mine = ++newest;
    for (const column of heads) if (column.key) column.ariaSort = column.key === sort ? column.order : 'none';
    try {
      const [page, policy] = await Promise.all([
        api.policies({ q: filter.value, sort, limit: 100 }, signal),
        chosen ? api.policy(chosen, signal).catch((error) => error.status === 404 ? null : Promise.reject(error)) : null,
      ]);
      // An answer that was overtaken by a newer one, or that comes after the screen has gone.
      if (mine !== newest || signal.aborted) return;
      const shown = page.policies.length;
      count.textContent = page.total > shown ? `${shown} of ${int(page.total)}; filter to see others` : `${int(page.total)} in all`;
      update(body, page.policies.map((one) => row(one, chosen)));
      const what = shown ? all : empty(filter.value ? `No policy matches ${filter.value}.` : 'There is no policy.');
      if (rows.firstChild !== what) put(rows, what);
      update(side, policy ? details(policy)
        : card('One policy', '', empty(chosen ? `There is no policy ${chosen}.` : 'Choose one to see its settings.')));
    } catch (error) {
      if (mine === newest && !signal.aborted) put(rows, problem(error.message));
    }
  }
  load();
  return { slow: load };
}
