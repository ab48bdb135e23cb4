// Log lines in a window: only the rows in sight exist, so 5,000 kept lines cost as much as fifty. Rows
// have one height; a long line opens below the list as a whole. Lines are text nodes only.
import { html, useEffect, useLayoutEffect, useRef, useState } from '../lib/html.js';
import { visible } from '../lib/text.js';
import { clockMs, time, shortId } from '../lib/format.js';
import { link } from '../lib/router.js';
import { Copy } from './parts.js';

/** @typedef {{ number: number, at: string, jobId: string, level: string, line: string }} LogLine */
const ROW = 24;

/**
 * `stick`: the newest line stays in sight; `fit`: the box is as high as its lines, up to the bound of its style.
 * @param {{ lines: LogLine[], endpoint: string, stick: boolean, job?: boolean, fit?: boolean, empty: any }} props
 */
export function LogView({ lines, endpoint, stick, job = true, fit, empty }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(480);
  const [open, setOpen] = useState(/** @type {LogLine | null} */ (null));
  const atEnd = useRef(true);
  useEffect(() => {
    const el = /** @type {HTMLElement} */ (box.current);
    const o = new ResizeObserver(() => setHeight(el.clientHeight));
    o.observe(el);
    return () => o.disconnect();
  }, []);
  useLayoutEffect(() => { if (stick && atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight; }, [lines, stick, height]);
  const scroll = (e) => {
    const el = e.currentTarget;
    atEnd.current = el.scrollHeight - el.scrollTop - el.clientHeight < ROW;
    setTop(el.scrollTop);
  };
  const first = Math.max(0, Math.floor(top / ROW) - 8);
  const rows = lines.slice(first, first + Math.ceil(height / ROW) + 16);
  return html`<div class="log"><div class="log-box" style=${fit ? { height: `${Math.max(3, lines.length) * ROW + 12}px` } : undefined} ref=${box} onScroll=${scroll} tabindex="0" role="log" aria-live="off" aria-label="Log lines">
    ${lines.length === 0 ? html`<div class="log-empty">${empty}</div>` : html`<div class="log-all" style=${{ height: `${lines.length * ROW}px` }}><div class="log-rows" style=${{ transform: `translateY(${first * ROW}px)` }}>
    ${rows.map((l) => html`<div key=${l.number} class=${`log-line v-${l.level}`} onClick=${() => setOpen(l)}><time title=${time(l.at)}>${clockMs(l.at)}</time><span class="level">${l.level}</span>${job && html`<a href=${link(['jobs', endpoint, l.jobId])} title=${l.jobId} onClick=${(e) => e.stopPropagation()}>${l.jobId.slice(9, 18)}</a>`}<span class="line">${visible(l.line.length > 600 ? `${l.line.slice(0, 600)}…` : l.line)}</span></div>`)}</div></div>`}</div>
    ${open && html`<div class="log-open"><header><${TimeOf} line=${open}/><a href=${link(['jobs', endpoint, open.jobId])}>${shortId(open.jobId)}</a><a href=${link(['logs'], { endpoint, job: open.jobId })}>Lines of this job</a><${Copy} text=${open.line}/><button type="button" class="button quiet small" onClick=${() => setOpen(null)}>Close</button></header><pre tabindex="0">${visible(open.line)}</pre></div>`}</div>`;
}
const TimeOf = ({ line }) => html`<span class=${`level v-${line.level}`}>${line.level}</span><span>${time(line.at)}</span>`;
