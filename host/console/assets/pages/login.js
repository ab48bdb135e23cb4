// Login with a key, or with a link of `gristmill console`. The key goes to the host once and is not kept
// in the page; the address that one wanted is still there afterwards. A page of any origin may open the console
// with a link of its own key, so nothing happens before the user has seen whose link it is for a second, and clicked.
import { effect, html, signal, useEffect, useLayoutEffect, useRef, useState } from '../lib/html.js';
import { login, preview, notice, ended, session } from '../lib/session.js';
import { route, replace } from '../lib/router.js';
import { Button, Command, Facts, Trouble } from '../ui/parts.js';
import { Icon } from '../ui/icons.js';
import { say } from '../ui/toast.js';
import { visible } from '../lib/text.js';

/** The link with which the page was opened, until the user has decided. @type {{ value: string, peek(): string }} */
export const link = signal('');
effect(() => {
  const [page, text] = route.value.path;
  if (page !== 'enter' || !text) return;
  // The link is good for one use: it leaves the address at once.
  replace('#/');
  link.value = text;
});

/** The link whose question has been in sight for this time, without a click. A click that comes sooner was meant for
 * what was there before: a second click of a double-click comes within half a second. */
const READY_AFTER_MS = 1000;
const ready = signal('');

/** A key as a person calls it. */
const called = (key) => visible(key.name) || key.id;

export function Login() {
  const [key, setKey] = useState('');
  const [error, setError] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const [whose, setWhose] = useState(/** @type {import('../lib/session.js').Session['key'] | undefined} */ (undefined));
  const failed = (e) => {
    setError(e);
    link.value = '';
    // The session before goes on, and this page is not shown any more.
    if (session.peek() && !ended.peek()) say(e.message, 'bad');
  };
  const enter = async (proof) => {
    setBusy(true);
    setError(null);
    try { await login(proof); link.value = ''; } catch (e) { failed(e); } finally { setBusy(false); }
  };
  useEffect(() => {
    setWhose(undefined);
    if (!link.value) return;
    // A host without keys has one session, for all.
    if (session.peek() && !session.peek().expiresAt) { link.value = ''; return; }
    setError(null);
    let alive = true;
    preview(link.value).then((key) => alive && setWhose(key), (e) => alive && failed(e));
    return () => { alive = false; };
  }, [link.value]);
  useEffect(() => {
    const of = whose && link.value;
    let timer;
    const wait = () => {
      clearTimeout(timer);
      ready.value = '';
      if (of && !document.hidden) timer = setTimeout(() => { ready.value = of; }, READY_AFTER_MS);
    };
    const early = () => { if (!ready.peek()) wait(); };
    wait();
    document.addEventListener('visibilitychange', wait);
    // A window that lay below another one was never hidden.
    addEventListener('focus', wait);
    addEventListener('pointerdown', early);
    return () => { clearTimeout(timer); document.removeEventListener('visibilitychange', wait); removeEventListener('focus', wait); removeEventListener('pointerdown', early); };
  }, [whose]);
  useEffect(() => {
    const title = document.title;
    document.title = 'Log in · Gristmill';
    return () => { document.title = title; };
  }, []);
  const frame = (form) => html`<${ended.value ? 'div' : 'main'} class="login" id=${ended.value ? undefined : 'main'}>${form}</${ended.value ? 'div' : 'main'}>`;
  const now = !ended.value && session.value?.key;
  if (link.value) return frame(html`<form aria-label="Log in with a link" onSubmit=${(e) => { e.preventDefault(); if (ready.peek() === link.peek()) enter({ link: link.value }); }}>
    <div class="brand"><${Icon} name="mark"/>Gristmill</div>
    <h1>Log in with this link?</h1>
    ${whose && html`<${Facts} pairs=${[['Key', called(whose)], ['Owner', whose.owner], ['Scopes', whose.scopes.join(', ')], ['Endpoints', whose.endpoints?.join(', ')]]}/>
    ${now && html`<p class="note">You are logged in as <b>${called(now)}</b> of the owner <b>${now.owner}</b>. This session ends then.</p>`}
    <p>Go on only if you made this link: what you enter afterwards belongs to its owner.</p>
    <${Button} type="submit" kind="primary" disabled=${busy || ready.value !== link.value}>Log in as ${called(whose)}</${Button}>`}
    <${Button} onClick=${() => { link.value = ''; }}>${now ? `Stay logged in as ${called(now)}` : 'Not now'}</${Button}></form>`);
  return frame(html`<form onSubmit=${(e) => { e.preventDefault(); if (key.trim()) enter({ key: key.trim() }); }}>
    <div class="brand"><${Icon} name="mark"/>Gristmill</div>
    <h1 class="off-screen">Log in</h1>
    ${notice.value && !error && html`<p class="note" role="status">${notice.value}</p>`}
    <${Trouble} error=${error}/>
    <label class="field"><span>API key</span><input type="password" name="key" autocomplete="current-password" autofocus spellcheck=${false} placeholder="gm_…" value=${key} onInput=${(e) => setKey(e.target.value)}/><small>The key's scopes decide what you see and may do. The browser does not keep it.</small></label>
    <${Button} type="submit" kind="primary" disabled=${busy || !key.trim()}>${busy ? 'Logging in …' : 'Log in'}</${Button}>
    <hr/><p class="faint">On the host's own machine this command prints a link that logs you in, without a key to copy:</p><${Command} text="gristmill console"/></form>`);
}

/** The login above the page whose session has ended. */
export function Again() {
  const ref = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useLayoutEffect(() => {
    const box = ref.current;
    box?.showModal();
    return () => box?.close();
  }, []);
  // Escape cannot close it: there is nothing to do without a session.
  return html`<dialog class="again" ref=${ref} aria-label="Log in" onCancel=${(e) => e.preventDefault()} onClose=${() => { if (ended.peek()) ref.current?.showModal(); }}><${Login}/></dialog>`;
}
