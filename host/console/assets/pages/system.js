// The host itself: how long it runs, what it uses and has left, its settings, and actions on many jobs.
import { html } from '../lib/html.js';
import { json, hostUrl } from '../lib/api.js';
import { can, session } from '../lib/session.js';
import { useLoad } from '../lib/load.js';
import { duration, brief, num, bytes } from '../lib/format.js';
import { Head, Facts, Trouble, Loading, Table, Time, Command, Status, Button } from '../ui/parts.js';
import { StateBar } from '../ui/state_bar.js';
import { HostTiles } from './overview.js';

const words = (name) => name.replaceAll('-', ' ').replace(/([A-Z])/g, (c) => ` ${c.toLowerCase()}`).replace(/^./, (c) => c.toUpperCase());

const SECONDS = new Set(['archive-after', 'drain-timeout', 'idle-timeout', 'max-clock-jump']);
/** A setting with its unit, by the name of its option. @param {string} name @param {string} value */
function setting(name, value) {
  if (value === '') return '–';
  if (value === 'true' || value === 'false') return value === 'true' ? 'yes' : 'no';
  if (!/^\d+$/.test(value)) return value;
  const n = Number(value);
  return name.endsWith('-mib') ? bytes(n * 1048576) : SECONDS.has(name) ? duration(n * 1000) : num(n);
}
const label = (name) => words(name.replace(/-mib$/, '')).replace(/^Tls$/, 'TLS');

export function Page() {
  const { data, error, reload } = useLoad((s) => json('v1/system', { signal: s }), [], { every: 5000, keep: true });
  const cluster = useLoad((s) => json('v1/cluster', { signal: s }), [], { every: 5000, keep: true });
  const actions = useLoad((s) => can('read') ? json('v1/job-actions', { signal: s }) : Promise.resolve([]), [], { every: 5000, keep: true });
  const abort = async (id) => { await json(`v1/job-actions/${id}`, { method: 'DELETE' }); await actions.reload(); };
  return html`<${Head} title="System" sub=${hostUrl}/><${Trouble} error=${error?.status === 404 ? new Error('This host has no page of its own state yet.') : error} retry=${reload}/>
    ${data ? html`<${HostTiles} system=${data}/>${data.sandboxes && html`<section class="panel"><header><h2>Sandboxes</h2>${data.sandboxes.waiting > 0 && html`<span class="bad">${num(data.sandboxes.waiting)} jobs wait for one</span>`}</header><div class="body"><${StateBar} label="Sandboxes" of=${data.sandboxes.max} parts=${[['running', data.sandboxes.running, 'run'], ['idle', data.sandboxes.idle, 'wait']]}/>${data.sandboxes.memory && html`<${Facts} pairs=${[['Memory charged', html`${bytes(data.sandboxes.memory.chargedBytes)} <small>of ${bytes(data.sandboxes.memory.maxBytes)}</small>`], ['Kept for the next sandboxes', bytes(data.sandboxes.memory.keptBytes)], ['Withheld, since the machine is short of it', data.sandboxes.memory.withheldBytes > 0 && bytes(data.sandboxes.memory.withheldBytes)], ['Sandboxes that wait for memory', data.sandboxes.growing > 0 && num(data.sandboxes.growing)]]}/>`}</div></section>`}${cluster.data?.hosts.length > 1 && html`<section class="panel"><header><h2>Hosts</h2></header><${Table} label="Hosts" head=${['Address', 'Role', ['Running', 'n'], ['Memory', 'n'], ['Cores', 'n'], 'Version', 'Since']}>${cluster.data.hosts.map((h) => html`<tr key=${h.address}><td><code>${h.address ?? '–'}</code></td><td>${h.role}</td><td class="n">${num(h.running)} <span class="faint">/ ${num(h.maxRunning)}</span></td><td class="n">${bytes(h.memoryBytes)} <span class="faint">/ ${bytes(h.maxMemoryBytes)}</span></td><td class="n">${num(h.cores)}</td><td>${h.version}</td><td><${Time} at=${h.since} show=${brief}/></td></tr>`)}</${Table}></section>`}<section class="panel"><header><h2>Process</h2></header><div class="body"><${Facts} pairs=${[['Version', data.version], ['Started', html`<${Time} at=${data.startedAt} show=${brief}/>`], ['Runs for', duration(data.uptimeMs)], ['Endpoints', num(data.endpoints)], ['Jobs kept', num(data.jobs)], ['Log lines lost', num(data.lostLogLines)], ['Session', session.value?.expiresAt && html`ends <${Time} at=${session.value.expiresAt} show=${brief}/>`]]}/></div></section>
    ${data.settings && html`<section class="panel"><header><h2>Settings</h2><span class="faint">options of <code>gristmill serve</code></span></header><div class="body"><${Facts} pairs=${Object.entries(data.settings).map(([n, v]) => [label(n), html`<span title=${`--${n}`}>${setting(n, String(v))}</span>`])}/></div></section>`}` : error ? null : html`<${Loading}/>`}
    ${actions.data?.length > 0 && html`<section class="panel"><header><h2>Actions on many jobs</h2><span class="faint">the newest 50</span></header><${Table} label="Actions" head=${['Action', 'State', ['Changed', 'n'], ['Skipped', 'n'], 'Filter', 'Began', ['', 'n']]}>${actions.data.map((a) => html`<tr key=${a.id}><td><b>${words(a.action)}</b></td><td><${Status} of=${{ RUNNING: 'IN_PROGRESS', ABORTED: 'CANCELLED' }[a.state] ?? a.state}/>${a.reason && html`<span class="sub-line">${a.reason}</span>`}</td><td class="n">${num(a.changed)}</td><td class="n">${num(a.skipped)}</td><td><code>${JSON.stringify(a.filter)}</code></td><td><${Time} at=${a.createdAt} show=${brief}/></td><td class="n">${a.state === 'RUNNING' && can('submit') && html`<${Button} small onClick=${() => abort(a.id)}>Abort</${Button}>`}</td></tr>`)}</${Table}></section>`}
    ${can('admin') && html`<section class="panel"><header><h2>Backup</h2></header><div class="body"><${Command} text=${`GRISTMILL_URL=${hostUrl} gristmill backup gristmill.tar`}/></div></section>`}`;
}
