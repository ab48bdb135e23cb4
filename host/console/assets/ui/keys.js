// The keyboard: `g` and a letter opens a page, `/` goes to the search field, `j` and `k` move through the
// rows of a list, `p` pauses, `?` shows all of this. Keys typed into a field are left alone.
import { html, useEffect } from '../lib/html.js';
import { go, link } from '../lib/router.js';
import { paused, shortcuts } from '../lib/settings.js';
import { Dialog } from './dialog.js';
import { Choice } from './parts.js';

/** Whether an event of the keyboard belongs to a field. @param {any} e */
export const typing = (e) => e.target.closest?.('input:not([type="checkbox"]), textarea, select, [contenteditable]');

/** @param {[string, string, string, string][]} pages @param {() => void} help */
export function useKeys(pages, help) {
  useEffect(() => {
    let g = 0;
    const move = (step) => {
      const rows = [...document.querySelectorAll('main tbody tr')].map((r) => /** @type {HTMLElement | null} */ (r.querySelector('a, [data-open]'))).filter((a) => a !== null);
      if (!rows.length) return;
      const at = rows.findIndex((a) => a.closest('tr')?.contains(document.activeElement));
      rows[Math.min(rows.length - 1, Math.max(0, at + step))].focus();
    };
    const f = (e) => {
      if (shortcuts.peek() === 'off' || e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return;
      // Without this the browser would empty a search field whose filter stays.
      if (typing(e)) { if (e.key === 'Escape') { e.preventDefault(); e.target.blur(); } return; }
      if (Date.now() - g < 1200) {
        g = 0;
        const page = pages.find((p) => p[2] === e.key);
        if (page) { e.preventDefault(); go(link(page[0] ? [page[0]] : [])); return; }
      }
      if (e.key === 'g') g = Date.now();
      else if (e.key === '/') { const s = /** @type {HTMLElement | null} */ (document.querySelector('main [data-search]')); if (s) { e.preventDefault(); s.focus(); } }
      else if (e.key === '?') { e.preventDefault(); help(); }
      else if (e.key === 'p') paused.value = !paused.peek();
      else if (e.key === 'j' || e.key === 'k') { e.preventDefault(); move(e.key === 'j' ? 1 : -1); }
    };
    addEventListener('keydown', f);
    return () => removeEventListener('keydown', f);
  }, [pages.length]);
}

export const Help = ({ pages, onClose }) => html`<${Dialog} title="Keys" onClose=${onClose}><div class="filters"><span>Keys of one letter</span><${Choice} label="Keys of one letter" value=${shortcuts.value} onChange=${(v) => { shortcuts.value = v; }} options=${[['on', 'On'], ['off', 'Off']]}/></div><dl class="keys">
  ${[['/', 'search'], ['j  k', 'next and previous row'], ['Enter', 'open the row'], ['Esc', 'leave a field, clear a selection'], ['p', 'pause or go on with live updates'], ['Ctrl Enter', 'send, in the editor'], ['?', 'this help']].map(([k, t]) => html`<dt key=${k}><kbd>${k}</kbd></dt><dd>${t}</dd>`)}
  ${pages.map((p) => html`<dt key=${p[2]}><kbd>g</kbd> <kbd>${p[2]}</kbd></dt><dd>${p[1]}</dd>`)}</dl></${Dialog}>`;
