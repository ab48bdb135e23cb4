// Charts over time with uPlot, which is loaded with the first chart. One chart has up to three lines, a
// mark at each deploy, and a table of the same numbers for those who do not see lines.
import { html, useEffect, useRef, useState } from '../lib/html.js';
import { theme, zone } from '../lib/settings.js';
import { time, clockMs } from '../lib/format.js';

/** @type {Promise<any> | undefined} */
let library;
const load = () => library ??= Promise.all([import('../vendor/uplot.js'), new Promise((done) => {
  const sheet = document.createElement('link');
  sheet.rel = 'stylesheet';
  sheet.href = new URL('../vendor/uplot.css', import.meta.url).href;
  sheet.onload = sheet.onerror = done;
  document.head.append(sheet);
})]).then(([m]) => m.default);
// A host that does not answer sends no library either; the numbers and the legend need none.
const withoutLibrary = () => { library = undefined; };
/** Steps of an axis of counts. */
const COUNTS = Array.from({ length: 10 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat();
// A value between two gaps has no line: it is drawn as a point.
const alone = (u, series) => { const v = u.data[series]; return v.map((x, i) => i).filter((i) => known(v[i]) && !known(v[i - 1]) && !known(v[i + 1])); };
const known = (v) => v !== null && v !== undefined;
const dark = matchMedia('(prefers-color-scheme: dark)');
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// A canvas does not know `light-dark()` nor variables: an element resolves the colour for it.
const color = (name, alpha = 1) => {
  const probe = document.createElement('i');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return alpha === 1 ? found : found.replace('rgb(', 'rgba(').replace(')', `, ${alpha})`);
};

/**
 * @typedef {{ label: string, color: string, values: (number | null)[], fill?: boolean, dash?: number[] }} Line
 * `whole`: the values are counts, so the axis has whole numbers only. `wide`: it takes the whole row.
 * @param {{ title: string, unit: (v: number) => string, whole?: boolean, wide?: boolean, at: number[], lines: Line[], marks?: { at: number, text: string }[], from: number, to: number }} props
 */
export function Chart({ title, unit, whole, wide, at, lines, marks = [], from, to }) {
  const host = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const [scheme, setScheme] = useState(dark.matches);
  const now = useRef(/** @type {any} */ ({}));
  now.current = { marks, from, to };
  const xs = at.map((t) => t / 1000);
  const data = [xs, ...lines.map((l) => l.values)];
  const newest = useRef(data);
  newest.current = data;
  useEffect(() => { const f = () => setScheme(dark.matches); dark.addEventListener('change', f); return () => dark.removeEventListener('change', f); }, []);
  useEffect(() => {
    let alive = true;
    let size;
    load().then((uPlot) => {
      const el = host.current;
      if (!alive || !el) return;
      const grid = { stroke: color('--line'), width: 1 };
      const font = `11px ${css('--sans')}`;
      const drawMarks = (u) => {
        const { ctx } = u;
        ctx.save();
        ctx.strokeStyle = color('--grain-ink');
        ctx.fillStyle = color('--grain-ink');
        ctx.lineWidth = devicePixelRatio;
        ctx.font = `${10 * devicePixelRatio}px ${css('--sans')}`;
        let last = -1e9;
        for (const m of now.current.marks) {
          const x = Math.round(u.valToPos(m.at / 1000, 'x', true)) + 0.5;
          if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) continue;
          ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
          ctx.beginPath(); ctx.moveTo(x, u.bbox.top); ctx.lineTo(x, u.bbox.top + u.bbox.height); ctx.stroke();
          if (x - last > 34 * devicePixelRatio) { const right = x > u.bbox.left + u.bbox.width - 40 * devicePixelRatio; ctx.textAlign = right ? 'right' : 'left'; ctx.fillText(m.text, x + (right ? -4 : 4), u.bbox.top + 10 * devicePixelRatio); last = x; }
        }
        ctx.restore();
      };
      plot.current = new uPlot({
        width: el.clientWidth, height: 168, padding: [10, 22, 0, 0],
        tzDate: (s) => zone.value === 'utc' ? uPlot.tzDate(new Date(s * 1000), 'Etc/UTC') : new Date(s * 1000),
        cursor: { points: { size: 6 }, drag: { x: false, y: false }, sync: { key: 'gristmill' } },
        legend: { show: false },
        scales: { x: { time: true, range: () => [now.current.from / 1000, now.current.to / 1000] }, y: { range: (_, __, max) => [0, Math.max(max * 1.15, 1)] } },
        axes: [
          { stroke: color('--faint'), grid: { show: false }, ticks: { show: false }, font, size: 24, space: 70, values: [[86400, '{D} {MMM}', null, null, null, null, null, null, 1], [3600, '{HH}:{mm}', null, null, null, null, null, null, 1], [60, '{HH}:{mm}', null, null, null, null, null, null, 1], [1, '{HH}:{mm}:{ss}', null, null, null, null, null, null, 1]] },
          { stroke: color('--faint'), grid, ticks: { show: false }, font, size: 54, space: 36, ...(whole ? { incrs: COUNTS } : {}), values: (_, v) => v.map((x) => unit(x)) },
        ],
        series: [{}, ...lines.map((l) => ({ label: l.label, stroke: color(l.color), width: 1.5, dash: l.dash, fill: l.fill ? color(l.color, 0.1) : undefined, points: { show: true, size: 4, fill: color(l.color), filter: alone } }))],
        hooks: { draw: [drawMarks], setCursor: [(u) => show(u.cursor.idx)] },
      }, newest.current, el);
      size = new ResizeObserver(() => plot.current?.setSize({ width: el.clientWidth, height: 168 }));
      size.observe(el);
    }, withoutLibrary);
    return () => { alive = false; size?.disconnect(); plot.current?.destroy(); plot.current = null; };
  }, [theme.value, zone.value, scheme, lines.map((l) => l.label).join()]);
  useEffect(() => { plot.current?.setData(data); }, [at, lines, marks, from, to]);

  // The numbers under the pointer are written into the legend, which is always there: no box that moves.
  const legend = useRef(/** @type {HTMLElement | null} */ (null));
  const show = (index) => {
    const cells = legend.current?.querySelectorAll('b');
    const d = newest.current;
    const i = index ?? d[0].length - 1;
    cells?.forEach((c, n) => { const v = d[n + 1]?.[i]; c.textContent = v === null || v === undefined ? '–' : unit(v); });
    const when = legend.current?.querySelector('time');
    if (when) when.textContent = index === null || index === undefined ? 'now' : d[0][i] ? time(d[0][i] * 1000) : '';
  };
  useEffect(() => show(plot.current?.cursor.idx));
  const rows = at.map((t, i) => ({ t, v: lines.map((l) => l.values[i]) })).filter((r) => r.v.some((v) => v)).slice(-20).reverse();
  return html`<section class=${`chart ${wide ? 'wide' : ''}`}><header><h3>${title}</h3><div class="legend" ref=${legend}>${lines.map((l) => html`<span key=${l.label}><i class=${l.color.slice(2)}></i>${l.label} <b></b></span>`)}<time></time></div></header>
    <div class="plot" ref=${host} aria-hidden="true"></div>
    <details class="numbers"><summary>The numbers</summary>${rows.length ? html`<table><thead><tr><th scope="col">Time</th>${lines.map((l) => html`<th scope="col" class="n" key=${l.label}>${l.label}</th>`)}</tr></thead><tbody>${rows.map((r) => html`<tr key=${r.t}><td>${clockMs(r.t).slice(0, 8)}</td>${r.v.map((v, i) => html`<td class="n" key=${i}>${v === null || v === undefined ? '–' : unit(v)}</td>`)}</tr>`)}</tbody></table>` : html`<p class="faint">Nothing happened in this time.</p>`}</details></section>`;
}
