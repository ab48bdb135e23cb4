// One job on one page: what happened when, its input, its output or its chunks as they arrive, its error
// with the trap's stack, its usage and cost, its log lines, and a call that makes it again.
import { html, useEffect, useMemo, useState, useRef } from '../lib/html.js';
import { text, json, seg, query as queryOf, curl } from '../lib/api.js';
import { member } from '../lib/json.js';
import { follow } from '../lib/sse.js';
import { awake, useTopics } from '../lib/live.js';
import { paused } from '../lib/settings.js';
import { can } from '../lib/session.js';
import { useLoad } from '../lib/load.js';
import { link, go } from '../lib/router.js';
import { duration, clockMs, num, short, bytes, brief, shortId } from '../lib/format.js';
import { visible } from '../lib/text.js';
import { Head, Status, Facts, Trouble, Loading, Button, Copy, Tags, Command, Time, ended } from '../ui/parts.js';
import { Icon } from '../ui/icons.js';
import { ChunkList, Json } from '../ui/json_view.js';
import { LogView } from '../ui/log_view.js';
import { Dialog, ask } from '../ui/dialog.js';
import { Editor } from '../ui/editor.js';
import { say } from '../ui/toast.js';

const CAUSE = { submitted: 'Submitted', retried: 'Queued again by a retry', failed: 'May run again', released: 'Queued again: the host stopped the attempt', noMemory: 'Queued again: the host had no memory for the attempt', hostLost: 'Queued again: the host died' };

/** The stretches of the timeline: how long the job waited and ran. @param {any[]} events @param {number} now */
function stretches(events, now) {
  const all = [];
  for (let i = 0; i < events.length; i++) {
    const e = events[i], next = events[i + 1];
    if (!['queued', 'started', 'failed'].includes(e.event)) continue;
    const end = next ? Date.parse(next.at) : now;
    const kind = e.event !== 'started' ? 'wait' : next?.event === 'failed' ? 'bad' : next?.event !== 'ended' ? 'run' : next.status === 'FAILED' ? 'bad' : next.status === 'TIMED_OUT' ? 'late' : next.status === 'COMPLETED' ? 'good' : 'run';
    all.push({ kind, ms: Math.max(0, end - Date.parse(e.at)), text: e.event === 'queued' ? 'Waited' : e.event === 'failed' ? 'Paused' : `Attempt ${e.attempt ?? ''}` });
  }
  return all;
}

function Timeline({ doc, done }) {
  const events = doc.events ?? [];
  const parts = stretches(events, done ? Date.parse(events[events.length - 1]?.at) : Date.now());
  const what = (e) => e.event === 'queued' ? html`<b>${CAUSE[e.cause] ?? 'Queued'}</b>` : e.event === 'started' ? html`<b>Attempt ${e.attempt} started</b>${e.workerId && html`<small>on ${e.workerId}</small>`}`
    : e.event === 'failed' ? html`<b class="bad">Attempt ${e.attempt} failed</b><small>${e.error && visible(e.error)}</small>`
    : e.event === 'ended' ? html`<b><span class=${`s-${e.status}`}>${{ COMPLETED: 'Completed', FAILED: 'Failed', CANCELLED: 'Cancelled', TIMED_OUT: 'Timed out' }[e.status]}</span></b>`
    : e.event === 'webhookSent' ? html`<b>Webhook sent</b><small>attempt ${e.attempt}${e.httpStatus ? `, answered ${e.httpStatus}` : ', no answer'}</small>` : e.event === 'webhookDelivered' ? html`<b>Webhook delivered</b>` : html`<b class="bad">Webhook given up</b><small>${e.error && visible(e.error)}</small>`;
  // A receiver accepts a webhook with 2xx; any other answer, or none, is followed by another attempt or by the end.
  const icon = (e) => e.event === 'queued' ? 'IN_QUEUE' : e.event === 'started' ? 'IN_PROGRESS' : e.event === 'ended' ? e.status : e.event === 'webhookGivenUp' || e.event === 'failed' ? 'FAILED' : e.event === 'webhookSent' && !(e.httpStatus >= 200 && e.httpStatus < 300) ? 'REFUSED' : 'COMPLETED';
  return html`${parts.length > 0 && html`<div class="stretch" aria-hidden="true">${parts.map((p, i) => html`<span key=${i} class=${p.kind} style=${{ flexGrow: Math.max(p.ms, 0.5) }}></span>`)}</div><div class="stretch-key">${parts.map((p, i) => html`<span key=${i}>${p.text} <b>${duration(p.ms)}</b></span>`)}</div>`}
    ${doc.attemptsOmitted > 0 && html`<p class="faint">${num(doc.attemptsOmitted)} earlier attempts are not kept.</p>`}
    <ol class="timeline">${events.map((e, i) => html`<li key=${i}><time datetime=${e.at}>${clockMs(e.at)}</time><span class=${`s-${icon(e)}`}><${Icon} name=${icon(e)}/></span><div class="what">${what(e)}</div></li>`)}</ol>`;
}

