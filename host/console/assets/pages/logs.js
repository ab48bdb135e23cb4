// Live tail of one endpoint's log: level, text and job narrow what is shown; pause keeps what is there
// and says how many lines wait. At most 5,000 lines are kept in the page.
import { html, useEffect, useMemo, useRef, useState } from '../lib/html.js';
import { list, seg, query as queryOf } from '../lib/api.js';
import { follow } from '../lib/sse.js';
import { useLoad } from '../lib/load.js';
import { replace, link } from '../lib/router.js';
import { paused } from '../lib/settings.js';
import { num } from '../lib/format.js';
import { Head, Button, Empty, Trouble, Choice } from '../ui/parts.js';
import { Icon } from '../ui/icons.js';
import { LogView } from '../ui/log_view.js';

const KEEP = 5000, LEVELS = ['trace', 'debug', 'info', 'warn', 'error'];

/** @param {{ endpoint: string, query: URLSearchParams, at: string[] }} props `at`: the path of the page, for its address */
export function Tail({ endpoint, query, at }) {
  const [lines, setLines] = useState(/** @type {any[]} */ ([]));
  const [state, setState] = useState('waiting');
  const [error, setError] = useState(/** @type {any} */ (null));
  const [held, setHeld] = useState(0);
  const [hold, setHold] = useState(false);
  const pause = hold || paused.value;
  const waiting = useRef(/** @type {any[]} */ ([]));
  const stopped = useRef(pause);
  stopped.current = pause;
  const job = query.get('job') ?? '', level = query.get('level') ?? 'trace', q = query.get('q') ?? '';
  const set = (change) => replace(link(at, { ...(at[0] === 'logs' ? { endpoint } : {}), job, level: level === 'trace' ? '' : level, q, ...change }));
  const flush = () => {
    const more = waiting.current;
    if (!more.length) return;
    waiting.current = [];
    setHeld(0);
    setLines((l) => [...l, ...more].slice(-KEEP));
  };
  useEffect(() => {
    setLines([]); waiting.current = []; setError(null); setHeld(0);
    const stop = new AbortController();
    let last = -1, timer;
    const tick = () => { timer = undefined; if (stopped.current) setHeld(waiting.current.length); else flush(); };
    follow(`v1/endpoints/${seg(endpoint)}/logs${queryOf({ tail: 1000, job })}`, stop.signal, (e) => {
      let line;
      try { line = JSON.parse(e.data); } catch { return; }
      if (line.number <= last) return;
      last = line.number;
      waiting.current.push(line);
      if (waiting.current.length > KEEP) waiting.current.shift();
      timer ??= setTimeout(tick, 120);
    }, { onState: (s, e) => { setState(s); if (s === 'refused') setError(e); } });
    return () => { stop.abort(); clearTimeout(timer); };
  }, [endpoint, job]);
  useEffect(() => { if (!pause) flush(); }, [pause]);
  const shown = useMemo(() => {
    const min = LEVELS.indexOf(level), t = q.toLowerCase();
    return min <= 0 && !t ? lines : lines.filter((l) => LEVELS.indexOf(l.level) >= min && (!t || l.line.toLowerCase().includes(t)));
  }, [lines, level, q]);
  const save = () => {
    const a = document.createElement('a');
    a.href = URL.createObjectURL(new Blob([shown.map((l) => `${l.at} ${l.level} ${l.jobId} ${l.line}\n`).join('')], { type: 'text/plain' }));
    a.download = `${endpoint}.log`;
    a.click();
    URL.revokeObjectURL(a.href);
  };
  return html`<div class="filters"><div class="search"><${Icon} name="search"/><input type="search" data-search aria-label="Only lines with this text" placeholder="text in the line" value=${q} onInput=${(e) => set({ q: e.target.value })}/></div>
      <${Choice} label="Least level" value=${level} onChange=${(v) => set({ level: v })} options=${LEVELS.map((l) => [l, l])}/>
      <input aria-label="Only lines of this job" placeholder="job id" value=${job} onChange=${(e) => set({ job: e.target.value.trim() })}/>
      <${Button} onClick=${() => setHold(!hold)} disabled=${paused.value}><${Icon} name=${pause ? 'play' : 'pause'}/>${pause ? held ? `Go on, ${num(held)} wait` : 'Go on' : 'Pause'}</${Button}><${Button} kind="quiet" disabled=${!shown.length} onClick=${save}>Save as text</${Button}></div>
    <${Trouble} error=${error}/>
    <${LogView} lines=${shown} endpoint=${endpoint} stick=${!pause} empty=${html`<p class="faint">${lines.length ? 'No line matches.' : state === 'open' ? 'The handlers have written nothing yet. New lines appear here as they are written.' : 'Connecting …'}</p>`}/>
    <p class="faint" aria-live="off">${num(shown.length)} lines${shown.length !== lines.length ? ` of ${num(lines.length)}` : ''}${lines.length === KEEP ? ', the newest that this page keeps' : ''} · ${pause ? 'paused' : state === 'open' ? 'live' : state === 'waiting' ? 'connecting' : 'not live'}</p>`;
}

/** @param {{ query: URLSearchParams }} props */
export function Page({ query }) {
  const { data, error, reload } = useLoad((s) => list('v1/endpoints', s), []);
  const endpoint = query.get('endpoint') || data?.[0]?.id;
  return html`<${Head} title="Logs">${data && html`<select aria-label="Endpoint" value=${endpoint} onChange=${(e) => replace(link(['logs'], { endpoint: e.target.value }))}>${data.map((e) => html`<option key=${e.id} value=${e.id}>${e.id}</option>`)}</select>`}</${Head}>
    <${Trouble} error=${error} retry=${reload}/>
    ${endpoint ? html`<${Tail} endpoint=${endpoint} query=${query} at=${['logs']}/>` : data && html`<${Empty} title="No endpoint yet" command="gristmill deploy count">Lines that handlers write appear here.</${Empty}>`}`;
}
