// Overview: one line for each endpoint with what it does now and did in the last 15 minutes, and the host
// above it if the key may see that. Counts come from the live stream, the rest is read when it is needed.
import { html, useMemo } from '../lib/html.js';
import { list, json, query, hostUrl } from '../lib/api.js';
import { counts } from '../lib/live.js';
import { can } from '../lib/session.js';
import { useLoad } from '../lib/load.js';
import { link } from '../lib/router.js';
import { num, duration, share, bytes, ago } from '../lib/format.js';
import { visible } from '../lib/text.js';
import { Head, Table, Empty, Loading, Trouble, Time } from '../ui/parts.js';
import { Spark } from '../ui/spark.js';
import { values, WINDOW } from '../ui/series.js';
import { Samples } from '../ui/samples.js';

const settle = (promise, other) => promise.catch((e) => { if (e.name === 'AbortError' || e.status === 0) throw e; return other; });

export const commands = () => `export GRISTMILL_URL=${hostUrl}\ngristmill new count --lang rust\ngristmill build count && gristmill deploy count\ngristmill submit count --input '{"text":"to be or not to be"}' --wait`;

/** @param {{ system: any }} props */
export function HostTiles({ system }) {
  const s = system;
  const low = s.disk && s.disk.freeBytes < 2 * s.disk.reserveBytes;
  const tiles = [
    ['Sandboxes running', s.sandboxes && html`${num(s.sandboxes.running)} <small>of ${num(s.sandboxes.max)}${s.sandboxes.waiting ? `, ${num(s.sandboxes.waiting)} wait` : ''}</small>`],
    ['Disk free', s.disk && html`<span class=${low ? 'bad' : ''}>${bytes(s.disk.freeBytes)}</span> <small>reserve ${bytes(s.disk.reserveBytes)}</small>`],
    ['Journal', s.journalBytes !== undefined && bytes(s.journalBytes)],
    ['Webhooks waiting', s.webhooks && html`${num(s.webhooks.waiting)} <small>${num(s.webhooks.givenUp)} given up</small>`],
    ['Last backup', s.lastBackupAt ? ago(s.lastBackupAt) : html`none <small>since the start</small>`],
  ].filter(([, v]) => v !== undefined && v !== false);
  return html`<dl class="tiles">${tiles.map(([n, v]) => html`<div class="tile" key=${n}><dt>${n}</dt><dd>${v}</dd></div>`)}</dl>`;
}

function Row({ id, endpoint, series, failure, newest }) {
  // Until the live stream has sent its first event, the newest sample of the host is the best number.
  const c = counts.value[id] ?? newest, timing = newest?.runMs;
  // Of the attempts that ended: one submission may have several.
  const sum = (l) => l?.reduce((a, b) => a + b, 0) ?? 0;
  const bad = sum(series?.failed);
  const name = endpoint?.name || id;
  return html`<tr><td><a class="endpoint-name" title=${name === id ? id : `${name} (${id})`} href=${link(['endpoints', id])}>${name}</a><span class="sub-line">${endpoint ? html`v${endpoint.version}${endpoint.paused || endpoint.workersMax === 0 ? ' · paused' : ''}` : id}</span></td>
    <td>${series ? html`<${Spark} all=${series.submitted} bad=${series.failed} label=${`${id}, the last 15 minutes`}/>` : html`<span class="spark"></span>`}</td>
    <td class="n">${c ? num(c.waiting) : '–'}</td><td class="n">${c ? html`${num(c.running)}${endpoint && html`<span class="faint"> / ${num(endpoint.workersMax)}</span>`}` : '–'}</td>
    <td class="n">${series ? html`<span class=${bad ? 'bad' : ''}>${share(bad, sum(series.ended))}</span>` : '–'}</td>
    <td class="n">${timing ? duration(timing.p50) : '–'}</td><td class="n">${timing ? duration(timing.p99) : '–'}</td>
    <td class="rest">${failure ? html`<a class="error-link" href=${link(['jobs', id, failure.id])}><span class="error-cell">${visible((failure.error ?? failure.status).slice(0, 90))}</span></a><span class="sub-line"><${Time} at=${failure.createdAt} show=${ago}/></span>` : html`<span class="faint">–</span>`}</td></tr>`;
}

