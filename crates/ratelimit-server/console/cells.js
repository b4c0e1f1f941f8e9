// Cells of the tables of policies.

import { h, link, meter } from './dom.js';
import { percent } from './format.js';
import { live } from './live.js';

/** Who decides: rates by name, from a policy or from its member decidedBy. */
export function deciders(policy) {
  const { store, fallback, prefetched, denyCached, denyCache = denyCached } = policy.decidedBy ?? policy;
  const isMemory = live.last?.store.kind === 'memory';
  return [
    [isMemory ? 'memory' : 'Redis', store, 'c-accent'],
    ['prefetched units', prefetched, 'c-allow'],
    ['deny cache', denyCache, 'c-over'],
    ['local fallback', fallback, 'c-fall'],
  ].filter(([, n]) => n > 0);
}

function words(policy) {
  const all = deciders(policy);
  const sum = all.reduce((whole, [, n]) => whole + n, 0);
  return all.map(([name, n]) => all.length > 1 ? `${name} ${percent(n, sum)}` : name).join(', ') || '–';
}

export function deciderCell(policy) {
  const all = deciders(policy);
  const sum = all.reduce((whole, [, n]) => whole + n, 0);
  return h('td.by hide', h('small', words(policy)), meter(...all.map(([, n, css]) => [css, 100 * n / sum])));
}

/** The name and the limits, and on phones who decides. */
export const policyCell = (name, limits, policy) => h('td.cut', link('policies', { name }, name),
  h('small.mono', { title: limits }, limits), h('small.phone', words(policy)));

export const shareCell = (part, whole, css) =>
  h(`td.r ${part ? css : 'soft'}`, percent(part, whole), meter(['', 100 * part / whole]));
