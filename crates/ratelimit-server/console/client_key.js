// Client key: the budget that a request spends, and how its key is found.

import * as api from './api.js';
import {card, copyable, empty, field, form, h, head, input, loading, newest, problem, put, warning} from './dom.js';
import {live} from './live.js';
import {drafts} from './session.js';

const VERDICTS = {
  trusted: ['trusted: passed over', 'c-accent'],
  client: ['the first that is not trusted: this is the client', 'c-allow hit'],
  not_read: ['not read: the client may have written it', 'soft off'],
  peer_untrusted: ['not trusted, so no header is read: this is the client', 'c-allow hit'],
  bad: ['not an address: the walk ends here', 'c-deny']
};
const ERRORS = {
  bad_key: 'The key is malformed.',
  ambiguous_key: 'The request names several keys.',
  no_client: 'No client is found.',
  bad_config: 'This request is not possible.'
};
const EXAMPLE = 'X-Forwarded-For: 6.6.6.6, 203.0.113.9, 10.0.0.5\nX-Real-IP: 203.0.113.9';

function step({from, value, verdict}) {
  const [words, css] = VERDICTS[verdict] ?? [verdict, ''];
  return h(`li.${css}`, h('span', h('code.wrap', value), h('small', ` ${from}`)), h('small', words));
}

export function clientKey({main, signal}) {
  const configured = (live.info.trusted ?? []).join(', ');
  const out = h('div.stack', {ariaLive: 'polite'}, loading());
  const draft = {headers: EXAMPLE, query: '', peer: '10.0.0.1:4711', trusted: configured, ...drafts.client};
  const headers = h('textarea', {rows: 6, name: 'headers', spellcheck: false, value: draft.headers});
  const asked = form(
    'stack',
    run,
    field('Header lines, as they were received', headers),
    field('Query', input('query', draft.query, {placeholder: 'key=...'})),
    h('div.row', field('Peer', input('peer', draft.peer)), field('Trusted proxies', input('trusted', draft.trusted))),
    h('div', h('button.main', 'Find the client'))
  );
  asked.oninput = () => {
    drafts.client = Object.fromEntries(new FormData(asked));
  };
  put(
    main,
    head('Client key', 'The budget that a request spends, and how its key is found.'),
    h('div.grid g11', asked, out)
  );

  const latest = newest(signal);
  function run() {
    const {trusted, ...data} = Object.fromEntries(new FormData(asked));
    const list = trusted === configured ? null : trusted.split(/[\s,]+/).filter(Boolean);
    latest(
      api.clientKey({...data, trusted: list}, signal),
      found =>
        put(
          out,
          card(
            'Spends the budget of',
            '',
            h(
              'div.verdict',
              found.error
                ? h('b.c-deny', ERRORS[found.error] ?? found.error)
                : copyable(found.key, h('b.mono wrap', found.key)),
              found.by && h('p.soft', `found by ${found.by}`)
            )
          ),
          found.advice.map(text => warning(text)),
          card(
            'How it was found',
            h('small', 'from the connection inwards'),
            found.steps.length ? h('ol.hops', found.steps.map(step)) : empty('No address was read.'),
            found.moreSteps && h('small', `and ${found.moreSteps} more`)
          )
        ),
      error => put(out, problem(error))
    );
  }
  run();
  return {};
}
