// Usage and its cost, by time and by endpoint, template or owner. The tab Usage of an endpoint is the same
// for one endpoint.
import { html } from '../lib/html.js';
import { list, query as queryOf } from '../lib/api.js';
import { can } from '../lib/session.js';
import { useLoad } from '../lib/load.js';
import { replace, link } from '../lib/router.js';
import { num, duration, bytes, time } from '../lib/format.js';
import { Head, Table, Trouble, Loading, Empty, Choice } from '../ui/parts.js';

const RANGES = [['1d', '1 day', 'hour', 1], ['7d', '7 days', 'day', 7], ['30d', '30 days', 'day', 30], ['1y', '1 year', 'month', 365]];
const sum = (l, f) => l.reduce((n, r) => n + (f(r) ?? 0), 0);
const credits = (n) => n === 0 ? '0' : n < 0.01 ? '< 0.01' : n.toLocaleString('en-US', { maximumFractionDigits: 2 });

/** @param {{ endpoint?: string, query: URLSearchParams, to: (q: Record<string, string>) => string }} props */
export function Usage({ endpoint, query, to }) {
  const range = RANGES.find(([r]) => r === query.get('range')) ?? RANGES[1];
  const group = query.get('by') ?? 'endpointId';
  const { data, error, reload } = useLoad((s) => list(`v1/billing/endpoints${queryOf({ endpointId: endpoint, bucketSize: range[2], grouping: group, startTime: new Date(Date.now() - Number(range[3]) * 864e5).toISOString() })}`, s), [endpoint, range[0], group], { keep: true });
  const set = (q) => replace(to({ range: String(range[0]), by: group === 'endpointId' ? '' : group, ...q }));
  const groups = new Map();
  for (const r of data ?? []) { const k = r[group]; groups.set(k, [...(groups.get(k) ?? []), r]); }
  const cells = (l) => html`<td class="n">${num(sum(l, (r) => r.jobs))}</td><td class="n">${duration(sum(l, (r) => r.timeBilledMs))}</td><td class="n">${duration(sum(l, (r) => r.cpuMs))}</td><td class="n">${bytes(Math.max(0, ...l.map((r) => r.memoryBytesPeak)))}</td><td class="n">${bytes(sum(l, (r) => r.bytesIn))}</td><td class="n">${bytes(sum(l, (r) => r.bytesOut))}</td><td class="n"><b>${credits(sum(l, (r) => r.amount))}</b></td>`;
  const head = [['Attempts', 'n'], ['Ran', 'n'], ['CPU', 'n'], ['Peak memory', 'n'], ['In', 'n'], ['Out', 'n'], ['Credits', 'n']];
  const names = { endpointId: 'Endpoint', templateId: 'Template', ownerId: 'Owner' };
  return html`<div class="filters"><${Choice} label="Time" value=${String(range[0])} onChange=${(r) => set({ range: r })} options=${RANGES.map(([r, t]) => [r, t])}/>${!endpoint && html`<${Choice} label="Grouping" value=${group} onChange=${(by) => set({ by })} options=${[['endpointId', 'Endpoint'], ['templateId', 'Template'], ...(can('admin') ? [['ownerId', 'Owner']] : [])]}/>`}</div><${Trouble} error=${error} retry=${reload}/>
    ${!data ? html`<section class="panel"><${Loading}/></section>` : !data.length ? html`<section class="panel"><${Empty} title="No usage in this time" command="gristmill billing --bucket day">An attempt of a job counts in the hour in which it ends.</${Empty}></section>` : html`
    <dl class="tiles">${[['Credits', credits(sum(data, (r) => r.amount))], ['Attempts', num(sum(data, (r) => r.jobs))], ['Ran', duration(sum(data, (r) => r.timeBilledMs))], ['CPU', duration(sum(data, (r) => r.cpuMs))]].map(([n, v]) => html`<div class="tile" key=${n}><dt>${n}</dt><dd>${v}</dd></div>`)}</dl>
    ${!endpoint && html`<section class="panel"><header><h2>By ${names[group].toLowerCase()}</h2></header><${Table} label=${`Usage by ${names[group].toLowerCase()}`} head=${[names[group], ...head]}>${[...groups].map(([k, l]) => html`<tr key=${k}><td>${group === 'endpointId' ? html`<a class="endpoint-name" title=${k} href=${link(['endpoints', k, 'usage'])}>${k}</a>` : html`<b>${k}</b>`}</td>${cells(l)}</tr>`)}</${Table}></section>`}
    <section class="panel"><header><h2>By ${range[2]}</h2><span class="faint">${range[2]}s are those of UTC</span></header><${Table} label="Usage by time" head=${['Time', ...head]}>${[...new Set(data.map((r) => r.time))].sort().reverse().map((t) => html`<tr key=${t}><td><b>${range[2] === 'hour' ? time(t) : t.slice(0, range[2] === 'day' ? 10 : 7)}</b></td>${cells(data.filter((r) => r.time === t))}</tr>`)}</${Table}></section>`}`;
}
/** @param {{ query: URLSearchParams }} props */
export const Page = ({ query }) => html`<${Head} title="Billing" sub="What jobs used, and what it costs by the prices of this host."/><${Usage} query=${query} to=${(q) => link(['billing'], q)}/>`;
