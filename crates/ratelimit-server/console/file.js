// File: the policy file, checked while one types. Only a reload applies it.

import * as api from './api.js';
import {ask, badge, button, card, copyable, h, head, loading, newest, problem, put, toast, warning} from './dom.js';
import {int} from './format.js';
import {changeButton, drafts} from './session.js';

const TYPING_MS = 350;
const BUSY_MS = 2000;
const LINE_PX = 20;

/** A text area with line numbers. */
function editor(changed) {
  const numbers = h('pre.lines', {'aria-hidden': 'true'});
  const number = () => {
    numbers.textContent = text.value
      .split('\n')
      .map((_, i) => i + 1)
      .join('\n');
  };
  const text = h('textarea', {
    spellcheck: false,
    wrap: 'off',
    rows: 24,
    ariaLabel: 'Policy file',
    oninput() {
      number();
      changed();
    },
    onscroll() {
      numbers.scrollTop = text.scrollTop;
    }
  });
  return {
    el: h('div.editor', numbers, text),
    value: () => text.value,
    load(value) {
      text.value = value;
      number();
    },
    /** Selects a line, and scrolls to it. */
    select(line) {
      const before =
        text.value
          .split('\n')
          .slice(0, line - 1)
          .join('\n').length + (line > 1 ? 1 : 0);
      const end = text.value.indexOf('\n', before);
      text.focus();
      text.setSelectionRange(before, end < 0 ? text.value.length : end);
      text.scrollTop = (line - 4) * LINE_PX;
    }
  };
}

export function file({main, signal}) {
  let timer;
  let config;
  let reloadedAt;
  const checkSoon = after => {
    clearTimeout(timer);
    timer = setTimeout(check, after);
  };
  const text = editor(() => {
    drafts.file = text.value();
    checkSoon(TYPING_MS);
  });
  const notice = h('div', {role: 'status'});
  const [verdict, path, changes] = [h('span', {role: 'status'}), h('span'), h('div.stack')];
  const findings = h('ul.stack', h('li.loading', 'Checking ...'));
  const body = h('div', loading());
  put(main, head('Policy file', 'Checked while you type, not written. The server reloads its file within a second of a change.'), notice, body);

  const finding = ({line, severity, code, message}) =>
    h(
      'li',
      h(
        'button.find',
        {type: 'button', onclick: () => text.select(line ?? 1)},
        badge(severity === 'error' ? 'c-deny' : 'c-over', code),
        h('small', line ? ` line ${line}` : ''),
        h('span.block', message)
      )
    );
  const showFindings = list => put(findings, list.length ? list.map(finding) : h('li', 'None.'));
  const change = (css, word) => name => h('div', badge(css, word), ' ', h('code.wrap', name));

  const latest = newest(signal);
  const check = () =>
    latest(
      api.checkConfig({format: config.format, text: text.value()}, signal),
      found => {
        const {added, changed, removed, settings = [], needsRestart} = found.changes;
        const all = [
          ...added.map(change('c-allow', 'added')),
          ...changed.map(({name, from, to}) => `${name}: ${from} → ${to}`).map(change('c-over', 'changed')),
          ...removed.map(change('c-deny', 'removed')),
          ...settings.map(change('c-accent', 'applies on reload')),
          ...needsRestart.map(change('c-fall', 'needs a restart'))
        ];
        put(verdict, found.ok ? badge('c-allow', 'would be accepted') : badge('c-deny', 'would be rejected'));
        showFindings(found.findings);
        if (found.ok)
          put(changes, all.length ? all : 'None.', h('small', 'A policy that keeps its name keeps its counts.'));
        else put(changes, h('small', 'Shown when there is no error.'));
      },
      ({status, message}) => {
        put(verdict, h('span.err', {role: 'alert'}, message));
        // The server checks one text at a time.
        if (status === 503) checkSoon(BUSY_MS);
      }
    );

  async function reload() {
    const yes = await ask(
      'Reload the file?',
      'Reload',
      'main',
      h(
        'p',
        'The server reads ',
        h('code.wrap', config.path ?? 'its file'),
        ' again. If it has an error, the running policies stay. The text typed here is not part of it.'
      )
    );
    if (!yes || signal.aborted) return;
    await api.reload().then(
      ({policies}) => {
        toast(`Reloaded: ${int(policies)} policies.`);
        load();
      },
      ({body, message}) => {
        toast(body.result === 'rejected' ? 'Rejected: the running policies stay.' : message);
        if (body.findings) showFindings(body.findings);
      }
    );
  }
  /** Offers to load the file in place of the text. */
  const offer = why =>
    put(
      notice,
      why &&
        warning(
          `${why} `,
          button('', 'Load the file', () => {
            delete drafts.file;
            load();
          })
        )
    );
  /** After a reload: the file may have changed, and the difference to the running policies has. */
  async function compare() {
    const found = await api.config(signal).catch(() => config);
    if (signal.aborted) return;
    if (found.etag !== config.etag) offer('The file on disk changed.');
    check();
  }
  const load = () =>
    latest(
      api.config(signal),
      found => {
        config = found;
        put(
          path,
          config.path ? copyable(config.path) : 'The server runs without a file: check a text here.',
          config.hidden && ` The text is hidden: ${config.reason}.`
        );
        if (drafts.file === config.text) delete drafts.file;
        text.load(drafts.file ?? config.text);
        offer('file' in drafts && 'This is the text that you typed.');
        put(
          body,
          h(
            'div.grid g21',
            h('section.card', h('header', path, h('span.grow'), verdict), text.el),
            h(
              'div.stack',
              card('Findings', '', findings),
              card('Difference to the running policies', '', changes),
              h('div', changeButton('reload', '', 'Reload', reload))
            )
          )
        );
        check();
      },
      error => put(body, problem(error))
    );
  load();
  return {
    tick({reload}) {
      const isNew = reloadedAt !== undefined && reloadedAt !== reload?.at;
      reloadedAt = reload?.at ?? null;
      if (isNew && config) compare();
    }
  };
}
