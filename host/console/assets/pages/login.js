// Login with a key, or with a link of `gristmill console`. The key goes to the host once and is not kept
// in the page; the address that one wanted is still there afterwards.
import { html, useEffect, useLayoutEffect, useRef, useState } from '../lib/html.js';
import { login, notice, ended, session } from '../lib/session.js';
import { route, replace } from '../lib/router.js';
import { Button, Command, Trouble } from '../ui/parts.js';
import { Icon } from '../ui/icons.js';
import { say } from '../ui/toast.js';

export function Login() {
  const [key, setKey] = useState('');
  const [error, setError] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const link = route.value.path[0] === 'enter' ? route.value.path[1] : undefined;
  const enter = async (proof) => {
    setBusy(true);
    setError(null);
    try { await login(proof); } catch (e) {
      const why = e.status === 401 ? new Error('This key or link is not valid here: it is wrong, revoked, used up or expired.') : e;
      setError(why);
      // The session before goes on, and this page is not shown any more.
      if (session.peek() && !ended.peek()) say(why.message, 'bad');
    } finally { setBusy(false); }
  };
  useEffect(() => {
    if (!link) return;
    // The link is good for one use: it leaves the address at once.
    replace('#/');
    enter({ link });
  }, [link]);
  useEffect(() => {
    const title = document.title;
    document.title = 'Log in · Gristmill';
    return () => { document.title = title; };
  }, []);
  return html`<${ended.value ? 'div' : 'main'} class="login" id=${ended.value ? undefined : 'main'}><form onSubmit=${(e) => { e.preventDefault(); if (key.trim()) enter({ key: key.trim() }); }}>
    <div class="brand"><${Icon} name="mark"/>Gristmill</div>
    <h1 class="off-screen">Log in</h1>
    ${notice.value && !error && html`<p class="note" role="status">${notice.value}</p>`}
    <${Trouble} error=${error}/>
    <label class="field"><span>API key</span><input type="password" name="key" autocomplete="current-password" autofocus spellcheck=${false} placeholder="gm_…" value=${key} onInput=${(e) => setKey(e.target.value)}/><small>The key's scopes decide what you see and may do. The browser does not keep it.</small></label>
    <${Button} type="submit" kind="primary" disabled=${busy || !key.trim()}>${busy ? 'Logging in …' : 'Log in'}</${Button}>
    <hr/><p class="faint">On the host's own machine this command prints a link that logs you in, without a key to copy:</p><${Command} text="gristmill console"/></form></${ended.value ? 'div' : 'main'}>`;
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
