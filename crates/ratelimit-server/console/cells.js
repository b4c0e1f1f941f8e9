// Cells of the tables of policies.

import {h, link, meter} from './dom.js';
import {percent} from './format.js';
import {live} from './live.js';

/** Who decides: names, rates and colours, from a policy or from its member decidedBy. */
export function deciders(policy) {
  const {store, fallback, prefetched, denyCached, denyCache = denyCached} = policy.decidedBy ?? policy;
  return [
    [live.last?.store.kind === 'memory' ? 'memory' : 'Redis', store, 'c-accent'],
    ['prefetched units', prefetched, 'c-allow'],
    ['deny cache', denyCache, 'c-over'],
    ['local fallback', fallback, 'c-fall']
  ].filter(([, n]) => n > 0);
}

/** The name and the limits of a policy, and who decides: on phones in the first cell, else in the last. */
export function policyCells(name, limits, policy, ...between) {
  const all = deciders(policy);
  const sum = all.reduce((whole, [, n]) => whole + n, 0);
  const words = all.map(([who, n]) => (all.length > 1 ? `${who} ${percent(n, sum)}` : who)).join(', ') || '–';
  return [
    h('td.cut', link('policies', {name}, name), h('small.mono', {title: limits}, limits), h('small.phone', words)),
    ...between,
    h('td.by hide', h('small', words), meter(...all.map(([, n, css]) => [(100 * n) / sum, css])))
  ];
}

export const shareCell = (part, whole) =>
  h(`td.r ${part ? 'c-deny' : 'soft'}`, percent(part, whole), meter([(100 * part) / whole]));
