// A table of jobs, and the choice of rows in it. It draws what it is given: loading, pages and actions
// belong to job_list.js.
import { html } from '../lib/html.js';
import { link } from '../lib/router.js';
import { duration, brief, shortId } from '../lib/format.js';
import { visible } from '../lib/text.js';
import { Status, Table, Time, Tags, ended } from './parts.js';

/** @typedef {{ id: string, endpointId: string, status: string, createdAt: string, delayTime: number, executionTime: number, workerId?: string, retries?: number, error?: string, tags?: Record<string, string>, old?: boolean }} Job */

/** @param {{ jobs: Job[], picked?: Set<string>, pick?: (ids: string[], on: boolean) => void, endpoint?: boolean, tagTo?: (k: string, v: string) => string }} props */
export function JobTable({ jobs, picked, pick, endpoint = true, tagTo }) {
  const all = picked && jobs.length > 0 && jobs.every((j) => picked.has(j.id));
  const box = (on, change, label) => html`<label><span class="off-screen">${label}</span><input type="checkbox" checked=${on} onChange=${change}/></label>`;
  const head = [...(pick ? [[box(all, (e) => pick(jobs.map((j) => j.id), e.target.checked), 'Select all rows on this page'), 'check-cell']] : []), 'Status', 'Job', ...(endpoint ? ['Endpoint'] : []), 'Submitted', ['Waited', 'n'], ['Ran', 'n'], ['Tags and error', 'rest']];
  return html`<${Table} label="Jobs" class="jobs" head=${head}>${jobs.map((j) => html`<tr key=${j.id} class=${`${picked?.has(j.id) ? 'picked' : ''} ${j.old ? 'old' : ''}`}>
    ${pick && html`<td class="check-cell">${box(picked?.has(j.id), (e) => pick([j.id], e.target.checked), `Select ${j.id}`)}</td>`}
    <td><${Status} of=${j.status}/>${j.retries ? html`<span class="sub-line">retry ${j.retries}</span>` : null}</td>
    <td><a class="id" href=${link(['jobs', j.endpointId, j.id])} title=${j.id}>${shortId(j.id)}</a></td>
    ${endpoint && html`<td><a class="endpoint-name" title=${j.endpointId} href=${link(['endpoints', j.endpointId])}>${j.endpointId}</a></td>`}
    <td><${Time} at=${j.createdAt} show=${brief}/></td><td class="n">${duration(j.delayTime)}</td><td class="n">${ended(j.status) || j.status === 'IN_PROGRESS' ? duration(j.executionTime) : '–'}</td>
    <td class="rest">${j.error && html`<div class="error-cell" title=${visible(j.error.slice(0, 500))}>${visible(j.error.slice(0, 160))}</div>`}<${Tags} tags=${j.tags} to=${tagTo}/></td></tr>`)}</${Table}>`;
}
