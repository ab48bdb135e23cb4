// Live tail of the logs of some endpoints: level, text and job narrow what is shown. At most 50,000 lines
// are kept in the page, and at most three endpoints are followed: each is a connection, and browsers open six
// to a host. While the page is paused or its tab hidden there is no connection; it goes on after the last line.
import { html, useEffect, useMemo, useRef, useState } from '../lib/html.js';
import { json, list, seg, query as queryOf } from '../lib/api.js';
import { follow } from '../lib/sse.js';
import { useLoad } from '../lib/load.js';
import { replace, link } from '../lib/router.js';
import { awake } from '../lib/live.js';
import { paused, wrap } from '../lib/settings.js';
import { num } from '../lib/format.js';
import { Head, Button, Empty, Trouble, Choice } from '../ui/parts.js';
import { Icon } from '../ui/icons.js';
import { LogView } from '../ui/log_view.js';

/** @typedef {import('../ui/log_view.js').LogLine} LogLine */
const KEEP = 50000, FIRST = 1000, EARLIER = 10000, LEVELS = ['trace', 'debug', 'info', 'warn', 'error'];
export const ENDPOINTS_MAX = 3;

/** Lines of several endpoints in the order of their times. @param {LogLine[]} a @param {LogLine[]} b */
function merged(a, b) {
  const all = [...a, ...b];
  // Within one endpoint the lines come in order; the sort is stable.
  if (!a.length || (b.length && b[0].at < a[a.length - 1].at) || b.some((l, i) => i > 0 && l.at < b[i - 1].at)) all.sort((x, y) => x.at < y.at ? -1 : x.at > y.at ? 1 : 0);
  return all.length > KEEP ? all.slice(-KEEP) : all;
}

/** @param {{ endpoints: string[], query: URLSearchParams, at: string[] }} props `at`: the path of the page, for its address */
export function Tail({ endpoints, query, at }) {
  const [lines, setLines] = useState(/** @type {LogLine[]} */ ([]));
  const [states, setStates] = useState(/** @type {Record<string, string>} */ ({}));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [hold, setHold] = useState(false);
  const [more, setMore] = useState(true);
  const pause = hold || paused.value;
  const live = awake.value && !pause;
  /** The number of the last line of each endpoint. */
  const last = useRef(/** @type {Map<string, number>} */ (new Map()));
  const job = query.get('job') ?? '', level = query.get('level') ?? 'trace', q = query.get('q') ?? '';
  const set = (change) => replace(link(at, { ...(at[0] === 'logs' ? { endpoint: endpoints } : {}), job, level: level === 'trace' ? '' : level, q, ...change }));
  const which = endpoints.join(',');
  const tail = (endpoint, n) => json(`v1/endpoints/${seg(endpoint)}/logs${queryOf({ tail: n, job })}`).then((l) => l.map((x) => ({ ...x, endpoint })));
  useEffect(() => { setLines([]); last.current = new Map(); setError(null); setStates({}); setMore(true); }, [which, job]);
  useEffect(() => {
    const stop = new AbortController(), read = last.current;
    let come = [], timer;
    if (live) setError(null);
    const flush = () => { const some = come; come = []; timer = undefined; if (some.length) setLines((l) => merged(l, some)); };
    const take = (line) => {
      if (line.number <= (read.get(line.endpoint) ?? -1)) return;
      read.set(line.endpoint, line.number);
      come.push(line);
      timer ??= setTimeout(flush, 120);
    };
    for (const endpoint of endpoints) {
      if (live) follow(`v1/endpoints/${seg(endpoint)}/logs${queryOf({ tail: FIRST, job })}`, stop.signal, (e) => {
        let line;
        try { line = JSON.parse(e.data); } catch { return; }
        take({ ...line, endpoint });
      }, { lastId: String(read.get(endpoint) ?? ''), onState: (s, e) => { if (!stop.signal.aborted) { setStates((all) => ({ ...all, [endpoint]: s })); if (s === 'refused' || e?.status === 429) setError(e); else if (s === 'open') setError(null); } } });
      // A page that is opened while updates are paused has its lines.
      else if (pause && !read.has(endpoint)) tail(endpoint, FIRST).then((all) => { if (!stop.signal.aborted) all.forEach(take); }, setError);
    }
    return () => { stop.abort(); clearTimeout(timer); flush(); };
  }, [which, job, live]);
  // What the host keeps of earlier lines, up to its bound for one answer.
  const earlier = async () => {
    const all = await Promise.all(endpoints.map((endpoint) => tail(endpoint, EARLIER)));
    setMore(false);
    setLines((now) => { const known = new Set(now.map((l) => `${l.endpoint} ${l.number}`)); return merged(all.flat().filter((l) => !known.has(`${l.endpoint} ${l.number}`)), now); });
  };
  const shown = useMemo(() => {
    const min = LEVELS.indexOf(level), t = q.toLowerCase();
    return min <= 0 && !t ? lines : lines.filter((l) => LEVELS.indexOf(l.level) >= min && (!t || l.line.toLowerCase().includes(t)));
  }, [lines, level, q]);
  const save = () => {
    const a = document.createElement('a');
    a.href = URL.createObjectURL(new Blob([shown.map((l) => `${l.at} ${l.level} ${endpoints.length > 1 ? `${l.endpoint} ` : ''}${l.jobId} ${l.line}\n`).join('')], { type: 'text/plain' }));
    a.download = `${endpoints.join('-')}.log`;
    a.click();
    URL.revokeObjectURL(a.href);
  };
  const all = endpoints.map((e) => states[e] ?? 'waiting');
  const state = all.every((s) => s === 'open') ? 'live' : all.includes('waiting') ? 'connecting' : 'not live';
  return html`<div class="filters"><div class="search"><${Icon} name="search"/><input type="search" data-search aria-label="Only lines with this text" placeholder="text in the line" value=${q} onInput=${(e) => set({ q: e.target.value })}/></div>
      <${Choice} label="Least level" value=${level} onChange=${(v) => set({ level: v })} options=${LEVELS.map((l) => [l, l])}/>
      <input aria-label="Only lines of this job" placeholder="job id" value=${job} onChange=${(e) => set({ job: e.target.value.trim() })}/>
      <${Button} onClick=${() => setHold(!hold)} disabled=${paused.value}><${Icon} name=${pause ? 'play' : 'pause'}/>${pause ? 'Go on' : 'Pause'}</${Button}></div>
    <${Trouble} error=${error}/>
    <${LogView} lines=${shown} several=${endpoints.length > 1} stick=${!pause} wrap=${wrap.value === 'on'} empty=${html`<p class="faint">${lines.length ? 'No line matches.' : state === 'live' && !pause ? 'The handlers have written nothing yet. New lines appear here as they are written.' : pause ? 'No line yet. Updates are paused.' : 'Connecting …'}</p>`}/>
    <div class="filters log-foot"><span class="faint" aria-live="off">${num(shown.length)} lines${shown.length !== lines.length ? ` of ${num(lines.length)}` : ''}${lines.length === KEEP ? ', the newest that this page keeps' : ''} · ${pause ? 'paused' : state}</span><span class="grow"></span>
      ${more && lines.length >= FIRST && html`<${Button} small kind="quiet" onClick=${earlier}>Earlier lines</${Button}>`}<${Button} small kind="quiet" aria-pressed=${wrap.value === 'on'} onClick=${() => { wrap.value = wrap.value === 'on' ? 'off' : 'on'; }}>${wrap.value === 'on' ? 'Do not wrap' : 'Wrap lines'}</${Button}><${Button} small kind="quiet" disabled=${!shown.length} onClick=${save}>Save as text</${Button}></div>`;
}

