// Short messages at the edge of the window, read out by screen readers; bad news stays until closed.
import { html, signal } from '../lib/html.js';
import { visible } from '../lib/text.js';
import { Icon } from './icons.js';

const messages = signal(/** @type {{ id: number, text: string, kind: string }[]} */ ([]));
let count = 0;
const drop = (id) => { messages.value = messages.peek().filter((m) => m.id !== id); };

/** @param {string} text @param {'good' | 'bad'} [kind] */
export function say(text, kind = 'good') {
  const id = ++count;
  messages.value = [...messages.peek().slice(-3), { id, text, kind }];
  if (kind === 'good') setTimeout(() => drop(id), 5000);
}

export const Toasts = () => html`<div class="toasts" role="status" aria-live="polite">${messages.value.map((m) => html`<div key=${m.id} class=${`toast ${m.kind}`}><${Icon} name=${m.kind === 'bad' ? 'FAILED' : 'COMPLETED'}/><span>${visible(m.text)}</span><button type="button" class="icon-button" aria-label="Close the message" onClick=${() => drop(m.id)}><${Icon} name="close"/></button></div>`)}</div>`;
