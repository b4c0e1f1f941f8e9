// Try: two policies on the same traffic, on a clock of their own.

import * as api from './api.js';
import { address, badge, card, copyable, column, empty, field, form, h, head, input, loading, put, say, table } from './dom.js';
import { FATES, runChart } from './chart.js';
import { int, span } from './format.js';

const TRAFFIC = { burst: 'Bursts', steady: 'Steady', poisson: 'Random', boundary: 'Window edges', trace: 'Paste' };
const DEFAULTS = { a: 'token_bucket 10/s burst 20', b: 'fixed_window 10/s' };
const SIDES = ['a', 'b'];
const COLOURS = ['c-accent', 'c-fall'];

/** A sentence about which of the two denies more. */
function verdict([a, b]) {
  if (!b) return '';
  const more = b.denied - a.denied;
  if (!more) return `Both deny ${int(a.denied)}`;
  return `${more > 0 ? 'B' : 'A'} denies ${int(Math.abs(more))} more`;
}

/** Axes that fit all runs. */
function axesOf({ runs, scene }) {
  const isOne = runs.every((run) => run.budgets.length === 1);
  return {
    ...scene,
    hits: Math.max(1, ...runs.flatMap((run) => run.bins.map((bin) => bin.reduce((sum, n) => sum + n, 0)))),
    remaining: isOne ? Math.max(1, ...runs.map((run) => run.budgets[0].limit)) : null,
  };
}

function runCard(run, axes, i) {
  const counts = [...FATES, ['impossible', 'c-deny']].filter(([fate]) => run[fate]);
  const keys = run.keys?.length > 1 && h('details', h('summary', `${int(run.keysDenied)} keys denied`),
    table('Keys', [column('key', ''), column('allowed'), column('denied')], h('tbody', run.keys.map((one) =>
      h('tr', h('td.cut', h('code', one.key)), h('td.r', int(one.allowed)), h('td.r c-deny', int(one.denied)))))));
  return h('section.card run', h('div.row', badge(COLOURS[i], 'AB'[i]), copyable(run.limits), h('span.grow'),
    h('div.legend', counts.map(([fate, css]) => h(`span.${css}`, h('span.key'), h('em', `${int(run[fate])} ${fate}`))),
      h('em', run.longestWaitMicros ? `longest wait ${span(run.longestWaitMicros)}` : 'no wait'))),
  runChart(run, axes, COLOURS[i]).el, keys);
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
function commandLine(policies, traffic) {
  const limits = policies.map(({ limits, throttle }) =>
    `--limit ${quoted(limits)}${throttle === 'hard' ? '' : ` --throttle ${quoted(throttle)}`}`);
  const made = traffic.trace ? 'trace.jsonl' : `--traffic ${traffic.kind} --hits ${traffic.hits} --seed ${traffic.seed}`;
  return `ratelimit-server simulate ${limits.join(' ')} ${made}`;
}

export function tryPolicy({ main, params, signal }) {
  const value = (name, otherwise) => params.get(name) ?? otherwise;
  const texts = [input('a', value('a', DEFAULTS.a), { required: true }), input('b', value('b', params.get('a') ?? DEFAULTS.b))];
  const errors = SIDES.map((side) => h('p.err', { role: 'alert', id: `error-${side}` }));
  texts.forEach((text, i) => text.setAttribute('aria-describedby', `error-${SIDES[i]}`));
  const throttles = SIDES.map((side) => input(`throttle-${side}`, value(`throttle-${side}`, 'hard'), { list: 'throttles' }));
  const kinds = Object.entries(TRAFFIC).map(([kind, name]) => h('label.seg',
    h('input', { type: 'radio', name: 'kind', value: kind, checked: kind === value('kind', 'burst'), onchange: () => run() }),
    h('span', name)));
  const trace = field('Lines of a trace or of an access log',
    h('textarea', { rows: 6, name: 'trace', spellcheck: false, placeholder: '{"t":0.5,"key":"a","cost":1}' }));
  const made = [field('Hits', input('hits', value('hits', 72), { type: 'number', min: 1, max: 100000 })),
    field('Seed', input('seed', value('seed', 1), { type: 'number', min: 0 }))];
  const out = h('div.stack', loading());
  const side = (name, i) => h('div', h('div.row', field(name, texts[i], { className: 'most' }), field(`Throttle of ${'AB'[i]}`, throttles[i])), errors[i]);
  const asked = form('stack', () => run(), side('A', 0), side('B, beside it', 1),
    h('datalist', { id: 'throttles' }, ['hard', 'soft 10%', 'soft 20%'].map((text) => h('option', { value: text }))),
    h('fieldset', h('legend', 'Traffic, made for A'), kinds), trace, h('div.row', made, h('button.main', 'Run')));
  put(main, head('Try a policy', 'A simulation with a clock of its own. Nothing is spent.'), h('div.grid g12', asked, out));

  function show(found, policies, traffic) {
    const axes = axesOf(found);
    const text = verdict(found.runs);
    put(out,
      text && h('section.card verdict', h('b', text),
        h('p.soft', `${int(found.onlyA)} pass under A alone, ${int(found.onlyB)} under B alone`)),
      found.runs.map((one, i) => runCard(one, axes, i)),
      card('Command line', h('small', 'the same on a terminal'), copyable(commandLine(policies, traffic))));
    say(text);
  }

  let newest = 0;
  async function run() {
    const mine = ++newest;
    const data = Object.fromEntries(new FormData(asked));
    const isTrace = data.kind === 'trace';
    trace.hidden = !isTrace;
    for (const one of made) one.hidden = isTrace;
    texts.forEach((text, i) => { text.ariaInvalid = null; errors[i].textContent = ''; });
    const policies = SIDES.map((name) => ({ limits: String(data[name]).trim(), throttle: String(data[`throttle-${name}`]).trim() || 'hard' }))
      .filter(({ limits }) => limits);
    const { trace: lines, ...shared } = data;
    history.replaceState(null, '', address('try', shared));
    if (isTrace && !String(lines).trim()) return put(out, empty('Paste traffic, then run.'));
    const traffic = isTrace ? { trace: lines } : { kind: data.kind, hits: Number(data.hits), seed: Number(data.seed) };
    try {
      const found = await api.simulate({ policies, traffic }, signal);
      if (mine === newest && !signal.aborted) show(found, policies, traffic);
    } catch (error) {
      if (mine !== newest || signal.aborted) return;
      const at = error.body?.policy;
      if (at === undefined) return put(out, h('p.card err', { role: 'alert' }, error.message));
      texts[at].ariaInvalid = 'true';
      errors[at].textContent = error.message;
      put(out, empty('Correct the limits, then run.'));
    }
  }
  run();
  return {};
}
