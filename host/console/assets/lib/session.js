// The session: who is logged in, and what the key may do. Scopes only hide what would be refused; the
// host decides.
import { signal, batch } from './html.js';
import { json, onSessionEnd, ApiError, hostUrl } from './api.js';

/** @typedef {{ key: { id: string, name: string, owner: string, scopes: string[], endpoints?: string[] }, version: string, label?: string, expiresAt?: string }} Session */

/** undefined before the first answer, null without a session. @type {{ value: Session | null | undefined, peek(): any }} */
export const session = signal(undefined);
/** The session has ended while a page is open: the page stays, so that what was typed into it is there after a login. */
export const ended = signal(false);
/** Why the login page is shown, if there is more to say than that. */
export const notice = signal('');

const over = () => {
  if (!session.peek()) return;
  notice.value = 'The session has ended: its key was revoked, it expired, or the host restarted. Log in again to go on here.';
  ended.value = true;
};
onSessionEnd(over);

/** @param {Session} document */
const begin = (document) => batch(() => { notice.value = ''; session.value = document; ended.value = false; });

export async function open() {
  try { begin(await json('console/session', { quiet: true })); } catch (e) {
    if (!(e instanceof ApiError)) throw e;
    if (session.peek()) return over();
    if (e.status !== 401) notice.value = e.message;
    session.value = null;
  }
}
// All tabs have one cookie: a login or logout in another tab is also one here.
const tabs = new BroadcastChannel(`gristmill ${hostUrl}`);
tabs.onmessage = () => { open().catch(() => {}); };

/** @param {{ key: string } | { link: string }} proof */
export async function login(proof) {
  begin(await json('console/session', { method: 'POST', body: proof, quiet: true }));
  tabs.postMessage('');
}
export async function logout() {
  await json('console/session', { method: 'DELETE', quiet: true });
  notice.value = 'You have logged out.';
  session.value = null;
  tabs.postMessage('');
}

const implied = { admin: ['admin', 'manage', 'submit', 'read', 'metrics'], manage: ['manage', 'metrics'], submit: ['submit', 'read'] };
/** Whether the key has a scope; the state of the host is for keys of the operator. @param {'admin' | 'manage' | 'submit' | 'read' | 'metrics'} scope */
export const can = (scope) => (scope !== 'metrics' || session.value?.key.owner === 'default') && (session.value?.key.scopes ?? []).some((s) => s === scope || implied[s]?.includes(scope));
/** The same text for all keys that see and may do the same. */
export const who = () => JSON.stringify(session.value && [session.value.key.owner, session.value.key.scopes, session.value.key.endpoints]);
/** Whether the key is valid for some endpoints only: it reaches nothing below /v1. */
export const bound = () => !!session.value?.key.endpoints?.length;
