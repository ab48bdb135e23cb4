// A JSON value as it was written: folded by bracket, numbers and keys untouched, at most 400 lines drawn
// until more are asked for. Other texts are shown as they are.
import { html, useMemo, useState } from '../lib/html.js';
import { lines, pretty } from '../lib/json.js';
import { visible } from '../lib/text.js';
import { bytes, num } from '../lib/format.js';
import { Copy, Choice } from './parts.js';

const STEP = 400, LONG = 2000;

/** @param {{ text: string }} props a string of JSON may be long: its beginning is shown first */
function Piece({ text }) {
  const [all, setAll] = useState(false);
  const t = all || text.length <= LONG ? text : text.slice(0, LONG);
  return html`${visible(t)}${t !== text && html`<button type="button" class="more" onClick=${() => setAll(true)}>… ${num(text.length - LONG)} more characters</button>`}`;
}

/** @param {{ text: string, label: string }} props */
export function Json({ text, label }) {
  const [folded, setFolded] = useState(/** @type {Set<number>} */ (new Set()));
  const [shown, setShown] = useState(STEP);
  const [raw, setRaw] = useState('formatted');
  const all = useMemo(() => { try { return lines(text); } catch { return null; } }, [text]);
  const view = [];
  if (all && raw === 'formatted') {
    for (let i = 0; i < all.length && view.length < shown; i++) {
      view.push(i);
      const end = all[i].end;
      if (folded.has(i) && end !== undefined) i = end;
    }
  }
  const flip = (i) => setFolded((f) => { const n = new Set(f); if (!n.delete(i)) n.add(i); return n; });
  const rest = all && raw === 'formatted' && view.length === shown && view[view.length - 1] < all.length - 1;
  return html`<div class="json"><div class="json-bar"><span class="faint">${bytes(new Blob([text]).size)}</span>${all && all.length > 1 && html`<${Choice} label=${`Form of ${label}`} value=${raw} onChange=${setRaw} options=${[['formatted', 'Formatted'], ['raw', 'Raw']]}/>`}<${Copy} text=${() => raw === 'raw' || !all ? text : pretty(text)}/></div>
    <div class="code" tabindex="0" role="region" aria-label=${label}>${!all || raw === 'raw' ? html`<pre><${Piece} text=${text}/></pre>` : view.map((i) => {
      const l = all[i];
      const shut = folded.has(i);
      return html`<div key=${i} class="l" style=${{ '--indent': l.indent }}>${l.end !== undefined && html`<button type="button" class="fold" aria-expanded=${!shut} aria-label=${shut ? 'Unfold' : 'Fold'} onClick=${() => flip(i)}></button>`}${l.tokens.map((t, n) => html`<span key=${n} class=${`t-${t.kind}`}>${t.text.length > LONG ? html`<${Piece} text=${t.text}/>` : visible(t.text)}</span>`)}${shut && html`<button type="button" class="more" onClick=${() => flip(i)}>${num(l.count)} ${l.count === 1 ? 'item' : 'items'}</button>${all[/** @type {number} */ (l.end)].tokens.map((t) => t.text).join('')}`}</div>`;
    })}${rest && html`<button type="button" class="more" onClick=${() => setShown(shown + STEP * 5)}>Show more lines (${num(all.length)} in all)</button>`}</div></div>`;
}

/** Chunks of a stream. Chunks that are all strings read as one text; others are a list of values. @param {{ of: string[], box?: any }} props */
export const ChunkList = ({ of, box }) => html`<div class="chunks" ref=${box} tabindex="0" role="region" aria-label="Chunks">${of.every((c) => c.startsWith('"')) ? visible(of.map((c) => JSON.parse(c)).join('')) : of.map((c, i) => html`<span key=${i} class="chunk">${visible(c.length > 4000 ? `${c.slice(0, 4000)}…` : c)}</span>`)}</div>`;