/** The chunks of a stream as they come; a new attempt begins anew. The chunks of a job that runs wait while the
 * updates are paused. @param {{ endpoint: string, id: string, done: boolean, onEnd: () => void, onSome: () => void }} props */
function Chunks({ endpoint, id, done, onEnd, onSome }) {
  const [chunks, setChunks] = useState(/** @type {string[]} */ ([]));
  const [state, setState] = useState('');
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const read = useRef({ all: /** @type {string[]} */ ([]), last: '', end: false }).current;
  const live = awake.value && (done || !paused.value);
  useEffect(() => {
    if (!live || read.end) return;
    const stop = new AbortController();
    let timer;
    const draw = () => { timer = undefined; setChunks(read.all.slice(-2000)); if (read.all.length) onSome(); };
    follow(`v2/${seg(endpoint)}/stream/${seg(id)}?from=0`, stop.signal, (e) => {
      if (e.id) read.last = e.id;
      if (e.event === 'restart') read.all = [];
      else if (e.event === 'end') { read.end = true; setState('complete'); draw(); onEnd(); return true; }
      else { read.all.push(member(e.data, 'output') ?? e.data); timer ??= setTimeout(draw, 60); }
    }, { lastId: read.last, onState: (s) => { if (!stop.signal.aborted) setState(s === 'open' ? 'live' : s === 'waiting' ? 'connecting' : 'ended'); } });
    return () => { stop.abort(); clearTimeout(timer); if (!read.end) { draw(); setState('paused'); } };
  }, [endpoint, id, live]);
  useEffect(() => { const b = box.current; if (b && state === 'live') b.scrollTop = b.scrollHeight; }, [chunks]);
  if (!chunks.length) return null;
  return html`<section class="panel"><header><h2>Chunks</h2><span class="faint">${num(read.all.length)} · ${state}${read.all.length > chunks.length ? ' · the newest 2,000 are shown' : ''}</span></header><${ChunkList} of=${chunks} box=${box}/></section>`;
}

/** An error: its sentence, and below it the stack of a trap, folded when it is long. `calls`: the stack, if the
 * host explains traps, as `gristmill dev` does. @param {{ text: string, calls: string[] }} props */
function Trap({ text, calls }) {
  const [said, ...rest] = text.split('\n');
  const stack = [...rest, ...calls];
  return html`<div class="trap" tabindex="0" role="region" aria-label="Error"><p>${visible(said)}</p>${stack.length > 0 && html`<details open=${stack.length <= 3}><summary>Stack, ${num(stack.length)} ${stack.length === 1 ? 'line' : 'lines'}</summary><pre>${visible(stack.join('\n'))}</pre></details>`}</div>`;
}

/** What the job has used, and what that costs at the present prices. @param {{ of: any }} props */
const Usage = ({ of: u }) => html`<section class="panel"><header><h2>Usage and cost</h2><span class="faint">${u.attempts === 1 ? 'one attempt' : `${num(u.attempts)} attempts together`}</span></header><div class="body"><${Facts} pairs=${[['Cost', html`<b>${u.amount}</b> <small class="faint">credits</small>`], ['Ran', duration(u.timeBilledMs)], ['Processor', duration(u.cpuMs)], ['Fuel', u.fuel > 0 && short(u.fuel)], ['Peak memory', bytes(u.memoryBytesPeak)], ['Input', bytes(u.bytesIn)], ['Output', bytes(u.bytesOut)], ['Chunks', u.chunks > 0 && num(u.chunks)], ['Own requests', u.egressBytes > 0 && bytes(u.egressBytes)]]}/></div></section>`;

