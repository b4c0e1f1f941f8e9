// The session: the sign-in form, the token of the address, and the changes that the server allows.

import * as api from './api.js';
import {$, button, card, field, form, h, head, icon, input, put} from './dom.js';

export let session = {signedIn: false, can: []};

/** Texts that were typed, by screen. A session that ends keeps them; signing out does not. */
export const drafts = {};

const RENEWAL_MS = 600_000;
let timer;

function accept(answer) {
  session = answer;
  clearTimeout(timer);
  if (!session.signedIn || !session.expiresAt) return;
  // A page that is looked at asks before the end, and the server renews the session.
  const left = session.expiresAt * 1000 - Date.now();
  timer = setTimeout(renew, Math.max(5000, left - (document.hidden ? 0 : RENEWAL_MS)));
}

async function renew() {
  await refresh().catch(() => {
    timer = setTimeout(renew, 5000);
  });
  if (!session.signedIn) api.on.signedOut();
}

export const refresh = async () => accept(await api.session());
export const signIn = async token => accept(await api.signIn(token));
export async function signOut() {
  accept(await api.signOut());
  for (const name in drafts) delete drafts[name];
}
export const forget = () => accept({...session, signedIn: false, can: []});

/** Takes the token out of an address `#token=...`, and out of the history. */
export function tokenOfAddress() {
  const [, token] = location.hash.match(/^#token=(.+)$/) ?? [];
  if (token) history.replaceState(null, '', '#/overview');
  return token;
}

/** Shows the sign-in form; calls `done` after a success. */
export function signInScreen(why, done) {
  const error = h('p.err', {role: 'alert', id: 'error'}, why);
  const token = input('token', '', {type: 'password', required: true, 'aria-describedby': 'error help'});
  const submit = () =>
    signIn(token.value).then(done, ({status, message}) => {
      token.ariaInvalid = 'true';
      error.textContent = status === 401 ? 'This is not the admin token.' : message;
      token.select();
    });
  put(
    $('main'),
    h(
      'div.signin',
      head('Sign in', 'with the admin token of the server'),
      form('stack', submit, field('Admin token', token), error, h('div', h('button.main', 'Sign in'))),
      card(
        'Where is the token?',
        '',
        h(
          'p.soft',
          {id: 'help'},
          'In the file of --admin-token-file, or on the start screen of a server in a terminal. ',
          'The page exchanges it for a cookie of 30 minutes that scripts cannot read, and does not keep it.'
        )
      )
    )
  );
  token.focus({preventScroll: true});
}

/** A button of a change; disabled, with the reason below it, if the server does not allow the change. */
export function changeButton(action, css, text, onclick) {
  if (session.can.includes(action)) return button(css, text, onclick);
  return h(
    'div.locked',
    h('button', {type: 'button', disabled: true, 'aria-describedby': 'why'}, icon('lock'), text),
    h('small', {id: 'why'}, `Read-only: the server runs with --console ${session.mode}; restart with --console write.`)
  );
}