/** @param {{ query: URLSearchParams }} props */
export function Page({ query }) {
  const { data, error, reload } = useLoad((s) => list('v1/endpoints', s), []);
  const named = query.getAll('endpoint').slice(0, ENDPOINTS_MAX);
  const endpoints = named.length ? named : data?.length ? [data[0].id] : [];
  const choose = (all) => replace(link(['logs'], { endpoint: all, level: query.get('level') ?? '', q: query.get('q') ?? '' }));
  const others = (data ?? []).filter((e) => !endpoints.includes(e.id));
  return html`<${Head} title="Logs"/>
    <${Trouble} error=${error} retry=${reload}/>
    ${endpoints.length ? html`<div class="filters" role="group" aria-label="Endpoints">${endpoints.map((id) => endpoints.length > 1 ? html`<button type="button" class="chip" key=${id} aria-pressed="true" aria-label=${`Leave out ${id}`} onClick=${() => choose(endpoints.filter((x) => x !== id))}>${id} <span aria-hidden="true">×</span></button>` : html`<select key=${id} aria-label="Endpoint" value=${id} onChange=${(e) => choose([e.target.value])}>${[...new Set([id, ...(data ?? []).map((e) => e.id)])].sort().map((e) => html`<option key=${e} value=${e}>${e}</option>`)}</select>`)}
      ${others.length > 0 && endpoints.length < ENDPOINTS_MAX && html`<select aria-label="Add an endpoint" value="" onChange=${(e) => { if (e.target.value) choose([...endpoints, e.target.value]); }}><option value="">Add an endpoint …</option>${others.map((e) => html`<option key=${e.id} value=${e.id}>${e.id}</option>`)}</select>`}</div>
      <${Tail} endpoints=${endpoints} query=${query} at=${['logs']}/>` : data && html`<section class="panel"><${Empty} title="No endpoint yet" command="gristmill deploy count">Lines that handlers write appear here.</${Empty}></section>`}`;
}
