// Dialogs on the browser's own <dialog>: it keeps the focus inside, closes with Escape, and gives the
// focus back. `ask` is a question before something that cannot be taken back.
import { html, render, useEffect, useRef } from '../lib/html.js';
import { Icon } from './icons.js';
import { Button } from './parts.js';

/** @param {{ title: string, onClose: () => void, children?: any, wide?: boolean }} props */
export function Dialog({ title, onClose, children, wide }) {
  const ref = useRef(/** @type {HTMLDialogElement | null} */ (null));
  // Where the pointer went down: a selection that ends outside must not close the dialog.
  const down = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    if (!ref.current?.open) ref.current?.showModal();
    const box = ref.current;
    // A dialog that is only removed does not give the focus back. By now the user may have moved it.
    return () => { const now = document.activeElement; if (now === document.body || box?.contains(now)) before?.focus(); };
  }, []);
  return html`<dialog ref=${ref} class=${wide ? 'wide' : ''} aria-label=${title} onClose=${onClose} onPointerDown=${(e) => { down.current = e.target; }} onClick=${(e) => { if (e.target === ref.current && down.current === e.target) ref.current?.close(); }}>
    <div class="dialog"><header><h2>${title}</h2><button type="button" class="icon-button" aria-label="Close" onClick=${() => ref.current?.close()}><${Icon} name="close"/></button></header>${children}</div></dialog>`;
}

/**
 * Asks before doing something. The answer is true for yes.
 * @param {string} title @param {any} text @param {string} yes what the button says @returns {Promise<boolean>}
 */
export function ask(title, text, yes) {
  return new Promise((done) => {
    const host = document.createElement('div');
    document.body.append(host);
    const end = (answer) => { render(null, host); host.remove(); done(answer); };
    render(html`<${Dialog} title=${title} onClose=${() => end(false)}><div>${text}</div><footer><${Button} onClick=${() => end(false)}>Cancel</${Button}><${Button} kind="danger" onClick=${() => end(true)}>${yes}</${Button}></footer></${Dialog}>`, host);
  });
}
