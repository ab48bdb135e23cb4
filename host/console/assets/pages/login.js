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

/** The link whose question, all of it, has been in sight for this time, without a press of the mouse. A press that
 * comes sooner was meant for what was there before: a second click of a double-click comes within half a second. A
 * mouse that comes into the page may have been on a window above it until then. */
const READY_AFTER_MS = 1000;
const ready = signal('');

/** A key as a person calls it. */
const called = (key) => visible(key.name) || key.id;

export function Login() {
  const [key, setKey] = useState('');
  const [error, setError] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const [whose, setWhose] = useState(/** @type {import('../lib/session.js').Session['key'] | undefined} */ (undefined));
  const question = useRef(/** @type {HTMLFormElement | null} */ (null));
  const [whole, setWhole] = useState(true);
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
    if (!of || !question.current) return;
    let timer, isWhole = false, isPressed = false;
    const wait = () => {
      clearTimeout(timer);
      ready.value = '';
      if (isWhole && !isPressed && !document.hidden) timer = setTimeout(() => { ready.value = of; }, READY_AFTER_MS);
    };
    const end = new AbortController();
    /** @param {EventTarget} at @param {string} type @param {(e: any) => void} then */
    const on = (at, type, then) => at.addEventListener(type, then, { signal: end.signal });
    // A box of a fraction of a pixel is never in sight to the last one.
    const observer = new IntersectionObserver((seen) => { isWhole = seen[seen.length - 1].intersectionRatio > 0.99; setWhole(isWhole); wait(); }, { threshold: [0, 0.99, 1] });
    observer.observe(question.current);
    on(document, 'visibilitychange', wait);
    // A window that lay below another one was never hidden.
    on(window, 'focus', wait);
    on(document.documentElement, 'pointerenter', (e) => { if (e.pointerType === 'mouse') wait(); });
    on(window, 'pointerdown', () => { if (!ready.peek()) { isPressed = true; wait(); } });
    for (const type of ['pointerup', 'pointercancel']) on(window, type, () => { if (isPressed) { isPressed = false; wait(); } });
    return () => { clearTimeout(timer); observer.disconnect(); end.abort(); ready.value = ''; };
  }, [whose]);
  useEffect(() => {
    const title = document.title;
    document.title = 'Log in · Gristmill';
    return () => { document.title = title; };
  }, []);
  const frame = (form) => html`<${ended.value ? 'div' : 'main'} class="login" id=${ended.value ? undefined : 'main'}>${form}</${ended.value ? 'div' : 'main'}>`;
  const now = !ended.value && session.value?.key;
  if (link.value) return frame(html`<form ref=${question} aria-label="Log in with a link" onSubmit=${(e) => { e.preventDefault(); if (ready.peek() === link.peek()) enter({ link: link.value }); }}>
    <div class="brand"><${Icon} name="mark"/>Gristmill</div>
    <h1>Log in with this link?</h1>
    ${whose && html`<${Facts} pairs=${[['Key', called(whose)], ['Owner', whose.owner], ['Scopes', whose.scopes.join(', ')], ['Endpoints', whose.endpoints?.join(', ')]]}/>
    ${now && html`<p class="note">You are logged in as <b>${called(now)}</b> of the owner <b>${now.owner}</b>. This session ends then.</p>`}
    <p>Go on only if you made this link: what you enter afterwards belongs to its owner.</p>
    ${!whole && html`<p class="note" role="status">Make the window larger: the button works when all of this question is in sight.</p>`}
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
