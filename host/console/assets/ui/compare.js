// Two releases side by side. A release names a component; what the component is made of is known as long as
// a handler with its digest is on the host. Settings are no part of a release.
import { html } from '../lib/html.js';
import { list } from '../lib/api.js';
import { useLoad } from '../lib/load.js';
import { bytes, num, time, shortImage } from '../lib/format.js';
import { Button, Loading, Table, Trouble } from './parts.js';

const tools = (h) => (h?.toolchain ?? []).map((t) => `${t.name} ${t.version}`);
/** What is only in one of two lists. @param {string[]} a @param {string[]} b */
const only = (a, b) => a.filter((x) => !b.includes(x));

/** @typedef {{ version: number, releasedAt: string, image: string, sha256: string }} Release
 * @param {{ newer: Release, older: Release, onClose: () => void }} props */
export function Compare({ newer, older, onClose }) {
  const { data, error, reload } = useLoad((s) => list('v1/handlers', s), []);
  const [a, b] = [older, newer].map((r) => data?.find((h) => h.sha256 === r.sha256));
  /** @type {[string, any, any, boolean?][]} */
  const rows = [['Released', time(older.releasedAt), time(newer.releasedAt)], ['Image', shortImage(older.image), shortImage(newer.image), true], ['Digest', older.sha256.slice(0, 12), newer.sha256.slice(0, 12), true]];
  if (a && b) rows.push(['Size', bytes(a.sizeInBytes), html`${bytes(b.sizeInBytes)} <small class="faint">${b.sizeInBytes === a.sizeInBytes ? '' : `${b.sizeInBytes > a.sizeInBytes ? '+' : '−'}${bytes(Math.abs(b.sizeInBytes - a.sizeInBytes))}`}</small>`]);
  const differs = (r) => typeof r[2] !== 'string' ? a.sizeInBytes !== b.sizeInBytes : r[1] !== r[2];
  const lists = a && b ? [['Imports', a.imports, b.imports], ['Exports', a.exports, b.exports], ['Toolchain', tools(a), tools(b)]].map(([name, x, y]) => ({ name, gone: only(x, y), come: only(y, x), same: x.length - only(x, y).length })) : [];
  const missing = data && [older, newer].filter((r, i) => ![a, b][i]).map((r) => r.version);
  return html`<section class="panel" aria-label="Comparison"><header><h2>Version ${older.version} and ${newer.version}</h2><${Button} small kind="quiet" onClick=${onClose}>Close</${Button}></header><${Trouble} error=${error} retry=${reload}/>${!data ? error ? null : html`<${Loading} rows=${3}/>` : html`
    <${Table} label="Differences" class="compare" head=${['', `Version ${older.version}`, `Version ${newer.version}`]}>${rows.map((r) => html`<tr key=${r[0]} class=${differs(r) ? 'differs' : ''}><th scope="row">${r[0]}</th><td class=${r[3] ? 'mono' : ''}>${r[1]}</td><td class=${r[3] ? 'mono' : ''}>${r[2]}</td></tr>`)}
      ${lists.map((l) => html`<tr key=${l.name} class=${l.gone.length + l.come.length ? 'differs' : ''}><th scope="row">${l.name}</th>${l.gone.length + l.come.length === 0 ? html`<td colspan="2" class="faint">the same ${num(l.same)}</td>` : html`<td>${l.gone.map((x) => html`<div class="gone" key=${x}><code>− ${x}</code></div>`)}</td><td>${l.come.map((x) => html`<div class="come" key=${x}><code>+ ${x}</code></div>`)}<span class="faint">${num(l.same)} the same</span></td>`}</tr>`)}</${Table}>
    <p class="body faint">${missing?.length ? `The component of version ${missing.join(' and ')} has no name on this host any more, so only its digest is known. ` : ''}Settings of the endpoint are no part of a release.</p>`}</section>`;
}
