// Playground: any endpoint with any input, in the four ways a client can call it, and where the time of
// the call went: on the network, waiting for a worker, running.
import { html, effect, useEffect, useLayoutEffect, useRef, useState } from '../lib/html.js';
import { call, json, list, seg, curl } from '../lib/api.js';
import { events } from '../lib/sse.js';
import { member } from '../lib/json.js';
import { counts } from '../lib/live.js';
import { can, session } from '../lib/session.js';
import { useLoad } from '../lib/load.js';
import { link, replace } from '../lib/router.js';
import { duration, num } from '../lib/format.js';
import { visible } from '../lib/text.js';
import { Head, Button, Choice, Status, Empty, Trouble, Command } from '../ui/parts.js';
import { ChunkList, Json } from '../ui/json_view.js';
import { Editor } from '../ui/editor.js';
import { takeFirst, Samples } from '../ui/samples.js';
import { exampleOf } from '../lib/schema.js';

const MODES = [['runsync', 'Wait'], ['run', 'Queue'], ['stream', 'Stream'], ['chat', 'Chat']];
const inputs = new Map();
// Another owner does not see what was typed.
let whose;
effect(() => { const owner = session.value?.key.owner; if (owner !== whose) inputs.clear(); whose = owner; });

function Split({ split }) {
  const parts = [['Network and host', split.rest, 'run'], ['Waited', split.wait, 'wait'], ['Ran', split.run, 'good']].filter(([, ms]) => ms !== undefined);
  return html`${parts.length > 0 && html`<div class="stretch" aria-hidden="true">${parts.map(([n, ms, c]) => html`<span key=${n} class=${c} style=${{ flexGrow: Math.max(/** @type {number} */ (ms), 0.3) }}></span>`)}</div>`}<div class="split">${parts.map(([n, ms]) => html`<span key=${n}>${n} <b>${duration(/** @type {number} */ (ms))}</b></span>`)}${split.first !== undefined && html`<span>First chunk after <b>${duration(split.first)}</b></span>`}<span>In all <b>${duration(split.all)}</b></span></div>`;
}

