// File: the policy file, checked while one types. Only a reload applies it.

import * as api from './api.js';
import { ask, badge, card, copyable, empty, h, head, loading, put, say, toast } from './dom.js';
import { int } from './format.js';
import { changeButton } from './session.js';

const TYPING_MS = 350;
const LINE_PX = 20;

/** A text area with line numbers. */
function editor(oninput) {
  const numbers = h('pre.lines', { 'aria-hidden': 'true' });
  let count = 0;
  const number = () => {
    const lines = text.value.split('\n').length;
    if (lines === count) return;
    count = lines;
    numbers.textContent = Array.from({ length: lines }, (_, i) => i + 1).join('\n');
  };
  const text = h('textarea', {
    spellcheck: false, wrap: 'off', rows: 24, ariaLabel: 'Policy file',
    oninput() { number(); oninput(); }, onscroll() { numbers.scrollTop = text.scrollTop; },
  });
  return {
    el: h('div.editor', numbers, text),
    get value() { return text.value; },
    set value(value) { text.value = value; number(); },
    /** Selects a line, and scrolls to it. */
    show(line) {
      const lines = text.value.split('\n');
      const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
      text.focus();
      text.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
      text.scrollTop = (line - 4) * LINE_PX;
    },
  };
}

const change = (css, word, name) => h('div', badge(css, word), ' ', h('code.wrap', name));

export function file({ main, signal }) {
  let timer;
  let newest = 0;
  let config = { path: '', format: 'toml', text: '' };
  const text = editor(() => { clearTimeout(timer); timer = setTimeout(check, TYPING_MS); });
  const [verdict, path] = [h('span', { role: 'status' }), h('span')];
  const findings = h('ul.stack', h('li.loading', 'Checking ...'));
  const changes = h('div.stack');
  const revert = h('button', { type: 'button', onclick: () => load() }, 'Read from disk again');
  const body = h('div.grid g21', h('section.card', h('header', path, h('span.grow'), verdict), text.el),
    h('div.stack', card('Findings', '', findings), card('Difference to the running policies', '', changes),
      h('div.row top-row', changeButton('reload', '', 'Reload', reload), revert)));
  put(main, head('Policy file', 'Checked while you type. Nothing changes until the server reloads its file.'), loading());

  const finding = ({ line, severity, code, message }) => h('li', h('button.find', { type: 'button', onclick: () => text.show(line) },
    badge(severity === 'error' ? 'c-deny' : 'c-over', code ?? severity), h('small', line ? ` line ${line}` : ''), h('span.block', message)));
  const showFindings = (list) => put(findings, list.length ? list.map(finding) : h('li', 'None.'));

  async function check() {
    const mine = ++newest;
    try {
      const found = await api.checkConfig({ format: config.format, text: text.value }, signal);
      if (mine !== newest || signal.aborted) return;
      put(verdict, found.ok ? badge('c-allow', 'would be accepted') : badge('c-deny', 'would be rejected'));
      showFindings(found.findings);
      const { added = [], changed = [], removed = [], needsRestart = [] } = found.changes ?? {};
      const all = [
        ...added.map((name) => change('c-allow', 'added', name)),
        ...changed.map(({ name, from, to }) => change('c-over', 'changed', `${name}: ${from} → ${to}`)),
        ...removed.map((name) => change('c-deny', 'removed', name)),
        ...needsRestart.map((name) => change('c-fall', 'needs a restart', name)),
      ];
      put(changes, found.ok ? all.length ? all : 'None.' : '',
        h('small', found.ok ? 'A policy that keeps its name keeps its counts.' : 'Shown when there is no error.'));
    } catch (error) {
      if (mine === newest && !signal.aborted) put(verdict, h('span.err', { role: 'alert' }, error.message));
    }
  }

  async function reload() {
    const yes = await ask('Reload the file?', 'Reload', 'main', h('p', 'The server reads ', h('code.wrap', config.path),
      ' again. If the file has an error, the running policies stay. Changes in this page are not written.'));
    if (!yes || signal.aborted) return;
    try {
      const done = await api.reload();
      toast(`Reloaded: ${int(done.policies)} policies.`);
      load();
    } catch (error) {
      toast(error.body?.result === 'rejected' ? 'Rejected: the running policies stay.' : error.message);
      if (error.body?.findings) showFindings(error.body.findings);
      say(error.message);
    }
  }

  async function load() {
    try {
      config = await api.config(signal);
      put(path, config.path ? copyable(config.path) : 'No file');
    } catch (error) {
      if (signal.aborted) return;
      if (error.status !== 404) return put(main.lastChild, h('p.card err', { role: 'alert' }, error.message));
      put(path, 'The server runs without a file: check a text here.');
    }
    if (signal.aborted) return;
    text.value = config.text;
    main.lastChild.replaceWith(body);
    check();
  }
  load();
  return { isBusy: () => text.value !== config.text };
}
