// The session: the sign-in form, the token of the address, and which calls are allowed.

import * as api from './api.js';
import { $, card, field, form, h, head, icon, input, put } from './dom.js';

/** @type {{ signedIn: boolean, expiresAt?: number | null, mode?: string, can: string[], keys?: string }} */
export let session = { signedIn: false, can: [] };

let expiry;
let onExpired = () => {};
export const whenExpired = (listener) => { onExpired = listener; };

function accept(answer) {
  session = answer;
  clearTimeout(expiry);
  if (session.signedIn && session.expiresAt) {
    const left = session.expiresAt * 1000 - Date.now();
    // The clocks of server and browser may differ: the server has the last word.
    expiry = setTimeout(() => refresh().then(() => { if (!session.signedIn) onExpired(); }, () => {}), Math.max(left, 5000));
  }
}

export const can = (action) => session.can.includes(action);
export const refresh = async () => accept(await api.session());
export const signIn = async (token) => accept(await api.signIn(token));
export const signOut = async () => accept(await api.signOut());
export const forget = () => accept({ ...session, signedIn: false, can: [] });

/** Takes the token out of an address `#token=...`, and out of the history. */
export function tokenOfAddress() {
  const [, token] = location.hash.match(/^#token=(.+)$/) ?? [];
  if (!token) return null;
  history.replaceState(null, '', `${location.pathname}${location.search}#/overview`);
  try { return decodeURIComponent(token); } catch { return token; }
}

/** Shows the sign-in form; calls `done` after a success. */
export function signInScreen(why, done) {
  const token = input('token', '', { type: 'password', required: true, id: 'token', autocomplete: 'current-password' });
  const error = h('p.err', { role: 'alert', id: 'token-error' }, why);
  const button = h('button.main', 'Sign in');
  token.setAttribute('aria-describedby', 'token-error token-help');
  const submit = async () => {
    button.disabled = true;
    error.textContent = '';
    token.ariaInvalid = null;
    try {
      await signIn(token.value);
      done();
    } catch (failure) {
      button.disabled = false;
      token.ariaInvalid = 'true';
      error.textContent = failure.status === 401 ? 'This is not the admin token.' : failure.message;
      token.select();
    }
  };
  put($('main'), h('div.signin', head('Sign in', 'with the admin token of the server'),
    form('stack', submit, field('Admin token', token), error, h('div', button)),
    card('Where is the token?', '', h('p.soft', { id: 'token-help' },
      'In the file of --admin-token-file, or on the start screen of a server that was started in a terminal. ',
      'The page exchanges it for a cookie of 30 minutes that scripts cannot read, and does not keep it.'))));
  token.focus({ preventScroll: true });
}

/** A button of a change; disabled, with the reason below it, if the server does not allow the change. */
export function changeButton(action, css, text, onclick) {
  const isAllowed = can(action);
  const id = `why-${action}`;
  const button = h(`button.${css}`, { type: 'button', onclick, disabled: !isAllowed }, isAllowed ? '' : icon('lock'), text);
  if (isAllowed) return button;
  button.setAttribute('aria-describedby', id);
  return h('div.locked', button, h('small', { id }, `Read-only: the server runs with --console ${session.mode}.`));
}