const CALLS = 8, NAMES = 100;
const failed = (id) => { const c = counts.peek()[id]; return c ? c.failed + c.timedOut : 0; };
/**
 * The newest failed job of each endpoint. One endpoint may fill a page: the next page is that of the endpoints
 * without an answer, those with failures first.
 * @param {string[]} ids @param {AbortSignal} signal @returns {Promise<Map<string, any>>}
 */
async function lastFailures(ids, signal) {
  const found = new Map();
  let endpoint, cursor;
  for (let n = 0; n < CALLS; n++) {
    const page = await json(`v1/jobs${query({ endpoint, status: ['FAILED', 'TIMED_OUT'], limit: n ? 50 : 200, cursor })}`, { signal });
    for (const j of page.jobs) if (!found.has(j.endpointId)) found.set(j.endpointId, j);
    if (!page.cursor) break;
    // The host may answer with a short page: the search for the same endpoints goes on.
    cursor = page.jobs.length ? undefined : page.cursor;
    if (cursor) continue;
    endpoint = ids.filter((id) => !found.has(id)).sort((a, b) => +!failed(a) - +!failed(b)).slice(0, NAMES);
    if (!endpoint.length) break;
  }
  return found;
}

export function Page() {
  const manage = can('manage');
  const endpoints = useLoad((s) => manage ? list('v1/endpoints', s) : Promise.resolve(null), [manage], { every: 30000, keep: true });
  const series = useLoad((s) => settle(json(`v1/series${query({ window: '15m' })}`, { signal: s }), null), [], { every: 10000, keep: true });
  const system = useLoad((s) => can('metrics') ? settle(json('v1/system', { signal: s }), null) : Promise.resolve(null), [], { every: 15000, keep: true });
  const ids = useMemo(() => [...new Set([...(endpoints.data ?? []).map((e) => e.id), ...Object.keys(counts.value), ...Object.keys(series.data?.endpoints ?? {})])].sort(), [endpoints.data, counts.value, series.data]);
  const kept = useMemo(() => /** @type {any} */ ({}), []);
  const failures = useLoad(async (s) => {
    // A search may examine 160,000 jobs: the next one is after more failures, or after 5 minutes.
    const of = ids.map(failed).join(), now = Date.now();
    if (can('read') && ids.length && !(kept.of === of && now < kept.until)) {
      const found = kept.found = await settle(lastFailures(ids, s), undefined);
      kept.of = found && of;
      kept.until = now + 3e5;
    }
    return kept.found;
  }, [ids.length], { every: 15000, keep: true });
  return html`<${Head} title="Overview" sub="The last 15 minutes of each endpoint."/>
    <${Trouble} error=${endpoints.error} retry=${endpoints.reload}/>
    ${system.data && html`<${HostTiles} system=${system.data}/>`}
    <section class="panel">${endpoints.loading && !ids.length ? html`<${Loading} rows=${8}/>` : !ids.length ? html`<${Empty} title="No endpoint yet" choices=${manage && html`<${Samples}/>`} command=${manage ? commands() : undefined}>${manage ? 'An endpoint runs a handler for the jobs in its queue. Deploy a sample, drop a component on the page Handlers, or write a handler with these commands.' : 'This key sees no endpoint.'}</${Empty}>`
      : html`<${Table} label="Endpoints" class="endpoints" head=${['Endpoint', 'Submitted', ['Waiting', 'n'], ['Running', 'n'], ['Failed', 'n'], ['Run p50', 'n'], ['Run p99', 'n'], ['Last failure', 'rest']]}>
        ${ids.map((id) => html`<${Row} key=${id} id=${id} endpoint=${endpoints.data?.find((e) => e.id === id)} series=${values(series.data?.endpoints?.[id], WINDOW['15m'] / (series.data?.stepMs ?? 1e4))} failure=${failures.data?.get(id)} newest=${series.data?.endpoints?.[id]}/>`)}</${Table}>`}</section>`;
}
