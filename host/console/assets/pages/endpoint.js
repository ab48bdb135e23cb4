// One endpoint: its numbers now, charts with marks at its deploys, and tabs for its jobs, failures, logs,
// releases, webhooks, settings and usage. The tab is a part of the address.
import { html, useEffect, useMemo, useState, useRef } from '../lib/html.js';
import { json, text, list, seg, query as queryOf, hostUrl, curl } from '../lib/api.js';
import { member } from '../lib/json.js';
import { counts } from '../lib/live.js';
import { can } from '../lib/session.js';
import { useLoad } from '../lib/load.js';
import { link, go, replace } from '../lib/router.js';
import { num, duration, short, ago, bytes, brief, date, shortId, shortImage } from '../lib/format.js';
import { visible } from '../lib/text.js';
import { Head, Tabs, Table, Status, Time, Trouble, Loading, Empty, Button, Choice, Copy, Facts } from '../ui/parts.js';
import { ask } from '../ui/dialog.js';
import { say } from '../ui/toast.js';
import { JobList } from '../ui/job_list.js';
import { Chart } from '../ui/chart.js';
import { Settings, unsaved } from '../ui/settings_form.js';
import { Usage } from './billing.js';
import { Tail } from './logs.js';
import { WINDOW } from '../ui/series.js';
import { StateBar } from '../ui/state_bar.js';
import { Compare } from '../ui/compare.js';
import { Requests } from '../ui/requests.js';

const WINDOWS = [['15m', '15 min'], ['6h', '6 h'], ['7d', '7 days']];

function Charts({ id, window, releases }) {
  const { data, error } = useLoad((s) => json(`v1/endpoints/${seg(id)}/series${queryOf({ window })}`, { signal: s }), [id, window], { every: window === '15m' ? 10000 : 60000, keep: true });
  const made = useMemo(() => {
    if (!data) return null;
    const p = data.points;
    // The whole window, also where the points begin later or there is none yet.
    const last = p.length ? data.from + p.length * data.stepMs : Date.now();
    const pick = (f) => p.map((x) => f(x) ?? null);
    const line = (label, color, f, more = {}) => ({ label, color, values: pick(f), ...more });
    const busy = (x) => x.completed + x.failed + (x.timedOut ?? 0) > 0;
    const times = (name) => [line('p50', '--soft', (x) => busy(x) ? x[name]?.p50 : null), line('p95', '--run', (x) => busy(x) ? x[name]?.p95 : null, { dash: [6, 3] }), line('p99', '--late', (x) => busy(x) ? x[name]?.p99 : null, { dash: [2, 3] })];
    return { at: p.map((x) => x.at), from: last - WINDOW[window], to: last, jobs: [line('submitted', '--soft', (x) => x.submitted, { fill: true }), line('completed', '--good', (x) => x.completed), line('failed', '--bad', (x) => x.failed + (x.timedOut ?? 0))], queue: [line('waiting', '--wait', (x) => x.waiting, { fill: true }), line('running', '--run', (x) => x.running)], workers: [line('running', '--run', (x) => x.workers?.running, { fill: true }), line('idle', '--wait', (x) => x.workers?.idle), line('held up', '--late', (x) => x.workers && x.workers.initializing + x.workers.throttled + x.workers.unhealthy)], delay: times('delayMs'), run: times('runMs'), step: data.stepMs };
  }, [data]);
  const marks = useMemo(() => (releases ?? []).map((r) => ({ at: Date.parse(r.releasedAt), text: `v${r.version}` })).reverse(), [releases]);
  if (error && !data) return html`<${Trouble} error=${error}/>`;
  if (!made) return html`<div class="charts">${[1, 2, 3, 4, 5].map((i) => html`<div class=${`chart ${i === 5 ? 'wide' : ''}`} key=${i}><div class="plot"></div><${Loading} rows=${2}/></div>`)}</div>`;
  const common = { at: made.at, from: made.from, to: made.to, marks };
  return html`<div class="charts"><${Chart} title=${`Jobs in ${duration(made.step)}`} unit=${short} whole lines=${made.jobs} ...${common}/><${Chart} title="Queue" unit=${short} whole lines=${made.queue} ...${common}/>
    <${Chart} title="Time waited" unit=${duration} lines=${made.delay} ...${common}/><${Chart} title="Time run" unit=${duration} lines=${made.run} ...${common}/>
    <${Chart} wide title="Workers" unit=${short} whole lines=${made.workers} ...${common}/></div>`;
}

