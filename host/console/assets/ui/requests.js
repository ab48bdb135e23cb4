// The newest HTTP requests of an endpoint, by status.
import { html } from '../lib/html.js';
import { json, seg, query as queryOf } from '../lib/api.js';
import { useLoad } from '../lib/load.js';
import { link, replace } from '../lib/router.js';
import { duration, bytes, brief, shortId } from '../lib/format.js';
import { visible } from '../lib/text.js';
import { Table, Time, Trouble, Loading, Empty, Choice } from './parts.js';

const STATUSES = [['', 'All'], ['2xx', '2xx'], ['3xx', '3xx'], ['4xx', '4xx'], ['5xx', '5xx'], ['499', 'left']];

/** @param {{ id: string, query: URLSearchParams }} props */
export function Requests({ id, query }) {
  const status = STATUSES.some(([s]) => s === query.get('status')) ? /** @type {string} */ (query.get('status')) : '';
  const { data, error, reload } = useLoad((s) => json(`v1/endpoints/${seg(id)}/requests${queryOf({ status: status || undefined, limit: 200 })}`, { signal: s }), [id, status], { every: 5000, keep: true });
  const row = (r) => html`<tr key=${r.id}><td><span class=${`status s-${r.status >= 500 ? 'FAILED' : r.status >= 400 ? 'TIMED_OUT' : 'COMPLETED'}`}>${r.status}</span>${r.code && html`<span class="sub-line">${r.code}</span>`}</td><td><div class="error-cell plain" title=${r.path}>${visible(r.method)} ${visible(r.path)}</div></td><td><${Time} at=${r.at} show=${brief}/></td><td class="n">${duration(r.waitedMs)}</td><td class="n">${duration(r.ranMs)}</td><td class="n">${bytes(r.bytesIn)}</td><td class="n">${bytes(r.bytesOut)}</td><td>${r.version !== undefined && html`v${r.version}`}</td><td><span class="id" title=${r.id}>${shortId(r.id)}</span></td></tr>`;
  return html`<div class="filters"><${Choice} label="Status" value=${status} onChange=${(s) => replace(link(['endpoints', id, 'requests'], s ? { status: s } : {}))} options=${STATUSES}/><span class="faint">The newest ends first; the host keeps the last 1,000 in memory.</span></div>
    <${Trouble} error=${error} retry=${reload}/>
    <section class="panel">${!data ? html`<${Loading}/>` : !data.length ? html`<${Empty} title="No request"/>` : html`<${Table} label="Requests" head=${['Status', 'Request', 'Arrived', ['Waited', 'n'], ['Ran', 'n'], ['In', 'n'], ['Out', 'n'], 'Version', 'Id']}>${data.map(row)}</${Table}>`}</section>`;
}
