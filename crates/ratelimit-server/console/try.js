// Try: two policies on the same traffic, with a clock of their own.

import * as api from './api.js';
import {
  address,
  badge,
  card,
  column,
  copyable,
  empty,
  field,
  form,
  h,
  head,
  input,
  loading,
  newest,
  problem,
  put,
  say,
  table
} from './dom.js';
import {OUTCOMES, runChart} from './chart.js';
import {int, span} from './format.js';

const TRAFFIC = {burst: 'Bursts', steady: 'Steady', poisson: 'Random', boundary: 'Window edges', trace: 'Paste'};
const COLOURS = ['c-accent', 'c-fall'];

function verdict([a, b]) {
  const more = b && b.denied - a.denied;
  if (!more) return b ? `Both deny ${int(a.denied)}` : '';
  return `${more > 0 ? 'B' : 'A'} denies ${int(Math.abs(more))} more`;
}

/** Axes that fit all runs. */
const axesOf = ({runs, scene}) => ({
  ...scene,
  hits: Math.max(1, ...runs.flatMap(run => run.bins.map(bin => bin.reduce((sum, n) => sum + n, 0)))),
  remaining: runs.every(run => run.budgets.length === 1) ? Math.max(1, ...runs.map(run => run.budgets[0].limit)) : null
});

function runCard(run, axes, i) {
  const denied = run.keys.filter(one => one.denied);
  const counts = [...OUTCOMES, ['impossible', 'c-deny']].filter(([outcome]) => run[outcome]);
  return h(
    'section.card run',
    h(
      'div.row',
      badge(COLOURS[i], 'AB'[i]),
      copyable(run.limits),
      h('span.grow'),
      h(
        'div.legend',
        counts.map(([outcome, css]) => h(`span.${css}`, h('span.key'), h('em', `${int(run[outcome])} ${outcome}`))),
        h('em', run.longestWaitMicros ? `longest wait ${span(run.longestWaitMicros)}` : 'no wait')
      )
    ),
    runChart(run, axes, COLOURS[i]).el,
    run.budgets.length > 1 && h('small', `Solid: ${run.budgets[0].name}. Dashed: the others.`),
    denied.length > 0 &&
      h(
        'details',
        h('summary', `Denied keys (${int(run.keysDenied)})`),
        table(
          'Denied keys',
          [column('key', ''), column('allowed'), column('denied')],
          denied.map(one => h('tr', h('td.wrap', one.key), h('td.r', int(one.allowed)), h('td.r', int(one.denied))))
        )
      )
  );
}

const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;
const commandLine = (policies, {kind, hits, seed}) =>
  [
    'ratelimit-server simulate',
    ...policies.map(({limits}) => `--limit ${quoted(limits)}`),
    ...(policies[0].throttle === 'hard' ? [] : [`--throttle ${quoted(policies[0].throttle)}`]),
    kind ? `--traffic ${kind} --hits ${hits} --seed ${seed}` : 'trace.jsonl'
  ].join(' ');

export function tryPolicy({main, params, signal}) {
  const value = (name, otherwise) => params.get(name) ?? otherwise;
  const [a, b] = [value('a', 'token_bucket 10/s burst 20'), value('b', params.get('a') ?? 'fixed_window 10/s')];
  const sides = [
    ['a', a],
    ['b', b]
  ].map(([name, text]) => {
    const error = h('p.err', {role: 'alert', id: `error-${name}`});
    return {error, text: input(name, text, {required: name === 'a', 'aria-describedby': error.id})};
  });
  const kinds = Object.entries(TRAFFIC).map(([kind, name]) =>
    h(
      'label.seg',
      h('input', {
        type: 'radio',
        name: 'kind',
        value: kind,
        checked: kind === value('kind', 'burst'),
        onchange: run
      }),
      h('span', name)
    )
  );
  const trace = field(
    'Lines of a trace or of an access log',
    h('textarea', {rows: 6, name: 'trace', spellcheck: false, placeholder: '{"t":0.5,"key":"a","cost":1}'})
  );
  const number = (name, label, otherwise, max) =>
    field(label, input(name, value(name, otherwise), {type: 'number', min: 1, max}));
  const made = h('div.row', number('hits', 'Hits', 72, 100000), number('seed', 'Seed', 1));
  const [legend, out] = [h('legend'), h('div.stack', loading())];
  const asked = form(
    'stack',
    run,
    sides.map(({text, error}, i) => h('div', field(i ? 'B, beside it' : 'A', text), error)),
    field('Throttle of both', input('throttle', value('throttle', 'hard'), {placeholder: 'hard, or soft 10%'})),
    h('fieldset', legend, kinds),
    trace,
    made,
    h('div', h('button.main', 'Run'))
  );
  put(
    main,
    head('Try a policy', 'A simulation with a clock of its own. Nothing is spent.'),
    h('div.grid g12', asked, out)
  );

  const latest = newest(signal);
  function run() {
    const {trace: lines, throttle, ...data} = Object.fromEntries(new FormData(asked));
    const isTrace = data.kind === 'trace';
    [trace.hidden, made.hidden] = [!isTrace, isTrace];
    legend.textContent = isTrace ? 'Traffic' : 'Traffic, made for A';
    for (const {text, error} of sides) {
      text.ariaInvalid = null;
      error.textContent = '';
    }
    history.replaceState(null, '', address('try', {...data, throttle}));
    if (isTrace && !lines) return put(out, empty('Paste traffic, then run.'));
    const policies = [data.a, data.b]
      .filter(limits => limits.trim())
      .map(limits => ({limits, throttle: throttle || 'hard'}));
    const traffic = isTrace ? {trace: lines} : {kind: data.kind, hits: +data.hits, seed: +data.seed};
    latest(
      api.simulate({policies, traffic}, signal),
      found => {
        const text = verdict(found.runs);
        put(
          out,
          text &&
            h(
              'section.card verdict',
              h('b', text),
              h('p.soft', `${int(found.onlyA)} pass under A alone, ${int(found.onlyB)} under B alone`)
            ),
          found.runs.map((one, i) => runCard(one, axesOf(found), i)),
          card('Command line', h('small', 'the same on a terminal'), copyable(commandLine(policies, traffic)))
        );
        say(text);
      },
      why => {
        const side = sides[why.body?.policy];
        put(out, side ? empty('Correct the limits, then run.') : problem(why));
        if (!side) return;
        side.text.ariaInvalid = 'true';
        side.error.textContent = why.message;
      }
    );
  }
  run();
  return {};
}
