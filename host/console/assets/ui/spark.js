// A sparkline: how much came in during the last minutes, with failures on top of it in another colour.
// Its meaning is also in words for screen readers.
import { html } from '../lib/html.js';
import { num } from '../lib/format.js';

const W = 120, H = 24;
/** @param {{ all: number[], bad?: number[], label: string }} props */
export function Spark({ all, bad = [], label }) {
  const n = all.length;
  if (!n) return html`<span class="spark"></span>`;
  // Retries fail without a submission, so there may be more failures than jobs that came in.
  const top = Math.max(4, ...all, ...bad);
  const x = (i) => (i * W / Math.max(1, n - 1)).toFixed(1);
  const y = (v) => (H - 1 - v / top * (H - 3)).toFixed(1);
  const line = all.map((v, i) => `${i ? 'L' : 'M'}${x(i)} ${y(v)}`).join('');
  const sum = (l) => l.reduce((a, b) => a + (b ?? 0), 0);
  return html`<svg class="spark" viewBox="0 0 ${W} ${H}" width=${W} height=${H} role="img" aria-label=${`${label}: ${num(sum(all))} submitted, ${num(sum(bad))} failed`} preserveAspectRatio="none">
    <path class="area" d=${`${line}L${W} ${H}L0 ${H}Z`}/><path class="line" d=${line}/>
    ${bad.map((v, i) => v > 0 && html`<path key=${i} class="bad" d=${`M${x(i)} ${H}V${y(v)}`}/>`)}</svg>`;
}