const WORKERS = [['running', 'running', 'run'], ['idle', 'idle', 'wait'], ['initializing', 'starting', 'soft'], ['throttled', 'throttled', 'late'], ['unhealthy', 'unhealthy', 'bad']];
/** Its workers by what they do. @param {{ id: string, max?: number }} props */
function Workers({ id, max }) {
  const c = counts.value[id];
  // The counts of the live stream say when to look again.
  const { data } = useLoad((s) => json(`v2/${seg(id)}/health`, { signal: s }), [id, c?.workers, c?.running], { keep: true });
  if (!data) return null;
  return html`<section class="panel"><header><h2>Workers</h2>${max !== undefined && html`<span class="faint">at most ${num(max)}</span>`}</header><div class="body"><${StateBar} label="Workers" of=${max} parts=${WORKERS.map(([field, name, color]) => [name, data.workers[field] ?? 0, color])}/></div></section>`;
}

function Releases({ id, releases, reload }) {
  const [pair, setPair] = useState(/** @type {number[]} */ ([]));
  if (!releases) return html`<${Loading}/>`;
  // The two that are compared: the newest choice takes the place of the older one.
  const choose = (v) => setPair((p) => p.includes(v) ? p.filter((x) => x !== v) : [...p, v].slice(-2));
  const chosen = releases.filter((r) => pair.includes(r.version));
  const back = async (version) => {
    if (!await ask(`Roll back to version ${version}?`, 'Waiting jobs and new jobs run its handler; jobs that run now go on with the present one. The settings stay.', `Roll back to ${version}`)) return;
    await json(`v1/endpoints/${seg(id)}/rollback`, { method: 'POST', body: { version } });
    say(`The endpoint runs the handler of version ${version} again.`);
    await reload();
  };
  return html`${chosen.length === 2 && html`<${Compare} endpoint=${id} newer=${chosen[0]} older=${chosen[1]} onClose=${() => setPair([])}/>`}
    <section class="panel">${releases.length > 1 && html`<header><h2>Releases</h2><span class="faint" role="status">${chosen.length === 1 ? `Version ${chosen[0].version} and …: choose another one` : 'Choose two to compare them.'}</span></header>`}<${Table} label="Releases" head=${[...(releases.length > 1 ? [[html`<span class="off-screen">Compare</span>`, 'check-cell']] : []), 'Version', 'Released', 'Image', 'Digest', ['', 'n']]}>${releases.map((r, i) => html`<tr key=${r.version} class=${pair.includes(r.version) ? 'picked' : ''}>${releases.length > 1 && html`<td class="check-cell"><label><span class="off-screen">Compare version ${r.version}</span><input type="checkbox" checked=${pair.includes(r.version)} onChange=${() => choose(r.version)}/></label></td>`}<td><b>${r.version}</b>${i === 0 && html` <span class="tag">runs now</span>`}</td><td><${Time} at=${r.releasedAt} show=${date}/><span class="sub-line"><${Time} at=${r.releasedAt} show=${ago}/></span></td><td class="mono" title=${r.image}>${shortImage(r.image)}</td>
      <td><span class="mono" title=${r.sha256}>${r.sha256?.slice(0, 12)}</span>${r.sha256 === releases[0].sha256 && i > 0 && html`<span class="sub-line">same as now</span>`}</td><td class="n">${i > 0 && r.sha256 && r.sha256 !== releases[0].sha256 && html`<${Button} small onClick=${() => back(r.version)}>Roll back</${Button}>`}</td></tr>`)}</${Table}></section>`;
}

const DELIVERY = { PENDING: 'IN_QUEUE', DELIVERED: 'COMPLETED', GIVEN_UP: 'FAILED' };
function Webhooks({ id, secret, setSecret }) {
  const { data, error, reload } = useLoad((s) => list(`v1/endpoints/${seg(id)}/deliveries?limit=200`, s), [id], { every: 10000, keep: true });
  const rotate = async () => {
    if (!await ask('Make a new webhook secret?', 'For a day, webhooks are signed with the old secrets as well.', 'Make a new secret')) return;
    setSecret((await json(`v1/endpoints/${seg(id)}/rotate-webhook-secret`, { method: 'POST' })).webhookSecret);
  };
  return html`<${Trouble} error=${error} retry=${reload}/>${secret && html`<div class="note"><b>The new secret is shown only now.</b><br/><span class="mono">${secret}</span> <${Copy} text=${secret}/></div>`}
    <section class="panel"><header><h2>Newest deliveries</h2><${Button} small onClick=${rotate}>New secret …</${Button}></header>${!data ? html`<${Loading}/>` : !data.length ? html`<${Empty} title="No webhook yet">A job that was submitted with <code>"webhook": "https://…"</code> calls that address when it ends.</${Empty}>`
      : html`<${Table} label="Deliveries" head=${['State', 'Job', 'Receiver', ['Attempts', 'n'], 'Last answer', 'Created', 'Next or end']}>${data.map((d) => html`<tr key=${d.id}><td><span class=${`status s-${DELIVERY[d.state]}`}>${{ PENDING: 'Waiting', DELIVERED: 'Delivered', GIVEN_UP: 'Given up' }[d.state]}</span></td><td><a class="id" href=${link(['jobs', id, d.jobId])} title=${d.jobId}>${shortId(d.jobId)}</a><span class="sub-line"><${Status} of=${d.jobStatus}/></span></td><td><div class="error-cell plain" title=${d.url}>${visible(d.url)}</div></td><td class="n">${d.attempts}</td><td>${d.lastError ? html`<span class="bad">${visible(d.lastError)}</span>` : d.lastStatus && `answered ${d.lastStatus}`}</td><td><${Time} at=${d.createdAt} show=${brief}/></td><td><${Time} at=${d.endedAt ?? d.nextAttemptAt} show=${brief}/></td></tr>`)}</${Table}>`}</section>`;
}