function Again({ endpoint, input, onClose }) {
  const [value, setValue] = useState(input ?? '{}');
  const send = async () => {
    const made = await json(`v2/${seg(endpoint)}/run`, { method: 'POST', raw: `{"input":${value}}` });
    say('A new job is on its way.');
    onClose();
    go(link(['jobs', endpoint, made.id]));
  };
  return html`<${Dialog} wide title=${`Run ${endpoint} again`} onClose=${onClose}>${!input && html`<p class="faint">The host no longer keeps the input of this job, or does not show it: type one.</p>`}<${Editor} label="Input" value=${value} onInput=${setValue} onSubmit=${() => send().catch((e) => say(e.message, 'bad'))}/><footer><${Button} onClick=${onClose}>Not now</${Button}><${Button} kind="primary" onClick=${send}>Run as a new job</${Button}></footer></${Dialog}>`;
}

/** The beginning of log lines that are calls on the stack of a trap. */
const TRAP = 'trap: ';

/** @param {{ path: string[] }} props */
export function Page({ path: [, endpoint, id] }) {
  const base = `v2/${seg(endpoint)}`;
  const [again, setAgain] = useState(false);
  const [streams, setStreams] = useState(false);
  const [round, setRound] = useState(0);
  const [asJson, setAsJson] = useState(false);
  // An input does not change, so it is read once.
  const kept = useRef(/** @type {any} */ ({})), of = `${endpoint}/${id}`;
  const status = useLoad(async (s) => {
    const known = kept.current.of === of ? kept.current.input : undefined;
    const raw = await text(`${base}/status/${seg(id)}${known === undefined ? '?input=true' : ''}`, { signal: s });
    kept.current = { of, input: known ?? member(raw, 'input') };
    return raw;
  }, [endpoint, id], { keep: true });
  const timeline = useLoad((s) => json(`${base}/timeline/${seg(id)}`, { signal: s }), [endpoint, id], { keep: true });
  const logs = useLoad((s) => can('manage') ? json(`v1/endpoints/${seg(endpoint)}/logs${queryOf({ job: id, tail: 2000 })}`, { signal: s }).then((l) => l.map((x) => ({ ...x, endpoint }))) : Promise.resolve([]), [endpoint, id], { keep: true });
  const reload = () => { status.reload(); timeline.reload(); logs.reload(); };
  const raw = status.data;
  const doc = useMemo(() => raw ? JSON.parse(raw) : undefined, [raw]);
  const done = doc && ended(doc.status);
  // A topic of a job that does not exist would be refused, with all others of the stream.
  useTopics(done || !doc ? [] : [`job:${endpoint}/${id}`], (event, data) => { if (event === 'job' && data.id === id) reload(); });
  // The stream of events may be paused or refused: a job that runs is still looked at now and then.
  useEffect(() => { if (done || !doc) return; const t = setInterval(() => { for (const l of [status, timeline, logs]) l.poll(); }, 3000); return () => clearInterval(t); }, [done, !doc]);
  const output = raw && member(raw, 'output');
  const input = raw && kept.current.input;
  const usage = timeline.data?.usage;
  // A job is cancelled before its attempt ends, and the usage comes with the end of the attempt.
  const isStopping = doc?.status === 'CANCELLED' && !usage && timeline.data?.events?.some((e) => e.event === 'started');
  useEffect(() => { if (!isStopping) return; const t = setTimeout(timeline.reload, 1000); return () => clearTimeout(t); }, [isStopping]);
  const calls = (logs.data ?? []).filter((l) => l.level === 'error' && l.line.startsWith(TRAP)).map((l) => l.line.slice(TRAP.length));
  const failed = doc && (doc.status === 'FAILED' || doc.status === 'TIMED_OUT');
  const created = timeline.data?.events?.[0]?.at;
  const act = (name) => async () => {
    await json(`${base}/${name}/${seg(id)}`, { method: 'POST' });
    // The stream of the attempt before has ended; that of the next one is another.
    if (name === 'retry') { setRound(round + 1); setStreams(false); setAsJson(false); }
    reload();
  };
  const remove = async () => {
    if (!await ask(`Delete the job ${shortId(id)}?`, `The job ${id} of ${endpoint} and its result cannot be brought back.`, 'Delete the job')) return;
    await json('v1/job-actions', { method: 'POST', body: { action: 'delete', filter: { endpoints: [endpoint], idPrefix: id } } });
    say('The job is being deleted.');
    go(link(['jobs']));
  };
  return html`<${Head} crumbs=${[['Jobs', '#/jobs'], [endpoint, link(['endpoints', endpoint])]]} title=${html`<span class="mono">${id}</span>${doc && html`<${Status} of=${doc.status}/>`}`}>
      <${Copy} text=${id} label="Copy id"/>${can('submit') && doc && html`${!done && html`<${Button} onClick=${act('cancel')}>Stop</${Button}>`}${failed && html`<${Button} kind="primary" onClick=${act('retry')}>Retry</${Button}>`}<${Button} onClick=${() => setAgain(true)}>Run again …</${Button}>${done && html`<${Button} kind="danger" onClick=${remove}>Delete</${Button}>`}`}</${Head}>
    <${Trouble} error=${status.error} retry=${reload}/>
    ${!doc ? status.error ? null : html`<${Loading}/>` : html`
    ${doc.reason && html`<p class="note">${doc.reason}</p>`}
    <section class="panel"><div class="body"><${Facts} pairs=${[['Endpoint', html`<a href=${link(['endpoints', endpoint])}>${endpoint}</a>`], ['Submitted', created && html`<${Time} at=${created} show=${brief}/>`], ['Runs not before', doc.runAt && html`<${Time} at=${doc.runAt} show=${brief}/>`], ['Waited', duration(doc.delayTime)], ['Ran', doc.executionTime !== undefined && duration(doc.executionTime)], ['Worker', doc.workerId && html`<span class="mono">${doc.workerId}</span>`], ['Retries', doc.retries && `${doc.retries}${doc.exhausted ? ', the last permitted one' : ''}`], ['Trace', timeline.data?.traceId && html`<span class="mono">${timeline.data.traceId}</span>`], ['Tags', doc.tags && html`<${Tags} tags=${doc.tags} to=${(k, v) => link(['jobs'], { tag: [`${k}:${v}`] })}/>`]]}/></div></section>
    ${doc.error && html`<section class="panel"><header><h2>Error</h2><${Copy} text=${doc.error}/></header><${Trap} text=${doc.error} calls=${calls}/></section>`}
    <${Chunks} key=${round} endpoint=${endpoint} id=${id} done=${done} onEnd=${reload} onSome=${() => setStreams(true)}/>
    <div class="two"><section class="panel"><header><h2>Timeline</h2></header><div class="body">${timeline.data ? html`<${Timeline} doc=${timeline.data} done=${done}/>` : html`<${Loading}/>`}</div></section>
    <div><section class="panel"><header><h2>${done ? 'Output' : 'Progress'}</h2></header>${output !== undefined && (!streams || asJson) ? html`<${Json} text=${output} label="Output"/>` : html`<div class="body faint">${streams ? html`${done ? 'The chunks are the output.' : 'The chunks arrive.'}${output !== undefined && html` <${Button} small kind="quiet" onClick=${() => setAsJson(true)}>Show them as JSON</${Button}>`}` : done ? doc.status === 'COMPLETED' ? 'The handler returned nothing.' : 'There is no output.' : 'Nothing yet.'}</div>`}</section>${usage && html`<${Usage} of=${usage}/>`}</div></div>
    ${input !== undefined && html`<section class="panel"><header><h2>Input</h2></header><${Json} text=${input} label="Input"/></section>`}
    ${can('manage') && html`<section class="panel"><header><h2>Log lines</h2><a href=${link(['logs'], { endpoint, job: id })}>Follow in Logs</a></header><${LogView} lines=${logs.data ?? []} stick=${!done} job=${false} fit empty=${html`<p class="faint">${done ? 'The handler wrote no line.' : 'No line yet.'}</p>`}/></section>`}
    <section class="panel"><header><h2>The same call with curl</h2>${input === undefined && html`<span class="faint">The input is not kept: put it in.</span>`}</header><div class="body"><${Command} text=${curl(`${seg(endpoint)}/run`, `{"input":${input ?? '{}'}${doc.tags ? `,"tags":${JSON.stringify(doc.tags)}` : ''}}`)}/></div></section>`}
    ${again && html`<${Again} endpoint=${endpoint} input=${input} onClose=${() => setAgain(false)}/>`}`;
}
