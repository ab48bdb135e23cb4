// Log lines in a window: only the rows in sight exist, so 50,000 kept lines cost as much as fifty. Without
// wrapping each row has one height, and a long line opens below the list as a whole. With wrapping the
// height of a row follows from the number of its characters, which all have one width. Lines are text
// nodes only.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../lib/html.js';
import { visible } from '../lib/text.js';
import { clockMs, time, shortId } from '../lib/format.js';
import { link } from '../lib/router.js';
import { Copy } from './parts.js';

/** @typedef {{ number: number, at: string, jobId: string, level: string, line: string, endpoint: string, text?: string }} LogLine */
const ROW = 24, LONG = 600;

/** The line as it is drawn; made once for each line. @param {LogLine} l */
const drawn = (l) => l.text ??= visible(l.line.length > LONG ? `${l.line.slice(0, LONG)}…` : l.line);
/** How many columns a text takes at most: characters beyond Latin may be two wide. @param {string} t */
const columns = (t) => { let n = t.length; for (let i = 0; i < t.length; i++) if (t.charCodeAt(i) > 0x2ff) n++; return n; };

/** The beginning of each row in pixels, and the end of the last one. @param {LogLine[]} lines @param {number} fit columns of a row */
function wrapped(lines, fit) {
  const at = new Float64Array(lines.length + 1);
  for (let i = 0; i < lines.length; i++) at[i + 1] = at[i] + ROW * Math.max(1, Math.ceil(columns(drawn(lines[i])) / fit));
  return at;
}
/** The last row that begins at or before a place. @param {Float64Array} at @param {number} top */
function rowAt(at, top) {
  let low = 0, high = at.length - 1;
  while (low + 1 < high) { const mid = (low + high) >> 1; if (at[mid] <= top) low = mid; else high = mid; }
  return low;
}

/**
 * `stick`: the newest line stays in sight; `fit`: the box is as high as its lines, up to the bound of its style;
 * `several`: the lines are those of several endpoints.
 * @param {{ lines: LogLine[], stick: boolean, job?: boolean, several?: boolean, fit?: boolean, wrap?: boolean, empty: any }} props
 */
export function LogView({ lines, stick, job = true, several, fit, wrap, empty }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [top, setTop] = useState(0);
  const [size, setSize] = useState({ height: 480, columns: 80 });
  const [open, setOpen] = useState(/** @type {LogLine | null} */ (null));
  const atEnd = useRef(true);
  const measure = () => {
    const el = box.current;
    if (!el) return;
    const [line, probe] = [el.querySelector('.line'), el.querySelector('.probe')];
    const found = line && probe ? Math.max(10, Math.floor(line.clientWidth / (probe.getBoundingClientRect().width / 100)) - 1) : 80;
    setSize((s) => s.height === el.clientHeight && s.columns === found ? s : { height: el.clientHeight, columns: found });
  };
  useEffect(() => {
    const o = new ResizeObserver(measure);
    o.observe(/** @type {HTMLElement} */ (box.current));
    return () => o.disconnect();
  }, []);
  useLayoutEffect(measure, [lines.length > 0, wrap, several, job]);
  const at = useMemo(() => wrap ? wrapped(lines, size.columns) : null, [lines, wrap, size.columns]);
  const all = at ? at[lines.length] : lines.length * ROW;
  useLayoutEffect(() => { if (stick && atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight; }, [lines, stick, size, at]);
  const scroll = (e) => {
    const el = e.currentTarget;
    atEnd.current = el.scrollHeight - el.scrollTop - el.clientHeight < ROW;
    setTop(el.scrollTop);
  };
  const first = Math.max(0, (at ? rowAt(at, top) : Math.floor(top / ROW)) - 8);
  const rows = lines.slice(first, first + Math.ceil(size.height / ROW) + 16);
  return html`<div class="log"><div class=${`log-box ${wrap ? 'wrap' : ''}`} style=${fit ? { height: `${Math.max(2 * ROW, all) + 12}px` } : undefined} ref=${box} onScroll=${scroll} tabindex="0" role="log" aria-live="off" aria-label="Log lines"><span class="probe" aria-hidden="true">${'0'.repeat(100)}</span>
    ${lines.length === 0 ? html`<div class="log-empty">${empty}</div>` : html`<div class="log-all" style=${{ height: `${all}px` }}><div class="log-rows" style=${{ transform: `translateY(${at ? at[first] : first * ROW}px)` }}>
    ${rows.map((l, i) => html`<div key=${`${l.endpoint} ${l.number}`} class=${`log-line v-${l.level}`} style=${{ height: `${at ? at[first + i + 1] - at[first + i] : ROW}px` }} onClick=${() => setOpen(l)}><time title=${time(l.at)}>${clockMs(l.at)}</time><span class="level">${l.level}</span>${several && html`<span class="of" title=${l.endpoint}>${l.endpoint}</span>`}${job && html`<a href=${link(['jobs', l.endpoint, l.jobId])} title=${l.jobId} onClick=${(e) => e.stopPropagation()}>${shortId(l.jobId)}</a>`}<span class="line">${drawn(l)}</span></div>`)}</div></div>`}</div>
    ${open && html`<div class="log-open"><header><span class=${`level v-${open.level}`}>${open.level}</span><span>${time(open.at)}</span><a href=${link(['jobs', open.endpoint, open.jobId])} title=${open.jobId}>${shortId(open.jobId)}</a><a href=${link(['logs'], { endpoint: open.endpoint, job: open.jobId })}>Lines of this job</a><${Copy} text=${open.line}/><button type="button" class="button quiet small" onClick=${() => setOpen(null)}>Close</button></header><pre tabindex="0">${visible(open.line)}</pre></div>`}</div>`;
}
