// Two releases side by side: their components, and the settings with which each of them began. What a component
// is made of is known as long as a handler with its digest is on the host.
import { html } from '../lib/html.js';
import { json, list, seg } from '../lib/api.js';
import { useLoad } from '../lib/load.js';
import { bytes, duration, num, time, shortImage } from '../lib/format.js';
import { Button, Loading, Table, Trouble } from './parts.js';
import { FIELDS, LISTS, get } from './settings_form.js';

const tools = (h) => (h?.toolchain ?? []).map((t) => `${t.name} ${t.version}`);
/** What is only in one of two lists. @param {string[]} a @param {string[]} b */
const only = (a, b) => a.filter((x) => !b.includes(x));
/** Settings with one value: their names, and how they are written. @type {[string, string][]} */
const SINGLE = [['templateId', 'Template'], ['paused', 'Paused'], ...FIELDS.map(([n, label]) => /** @type {[string, string]} */ ([n, label])), ['maxFuel', 'Most fuel'], ['networkVolumeId', 'Network volume']];
const shown = (label, v) => v === undefined || v === null ? html`<span class="faint">not set</span>` : typeof v === 'boolean' ? v ? 'yes' : 'no' : typeof v !== 'number' ? v : label.endsWith('(ms)') ? duration(v) : num(v);
const limits = (s) => Object.entries(s.rateLimits ?? {}).map(([op, l]) => `${op}: ${num(l.callsPer10s)} in 10 s${l.concurrent ? `, ${num(l.concurrent)} at once` : ''}${l.callsPerWorker ? `, ${num(l.callsPerWorker)} a worker` : ''}`);

/** The settings that differ, and how many do not. @param {any} a @param {any} b */
function differences(a, b) {
  const single = SINGLE.filter(([n]) => get(a, n) !== get(b, n)).map(([n, label]) => ({ name: label.replace(' (ms)', ''), old: shown(label, get(a, n)), now: shown(label, get(b, n)) }));
  const lists = [...LISTS.map(([n, , short]) => [short, get(a, n) ?? [], get(b, n) ?? []]), ['Rate limits', limits(a), limits(b)]].map(([name, x, y]) => ({ name, gone: only(x, y), come: only(y, x), same: x.length - only(x, y).length }));
  const [x, y] = [a.env ?? {}, b.env ?? {}];
  const env = [...new Set([...Object.keys(x), ...Object.keys(y)])].sort().filter((k) => x[k] !== y[k]).map((k) => ({ name: k, kind: x[k] === undefined ? 'come' : y[k] === undefined ? 'gone' : 'new' }));
  return { single, lists: lists.filter((l) => l.gone.length + l.come.length), env, same: SINGLE.length - single.length + lists.filter((l) => !(l.gone.length + l.come.length)).length + (env.length ? 0 : 1) };
}

const Lists = ({ of: l }) => html`<tr key=${l.name} class=${l.gone.length + l.come.length ? 'differs' : ''}><th scope="row">${l.name}</th>${l.gone.length + l.come.length === 0 ? html`<td colspan="2" class="faint">${num(l.same)} the same</td>` : html`<td>${l.gone.map((x) => html`<div class="gone" key=${x}><code>− ${x}</code></div>`)}</td><td>${l.come.map((x) => html`<div class="come" key=${x}><code>+ ${x}</code></div>`)}${l.same > 0 && html`<span class="faint">${num(l.same)} the same</span>`}</td>`}</tr>`;

