// The session: who is logged in, and what the key may do. Scopes only hide what would be refused; the
// host decides.
import { signal, batch } from './html.js';
import { json, on401, setMark, ApiError, hostUrl } from './api.js';

/** @typedef {{ key: { id: string, name: string, owner: string, scopes: string[], endpoints?: string[] }, version: string, label?: string, mark?: string, expiresAt?: string }} Session */

/** undefined before the first answer, null without a session. @type {{ value: Session | null | undefined, peek(): any }} */
export const session = signal(undefined);
/** The session has ended while a page is open: the page stays, so that what was typed into it is there after a login. */
export const ended = signal(false);
/** Why the login page is shown, if there is more to say than that. */
export const notice = signal('');

// Services on other ports of the host's name may set its cookies, but they do not reach what this page keeps. So
// the session counts only with the mark that the login gave to this page; all tabs have it here.
const KEPT = `gristmill.session ${hostUrl}`;
let own = '';
const kept = () => { try { return localStorage.getItem(KEPT) ?? own; } catch { return own; } };
const keep = (mark) => {
  own = mark;
  try { if (mark) localStorage.setItem(KEPT, mark); else localStorage.removeItem(KEPT); } catch { /* private windows may refuse */ }
};

/** @param {Session} document */
const begin = (document) => batch(() => { notice.value = ''; session.value = document; ended.value = false; });

export async function open() {
  const mark = kept();
  setMark(mark);
  try { begin(await json('console/session', { quiet: true })); } catch (e) {
    if (!(e instanceof ApiError)) throw e;
    // A host that is away ends no session.
    if (session.peek() && e.status !== 401) return;
    // A user who comes without a session needs no reason.
    if (e.status !== 401 || mark || session.peek()) notice.value = e.message[0].toUpperCase() + e.message.slice(1);
    if (session.peek()) ended.value = true; else session.value = null;
  }
}
on401(async () => { if (session.peek() && !ended.peek()) await open().catch(() => {}); });
// All tabs have one cookie: a login or logout in another tab is also one here. Each changes the mark.
addEventListener('storage', (e) => { if (e.key === KEPT) open().catch(() => {}); });

/** @param {{ key: string } | { link: string }} proof */
export async function login(proof) {
  const document = await json('console/session', { method: 'POST', body: proof, quiet: true });
  keep(document.mark ?? '');
  setMark(document.mark);
  begin(document);
}
/** Whom a link would log in. The link stays valid. @param {string} link @returns {Promise<Session['key']>} */
export const preview = async (link) => (await json('console/links/preview', { method: 'POST', body: { link }, quiet: true })).key;
export async function logout() {
  await json('console/session', { method: 'DELETE' });
  keep('');
  setMark('');
  notice.value = 'You have logged out.';
  session.value = null;
}

const implied = { admin: ['admin', 'manage', 'submit', 'read', 'metrics'], manage: ['manage', 'metrics'], submit: ['submit', 'read'] };
/** Whether the key has a scope; the state of the host is for keys of the operator. @param {'admin' | 'manage' | 'submit' | 'read' | 'metrics'} scope */
export const can = (scope) => (scope !== 'metrics' || session.value?.key.owner === 'default') && (session.value?.key.scopes ?? []).some((s) => s === scope || implied[s]?.includes(scope));
/** The same text for all keys that see and may do the same. */
export const who = () => JSON.stringify(session.value && [session.value.key.owner, session.value.key.scopes, session.value.key.endpoints]);
/** Whether the key is valid for some endpoints only: it reaches nothing below /v1. */
export const bound = () => !!session.value?.key.endpoints?.length;
