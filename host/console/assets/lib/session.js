// The session: who is logged in, and what the key may do. Scopes only hide what would be refused; the
// host decides.
import { signal } from './html.js';
import { json, onSessionEnd, ApiError } from './api.js';

/** @typedef {{ key: { id: string, name: string, owner: string, scopes: string[], endpoints?: string[] }, version: string, label?: string, expiresAt?: string }} Session */

/** undefined before the first answer, null without a session. @type {{ value: Session | null | undefined, peek(): any }} */
export const session = signal(undefined);
/** Why the login page is shown, if there is more to say than that. */
export const notice = signal('');

onSessionEnd(() => {
  if (!session.peek()) return;
  notice.value = 'The session has ended: its key was revoked, it expired, or the host restarted. Log in again to go on here.';
  session.value = null;
});

export async function open() {
  try { session.value = await json('console/session', { quiet: true }); } catch (e) {
    if (!(e instanceof ApiError)) throw e;
    if (e.status !== 401) notice.value = e.message;
    session.value = null;
  }
}
/** @param {{ key: string } | { link: string }} proof */
export async function login(proof) {
  const document = await json('console/session', { method: 'POST', body: proof, quiet: true });
  notice.value = '';
  session.value = document;
}
export async function logout() {
  await json('console/session', { method: 'DELETE', quiet: true }).catch(() => {});
  notice.value = 'You have logged out.';
  session.value = null;
}

const implied = { admin: ['admin', 'manage', 'submit', 'read', 'metrics'], manage: ['manage', 'metrics'], submit: ['submit', 'read'] };
/** Whether the key has a scope. @param {'admin' | 'manage' | 'submit' | 'read' | 'metrics'} scope */
export const can = (scope) => (session.value?.key.scopes ?? []).some((s) => s === scope || implied[s]?.includes(scope));
/** Whether the key is valid for some endpoints only: it reaches nothing below /v1. */
export const bound = () => !!session.value?.key.endpoints?.length;