function SettingRows({ a, b }) {
  if (!a || !b) return html`<tr><th scope="row">Settings</th><td colspan="2" class="faint">not known for ${!a && !b ? 'both' : 'one of the two'}: the host that began it did not keep them</td></tr>`;
  const d = differences(a, b);
  return html`${d.single.map((s) => html`<tr key=${s.name} class="differs"><th scope="row">${s.name}</th><td>${s.old}</td><td>${s.now}</td></tr>`)}
    ${d.lists.map((l) => html`<${Lists} key=${l.name} of=${l}/>`)}
    ${d.env.length > 0 && html`<tr class="differs"><th scope="row">Environment</th><td>${d.env.filter((e) => e.kind === 'gone').map((e) => html`<div class="gone" key=${e.name}><code>− ${e.name}</code></div>`)}</td><td>${d.env.filter((e) => e.kind !== 'gone').map((e) => html`<div class=${e.kind === 'come' ? 'come' : ''} key=${e.name}><code>${e.kind === 'come' ? '+ ' : ''}${e.name}</code>${e.kind === 'new' && html` <span class="faint">has another value</span>`}</div>`)}</td></tr>`}
    <tr><th scope="row">Settings</th><td colspan="2" class="faint">${num(d.same)} the same</td></tr>`;
}

/** @typedef {{ version: number, releasedAt: string, image: string, sha256: string }} Release
 * @param {{ endpoint: string, newer: Release, older: Release, onClose: () => void }} props */
export function Compare({ endpoint, newer, older, onClose }) {
  const one = (r, signal) => json(`v1/endpoints/${seg(endpoint)}/releases/${r.version}`, { signal });
  const { data, error, reload } = useLoad((s) => Promise.all([list('v1/handlers', s), one(older, s), one(newer, s)]), [older.version, newer.version]);
  const [handlers, old, now] = data ?? [];
  const [a, b] = [older, newer].map((r) => handlers?.find((h) => h.sha256 === r.sha256));
  /** @type {[string, any, any, boolean?][]} */
  const rows = [['Released', time(older.releasedAt), time(newer.releasedAt)], ['Image', shortImage(older.image), shortImage(newer.image), true], ['Digest', older.sha256.slice(0, 12), newer.sha256.slice(0, 12), true]];
  if (a && b) rows.push(['Size', bytes(a.sizeInBytes), html`${bytes(b.sizeInBytes)} <small class="faint">${b.sizeInBytes === a.sizeInBytes ? '' : `${b.sizeInBytes > a.sizeInBytes ? '+' : '−'}${bytes(Math.abs(b.sizeInBytes - a.sizeInBytes))}`}</small>`]);
  const differs = (r) => typeof r[2] !== 'string' ? a.sizeInBytes !== b.sizeInBytes : r[1] !== r[2];
  const lists = a && b ? [['Imports', a.imports, b.imports], ['Exports', a.exports, b.exports], ['Toolchain', tools(a), tools(b)]].map(([name, x, y]) => ({ name, gone: only(x, y), come: only(y, x), same: x.length - only(x, y).length })) : [];
  const missing = data && [older, newer].filter((r, i) => ![a, b][i]).map((r) => r.version);
  return html`<section class="panel" aria-label="Comparison"><header><h2>Version ${older.version} and ${newer.version}</h2><${Button} small kind="quiet" onClick=${onClose}>Close</${Button}></header><${Trouble} error=${error} retry=${reload}/>${!data ? error ? null : html`<${Loading} rows=${3}/>` : html`
    <${Table} label="Differences" class="compare" head=${['', `Version ${older.version}`, `Version ${newer.version}`]}>${rows.map((r) => html`<tr key=${r[0]} class=${differs(r) ? 'differs' : ''}><th scope="row">${r[0]}</th><td class=${r[3] ? 'mono' : ''}>${r[1]}</td><td class=${r[3] ? 'mono' : ''}>${r[2]}</td></tr>`)}
      ${lists.map((l) => html`<${Lists} key=${l.name} of=${l}/>`)}<${SettingRows} a=${old.settings} b=${now.settings}/></${Table}>
    <p class="body faint">${missing?.length ? `The component of version ${missing.join(' and ')} has no name on this host any more, so only its digest is known. ` : ''}Settings are those with which a version began. A rollback leaves the present ones as they are.</p>`}</section>`;
}