/** @param {{ path: string[], query: URLSearchParams }} props */
export function Page({ path: [, id, tab = 'overview'], query }) {
  const manage = can('manage');
  // `exactFuel`: a number above 2^53 as it was written.
  const endpoint = useLoad((s) => manage ? text(`v1/endpoints/${seg(id)}`, { signal: s }).then((t) => ({ ...JSON.parse(t), exactFuel: member(t, 'maxFuel') })) : Promise.resolve(undefined), [id], { keep: true });
  const releases = useLoad((s) => manage ? json(`v1/endpoints/${seg(id)}/releases`, { signal: s }) : Promise.resolve([]), [id], { keep: true });
  const [secret, setSecret] = useState('');
  // A form with typed text stays when another client changes the endpoint.
  const [saved, setSaved] = useState(0);
  const c = counts.value[id];
  const e = endpoint.data;
  const window = WINDOWS.some(([w]) => w === query.get('window')) ? /** @type {string} */ (query.get('window')) : '15m';
  const reload = async () => { await Promise.all([endpoint.reload(), releases.reload()]); };
  // Another client has changed the endpoint. The form of the settings keeps what was typed.
  useEffect(() => { if (c?.version > e?.version && tab !== 'settings') reload(); }, [c?.version, e?.version, tab === 'settings']);
  const http = e?.type === 'LOAD_BALANCER';
  const tabs = [['overview', 'Charts'], ...(http ? [['requests', 'Requests']] : [['jobs', 'Jobs'], ['failed', 'Failed']]), ...(manage ? [['logs', 'Logs'], ['releases', 'Releases'], ['webhooks', 'Webhooks'], ['settings', tab !== 'settings' && unsaved(id) ? html`Settings <span class="tag">${unsaved(id)} unsaved</span>` : 'Settings'], ['usage', 'Usage']] : [])];
  const failed = useRef({ endpoint: [id], status: ['FAILED', 'TIMED_OUT'] }).current;
  const remove = async () => {
    if (!await ask(`Delete ${id}?`, 'Its waiting jobs are removed, its running ones are stopped, and its results and logs go. This cannot be taken back.', `Delete ${id}`)) return;
    await json(`v1/endpoints/${seg(id)}`, { method: 'DELETE' });
    say(`${id} is deleted.`);
    go('#/');
  };
  const pause = async () => { await json(`v1/endpoints/${seg(id)}`, { method: 'PATCH', body: { paused: !e.paused } }); await reload(); };
  const resume = e?.paused && html`<${Button} onClick=${pause}>Resume${e.workersMax > 0 && ` (${num(e.workersMax)} ${e.workersMax === 1 ? 'worker' : 'workers'})`}</${Button}>`;
  // With no worker at all its jobs wait too, and only a number in the settings changes that.
  const held = e?.paused ? 'Paused.' : e?.workersMax === 0 ? 'No worker may run: “Most workers” is 0.' : '';
  const purge = async () => {
    if (!await ask(`Remove the waiting jobs of ${id}?`, `${num(c?.waiting)} jobs wait now. They are removed without running and without a webhook; running jobs go on.`, 'Remove them')) return;
    say(`${num((await json(`v2/${seg(id)}/purge-queue`, { method: 'POST' })).removed)} jobs removed.`);
  };
  return html`<${Head} crumbs=${[['Overview', '#/']]} title=${html`${e?.name || id}${held && html`<span class="tag">paused</span>`}`} sub=${html`<span class="mono">${hostUrl}/v2/${id}</span>`}>
      ${e && !held && html`<${Button} onClick=${pause}>Pause</${Button}>`}${can('submit') && html`<a class="button" href=${link(['playground'], { endpoint: id })}>Try it</a>`}${tab === 'settings' && e && html`<${Button} kind="danger" onClick=${remove}>Delete …</${Button}>`}</${Head}>
    <${Trouble} error=${endpoint.error?.status === 404 ? new Error(`There is no endpoint ${id}.`) : endpoint.error} retry=${endpoint.reload}/>
    ${held && html`<div class="banner" role="status"><span><b>${held}</b> ${c?.waiting > 0 ? `${num(c.waiting)} ${c.waiting === 1 ? 'job waits' : 'jobs wait'}.` : 'New jobs wait.'}</span>${resume}${!e.paused && html`<a class="button" href=${link(['endpoints', id, 'settings'])}>Settings</a>`}</div>`}
    <${Tabs} label=${id} now=${tab} tabs=${tabs.map(([t, name]) => [t, name, link(['endpoints', id, ...(t === 'overview' ? [] : [t])])])}/>
    ${tab === 'overview' ? html`<dl class="tiles">${[['Waiting', num(c?.waiting)], ['Running', html`${num(c?.running)}${e && html` <small>of ${num(e.workersMax)}</small>`}`], ['Completed', num(c?.completed)], ['Failed', num(c && c.failed + c.timedOut)], ...(e ? [['Version', html`${e.version} <small>${releases.data?.[0] ? ago(releases.data[0].releasedAt) : ''}</small>`]] : [])].map(([n, v]) => html`<div class="tile" key=${n}><dt>${n}</dt><dd>${v}</dd></div>`)}</dl>
      <div class="filters"><${Choice} label="Time shown" value=${window} onChange=${(w) => replace(link(['endpoints', id], { window: w }))} options=${WINDOWS}/><span class="faint">Dashed marks are deploys.</span></div><${Charts} id=${id} window=${window} releases=${releases.data}/>${can('read') && html`<${Workers} id=${id} max=${e?.workersMax}/>`}
      ${e && html`<section class="panel"><header><h2>What it runs</h2>${can('submit') && html`<span class="actions">${c?.waiting > 0 && html`<${Button} small kind="danger" onClick=${purge}>Remove waiting jobs …</${Button}>`}</span>`}</header><div class="body"><${Facts} pairs=${[['Handler', releases.data?.[0] && html`<span class="mono" title=${releases.data[0].image}>${shortImage(releases.data[0].image)}</span>`], ['Template', e.templateIsDeleted ? html`<span class="mono">${e.templateId}</span> <span class="sub-line bad">It was deleted: set another one.</span>` : html`<a href=${link(['templates', e.templateId])}>${e.templateId}</a>`], ['Memory of a job', bytes(e.memoryMib * 1048576)], ['Time limit', duration(e.executionTimeoutMs)], ['Jobs of one instance', num(e.reuse?.maxJobs)], ['May call', e.allowedHosts?.join(', ') || 'nothing'], ['Created', html`<${Time} at=${e.createdAt} show=${date}/>`]]}/></div></section>`}`
    : tab === 'jobs' ? html`<${JobList} key="jobs" endpoint=${false} filter=${{ endpoint: [id] }} tagTo=${(k, v) => link(['jobs'], { endpoint: id, tag: `${k}:${v}` })} empty=${html`<${Empty} title="No job yet" command=${curl(`${id}/run`, '{"input":{}}')}/>`}/>`
    : tab === 'requests' ? html`<${Requests} id=${id} query=${query}/>`
    : tab === 'failed' ? html`<${JobList} key="failed" endpoint=${false} filter=${failed} tagTo=${(k, v) => link(['jobs'], { endpoint: id, status: 'FAILED', tag: `${k}:${v}` })} empty=${html`<${Empty} title="No failed job">Nothing that is still kept has failed.</${Empty}>`}/>`
    : tab === 'logs' ? html`<${Tail} endpoints=${[id]} query=${query} at=${['endpoints', id, 'logs']}/>`
    : tab === 'releases' ? html`<${Releases} id=${id} releases=${releases.data} reload=${reload}/>`
    : tab === 'webhooks' ? html`<${Webhooks} id=${id} secret=${secret} setSecret=${setSecret}/>`
    : tab === 'settings' ? e ? html`<${Settings} key=${saved} endpoint=${e} reload=${async () => { await reload(); setSaved(saved + 1); }}/>` : html`<${Loading}/>`
    : tab === 'usage' ? html`<${Usage} endpoint=${id} query=${query} to=${(q) => link(['endpoints', id, 'usage'], q)}/>` : html`<${Empty} title="No such tab"/>`}`;
}
