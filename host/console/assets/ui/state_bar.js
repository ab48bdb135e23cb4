// How many of something are in which state, as one bar with its numbers in words beside it.
import { html } from '../lib/html.js';
import { num } from '../lib/format.js';

/**
 * `of`: what all parts together could be; the rest of the bar is free.
 * @param {{ label: string, parts: [string, number, string][], of?: number }} props a part is its name, its number and its colour
 */
export function StateBar({ label, parts, of = 0 }) {
  const sum = parts.reduce((n, p) => n + p[1], 0);
  const free = Math.max(0, of - sum);
  return html`<div class="state-bar"><div class="stretch" role="img" aria-label=${`${label}: ${parts.map(([n, v]) => `${num(v)} ${n}`).join(', ')}${of ? ` of ${num(of)}` : ''}`}>${parts.filter((p) => p[1] > 0).map(([n, v, c]) => html`<span key=${n} class=${c} style=${{ flexGrow: v }}></span>`)}${(free > 0 || !sum) && html`<span class="free" style=${{ flexGrow: free || 1 }}></span>`}</div>
    <div class="legend">${parts.map(([n, v, c]) => html`<span key=${n} class=${v ? '' : 'none'}><i class=${c}></i>${n} <b>${num(v)}</b></span>`)}${of > 0 && html`<span><i class="free"></i>free <b>${num(free)}</b></span>`}</div></div>`;
}