function Chat({ endpoint }) {
  const [talk, setTalk] = useState(/** @type {{ role: string, content: string }[]} */ ([]));
  const [text, setText] = useState('How is bread made?');
  // Empty until the handler has named its models: a call with another name would be refused.
  const [model, setModel] = useState('');
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const atEnd = useRef(true);
  useLayoutEffect(() => { if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight; }, [talk]);
  const [error, setError] = useState(/** @type {any} */ (null));
  const [split, setSplit] = useState(/** @type {any} */ (null));
  const stop = useRef(/** @type {AbortController | null} */ (null));
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    const first = new AbortController();
    json(`v2/${seg(endpoint)}/openai/v1/models`, { signal: first.signal, quiet: true }).then((m) => m?.data?.[0]?.id, () => {}).then((id) => { if (!first.signal.aborted) setModel((typed) => typed || (id ?? 'default')); });
    return () => { first.abort(); stop.current?.abort(); };
  }, [endpoint]);
  const send = async () => {
    if (!text.trim() || !model) return;
    atEnd.current = true;
    const messages = [...talk, { role: 'user', content: text }];
    setTalk([...messages, { role: 'assistant', content: '' }]);
    setText(''); setError(null); setSplit(null); setBusy(true);
    const own = stop.current = new AbortController();
    const began = performance.now();
    let answer = '', first;
    try {
      const r = await call(`v2/${seg(endpoint)}/openai/v1/chat/completions`, { method: 'POST', body: { model, stream: true, messages }, signal: own.signal });
      for await (const e of events(/** @type {any} */ (r.body))) {
        if (e.data === '[DONE]') break;
        let d;
        try { d = JSON.parse(e.data); } catch { continue; }
        if (d.error) throw new Error(d.error.message ?? 'The call failed.');
        answer += d.choices?.[0]?.delta?.content ?? '';
        if (answer) first ??= performance.now() - began;
        setTalk([...messages, { role: 'assistant', content: answer }]);
      }
      setSplit({ all: performance.now() - began, first });
    } catch (e) {
      // A message without an answer was not said: it is in the field again, before what was typed meanwhile.
      if (!answer) { setTalk(talk); setText((typed) => typed ? `${text} ${typed}` : text); }
      if (!own.signal.aborted) setError(e);
    } finally { setBusy(false); }
  };
  return html`<${Trouble} error=${error}/><section class="panel"><header><h2>Chat</h2><span class="actions"><input aria-label="Model" value=${model} onInput=${(e) => setModel(e.target.value)}/><${Button} small disabled=${busy || !talk.length} onClick=${() => { setTalk([]); setSplit(null); }}>New</${Button}></span></header>
    <div class="talk" tabindex="0" role="log" aria-label="Conversation" ref=${box} onScroll=${(e) => { const b = e.currentTarget; atEnd.current = b.scrollHeight - b.scrollTop - b.clientHeight < 24; }}>${talk.length ? talk.map((m, i) => html`<p key=${i} class=${m.role}>${visible(m.content) || '…'}</p>`) : html`<span class="faint">For handlers that speak OpenAI's format, such as the sample chat.</span>`}</div>
    <div class="body">${split && html`<${Split} split=${split}/>`}<form class="filters" onSubmit=${(e) => { e.preventDefault(); send(); }}><div class="say"><input aria-label="Message" value=${text} onInput=${(e) => setText(e.target.value)}/></div>${busy ? html`<${Button} onClick=${() => stop.current?.abort()}>Stop</${Button}>` : html`<${Button} type="submit" kind="primary" disabled=${!text.trim() || !model} aria-busy=${!model}>Send</${Button}>`}</form></div></section>`;
}

/** @param {{ query: URLSearchParams }} props */
export function Page({ query }) {
  const known = useLoad((s) => can('manage') ? list('v1/endpoints', s) : Promise.resolve([]), []);
  const names = [...new Set([...(known.data ?? []).map((e) => e.id), ...Object.keys(counts.value)])].sort();
  // The first choice stays, although an endpoint with an earlier name may be created meanwhile.
  const first = useRef('');
  first.current ||= names[0];
  const endpoint = query.get('endpoint') || first.current;
  const mode = MODES.some(([m]) => m === query.get('mode')) ? /** @type {string} */ (query.get('mode')) : 'runsync';
  const [, redraw] = useState(0);
  const schema = useLoad(async (s) => can('manage') && endpoint ? member(await (await call(`v1/endpoints/${seg(endpoint)}`, { signal: s })).text(), 'inputSchema') : undefined, [endpoint]).data;
  const input = inputs.get(endpoint) ?? (schema && exampleOf(schema)) ?? '{\n  "text": "to be or not to be"\n}';
  const setInput = (v) => { inputs.set(endpoint, v); redraw((n) => n + 1); };
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const stop = useRef(/** @type {AbortController | null} */ (null));
  const set = (change) => { stop.current?.abort(); setAnswer(null); setError(null); replace(link(['playground'], { endpoint, mode, ...change })); };
  useEffect(() => () => stop.current?.abort(), []);
  const send = async (text = input) => {
    setBusy(true); setError(null); setAnswer(null);
    const own = stop.current = new AbortController();
    const began = performance.now();
    const base = `v2/${seg(endpoint)}`;
    const body = `{"input":${text}}`;
    try {
      const r = await call(`${base}/${mode === 'runsync' ? 'runsync' : 'run'}`, { method: 'POST', raw: body, signal: own.signal });
      const raw = await r.text();
      const doc = JSON.parse(raw);
      const all = performance.now() - began;
      if (mode === 'runsync') setAnswer({ raw, doc, split: { all, wait: doc.delayTime, run: doc.executionTime, rest: Math.max(0, all - doc.delayTime - doc.executionTime) } });
      else if (mode === 'run') setAnswer({ raw, doc, split: { all, rest: all } });
      else {
        const chunks = [];
        let first, timer;
        const draw = () => { timer = undefined; if (!own.signal.aborted) setAnswer({ doc: { id: doc.id, status: 'IN_PROGRESS' }, chunks, split: { all: performance.now() - began, first } }); };
        setAnswer({ doc: { id: doc.id, status: 'IN_PROGRESS' }, chunks, split: { all } });
        const s = await call(`${base}/stream/${seg(doc.id)}?from=0`, { headers: { Accept: 'text/event-stream' }, signal: own.signal });
        let end = {};
        for await (const e of events(/** @type {any} */ (s.body))) {
          if (e.event === 'end') { end = JSON.parse(e.data); break; }
          if (e.event === 'restart') { chunks.length = 0; continue; }
          first ??= performance.now() - began;
          chunks.push(member(e.data, 'output') ?? e.data);
          timer ??= setTimeout(draw, 60);
        }
        clearTimeout(timer);
        const last = JSON.parse(await (await call(`${base}/status/${seg(doc.id)}`, { signal: own.signal })).text());
        setAnswer({ doc: { ...last, ...end }, chunks, split: { all: performance.now() - began, first, wait: last.delayTime, run: last.executionTime } });
      }
    } catch (e) { if (!own.signal.aborted) setError(e); } finally { setBusy(false); }
  };
  useEffect(() => {
    const given = takeFirst(endpoint);
    if (given) { setInput(given); send(given); }
  }, [endpoint]);
  if (!endpoint) return html`<${Head} title="Playground"/>${known.loading ? null : html`<${Empty} title="No endpoint yet" choices=${can('manage') && html`<${Samples}/>`} command="gristmill deploy --sample word-count">Deploy a handler first; then call it from here.</${Empty}>`}`;
  const output = answer?.raw && mode === 'runsync' ? member(answer.raw, 'output') : undefined;
  return html`<${Head} title="Playground"><select aria-label="Endpoint" value=${endpoint} onChange=${(e) => set({ endpoint: e.target.value })}>${[...new Set([endpoint, ...names])].sort().map((n) => html`<option key=${n} value=${n}>${n}</option>`)}</select><${Choice} label="Way to call" value=${mode} onChange=${(m) => set({ mode: m })} options=${MODES}/></${Head}>
    ${mode === 'chat' ? html`<${Chat} key=${endpoint} endpoint=${endpoint}/>` : html`<div class="two"><section class="panel"><div class="body"><${Editor} label="Input" value=${input} onInput=${setInput} rows=${14} onSubmit=${() => busy || send()}/><div class="actions pad-top"><${Button} kind="primary" disabled=${busy} onClick=${() => send()}>${mode === 'run' ? 'Queue the job' : 'Run'}</${Button}>${busy && html`<${Button} onClick=${() => stop.current?.abort()}>Stop waiting</${Button}>`}<span class="faint"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span></div></div>${schema && html`<details class="body"><summary>The schema of the input</summary><${Json} text=${schema} label="Schema"/></details>`}</section>
      <section class="panel" aria-live="polite" aria-busy=${busy}><header><h2>Answer</h2>${answer && html`<span class="actions"><${Status} of=${answer.doc.status}/><a href=${link(['jobs', endpoint, answer.doc.id])}>Open the job</a></span>`}</header>
        ${error && html`<div class="body"><${Trouble} error=${error}/></div>`}${answer && html`<div class="body"><${Split} split=${answer.split}/>${answer.chunks && html`<p class="faint">${num(answer.chunks.length)} chunks</p>`}</div>`}
        ${answer?.doc.error && html`<div class="trap">${visible(answer.doc.error)}</div>`}${answer?.chunks?.length > 0 && html`<${ChunkList} of=${answer.chunks}/>`}
        ${output !== undefined ? html`<${Json} text=${output} label="Output"/>` : answer?.raw && !answer.doc.error ? html`<${Json} text=${answer.raw} label="Answer"/>` : null}${!answer && !error && html`<div class="body faint">${busy ? 'The job is on its way …' : 'The answer appears here.'}</div>`}</section></div>
    <section class="panel"><header><h2>The same call with curl</h2></header><div class="body"><${Command} text=${curl(`${seg(endpoint)}/${mode === 'runsync' ? 'runsync' : 'run'}`, `{"input":${input}}`)}/></div></section>`}`;
}
