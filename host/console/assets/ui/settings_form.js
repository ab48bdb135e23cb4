// The settings of an endpoint as a form. It sends only what was changed; the host checks the bounds, and
// its sentence is shown beside the field that it names.
import { html, effect, useEffect, useState, useRef, useLayoutEffect } from '../lib/html.js';
import { json, seg, list } from '../lib/api.js';
import { envFault, envOf, envText } from '../lib/env.js';
import { useLoad } from '../lib/load.js';
import { Button, Field } from './parts.js';
import { say } from './toast.js';
import { duration } from '../lib/format.js';
import { visible } from '../lib/text.js';
import { session } from '../lib/session.js';

const FLAG = ['false', 'true'];
/** @type {[string, string, string, [number, number] | string[], number?][]} name, label, hint, bounds or values, unit in ms */
export const FIELDS = [
  ['workersMin', 'Workers kept', 'without any job', [0, 1000]], ['workersMax', 'Most workers', '0: its jobs wait', [0, 1000]],
  ['idleTimeout', 'A worker waits (s)', 'for another job, then it ends', [1, 3600]], ['scalerType', 'Start a worker by', '', ['REQUEST_COUNT', 'QUEUE_DELAY']], ['scalerValue', 'Scaler value', 'jobs for each worker, or seconds of waiting', [1, 3600]],
  ['executionTimeoutMs', 'Time limit of a job (ms)', '5,000 to 604,800,000', [5000, 604800000]], ['memoryMib', 'Memory of a job (MiB)', '1 to 4,096', [1, 4096]], ['metering', 'Metering', 'epoch is faster, fuel is exact', ['fuel', 'epoch']],
  ['reserveMemory', 'Take all memory at once', 'its jobs never wait for more', FLAG], ['propagateTraces', 'Traces go on', 'requests and webhooks carry traceparent and tracestate', FLAG],
  ['reuse.maxJobs', 'Jobs of one instance', '1: a new instance for each job', [1, 1000000]], ['reuse.maxIdle', 'An instance waits (s)', '', [1, 3600]],
  ['retry.maxAttempts', 'Attempts that may fail', '1: none is repeated', [1, 100]], ['retry.initialDelayMs', 'First pause (ms)', 'after a failure', [0, 604800000]], ['retry.factor', 'Each pause is longer by', 'this factor', [1, 10]], ['retry.maxDelayMs', 'Longest pause (ms)', 'after a failure', [0, 604800000]],
  ['retry.jitter', 'Left out of a pause (%)', 'at most, at random', [0, 100]], ['retry.timeouts', 'Repeat after a timeout', 'of time or fuel', FLAG], ['retry.outOfMemory', 'Repeat after too much memory', '', FLAG],
  ['throttle.jobs', 'Starts: most jobs', 'in the time beside; empty: no limit', [0, 1000000]], ['throttle.perMs', 'In a time of (ms)', '', [1, 604800000]], ['throttle.burst', 'At once', 'after a pause', [1, 10000]],
  ['keys.concurrency', 'Running jobs of a key', 'at one time; empty: no limit', [0, 1000]], ['keys.rate.jobs', 'Starts of a key: most jobs', 'in the time beside; empty: no limit', [0, 1000000]], ['keys.rate.perMs', 'In a time of (ms)', '', [1, 604800000]], ['keys.rate.burst', 'At once', 'after a pause', [1, 10000]],
  ['http.queueTimeoutMs', 'A request waits (ms)', 'for a worker, then it is refused', [1, 300000]], ['http.maxRequestMib', 'Largest request (MiB)', 'of its body', [1, 4096]], ['http.public', 'Public', 'requests need no key', FLAG],
  ['http.cors.credentials', 'Cookies from other origins', 'and Authorization; needs named origins', FLAG], ['http.cors.maxAge', 'A preflight answer holds (s)', 'in the browser', [0, 86400]], ['maxWaitingJobs', 'Most waiting jobs', "empty: the host's bound", [0, 10000000]],
  ['retention.completed', 'Keep completed (ms)', 'empty: 30 min for run', [0, 2592000000]], ['retention.failed', 'Keep failed (ms)', '', [0, 2592000000]], ['retention.cancelled', 'Keep cancelled (ms)', '', [0, 2592000000]],
  ['retention.maxJobs', 'Most kept jobs', 'ended ones, the newest; empty: no bound', [0, 100000000]], ['retention.maxMib', 'Most kept MiB', 'of results and inputs of failed jobs; empty: no bound', [0, 16777216]],
];
/** @type {[string, string, string, string][]} name, label, short label, hint; a list has one entry a line */
export const LISTS = [
  ['allowedHosts', 'Hosts that its handlers may call', 'May call', 'one a line: example.com, *.example.com, example.com:8443'],
  ['callEndpoints', 'Endpoints that its handlers may submit jobs to', 'Submits jobs to', 'one id a line, of the same owner; they need not exist yet'],
  ['http.hosts', 'Its own host names', 'Host names', 'one a line: www.example.com; only with a key of the operator'],
  ['http.cors.origins', 'Origins whose pages may send requests', 'Origins', 'one a line: https://example.com; * for all'],
  ['http.cors.exposeHeaders', 'Headers that those pages may read', 'Exposed headers', 'one a line, beside the usual ones'],
];
/** The operations with rate limits of their own, and the fields of each: name, column, what an empty field means, least value. */
const OPERATIONS = ['run', 'runsync', 'openai', 'status', 'stream', 'cancel', 'retry', 'purge-queue', 'requests', 'http'];
/** @type {[string, string, string, number][]} */
const LIMITS = [['callsPer10s', 'Calls in 10 s', 'needed', 1], ['concurrent', 'At one time', 'any', 1], ['callsPerWorker', 'Calls per worker', '0', 0]];
const keysOf = (op) => LIMITS.map(([n]) => `rateLimits.${op}.${n}`);
/** The operations with limits of their own. @param {Record<string, string>} values */
const own = (values) => OPERATIONS.filter((op) => keysOf(op).some((n) => values[n]));
const FUEL_MAX = 2n ** 64n - 1n;
/** A field without a number would be sent as 0, which has a meaning of its own. @param {string} t */
const whole = (t) => t === '' ? 'A whole number is needed here.' : undefined;
/** The reason why a text cannot be sent as the value of its field. @type {Record<string, (text: string) => string | undefined>} */
const CHECKS = {
  maxFuel: (t) => t === '' || /^\d{1,20}$/.test(t) && BigInt(t) <= FUEL_MAX ? undefined : 'A whole number of at most 18,446,744,073,709,551,615 is allowed, or an empty field.',
  env: envFault,
  workersMin: whole, workersMax: whole, 'http.cors.maxAge': whole, 'retry.initialDelayMs': whole, 'retry.maxDelayMs': whole, 'retry.jitter': whole,
  callEndpoints: (t) => { const bad = words(t).find((id) => !/^[A-Za-z0-9_-]{1,128}$/.test(id)); return bad && `${visible(bad.slice(0, 40))} is not the id of an endpoint: an id has letters, digits, - and _.`; },
};
/** The same with the fields that depend on each other. @param {string} n @param {Record<string, string>} now */
const check = (n, now) => {
  const [outer, op] = n.split('.');
  if (outer === 'rateLimits' && n.endsWith('.callsPer10s') && !now[n] && keysOf(op).some((k) => now[k])) return 'The calls in 10 s are needed with the others. “Default” removes all three.';
  return CHECKS[n]?.(now[n]);
};
const words = (t) => t.split(/[\s,]+/).filter(Boolean);
export const get = (o, name) => name.split('.').reduce((v, k) => v?.[k], o);

/** What was typed into a form that was left without saving, by endpoint, with the settings that it began with.
 * @type {Map<string, { was: Record<string, string>, now: Record<string, string>, limited: string[], count: number }>} */
const drafts = new Map();
// Another owner does not see what was typed.
let whose;
effect(() => { const owner = session.value?.key.owner; if (owner !== whose) drafts.clear(); whose = owner; });
// They are lost with the page: an environment may have secrets, and no data of users is ever stored.
addEventListener('beforeunload', (e) => { if (drafts.size) e.preventDefault(); });
/** How many settings of an endpoint are changed and not saved. @param {string} id */
export const unsaved = (id) => drafts.get(id)?.count ?? 0;
const LABELS = { ...Object.fromEntries([...FIELDS.map(([n, label]) => [n, label]), ...LISTS.map(([n, , short]) => [n, short])]), name: 'Name', maxFuel: 'Most fuel', networkVolumeId: 'Network volume', env: 'Environment' };

/**
 * The rate limits of the operations that do not have the host's. `control` and `set` are those of the form.
 * @param {{ ops: string[], faults: Record<string, string>, control: (n: string) => any, set: (n: string) => (e: any) => void, add: (op: string) => void, reset: (op: string) => void }} props
 */
function RateLimits({ ops, faults, control, set, add, reset }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [newest, setNewest] = useState('');
  // A new row is there to be filled in, and the focus of a removed one would be lost. The focus moves with the
  // change itself: a later move would take it away from a field in which the user types already.
  useLayoutEffect(() => { if (newest) /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector(newest))?.focus(); setNewest(''); }, [newest]);
  const rest = OPERATIONS.filter((op) => !ops.includes(op));
  return html`<fieldset class="wide limits" ref=${box}><legend>Rate limits</legend>
    ${ops.length > 0 && html`<table><thead><tr><th scope="col">Operation</th>${LIMITS.map(([n, label]) => html`<th scope="col" key=${n}>${label}</th>`)}<th><span class="off-screen">Default</span></th></tr></thead>${ops.map((op) => {
      const names = keysOf(op), wrong = names.filter((n) => faults[n]);
      return html`<tbody key=${op}><tr><th scope="row"><code>${op}</code></th>${LIMITS.map(([n, label, none, min], i) => html`<td key=${n}><div class="field"><input type="number" min=${min} max="4294967295" placeholder=${none} aria-label=${`${op}: ${label}`} aria-describedby=${faults[names[i]] ? `${names[i]}-fault` : undefined} ...${control(names[i])} onInput=${set(names[i])}/></div></td>`)}<td class="back"><${Button} small aria-label=${`Default limits for ${op}`} onClick=${() => { reset(op); setNewest('select'); }}>Default</${Button}></td></tr>
        ${wrong.length > 0 && html`<tr><td colspan="5" class="field">${wrong.map((n) => html`<small key=${n} class="wrong" role="alert" id=${`${n}-fault`}>${faults[n]}</small>`)}</td></tr>`}</tbody>`;
    })}</table>`}
    ${rest.length > 0 && html`<${Field} label=${ops.length ? 'Limit another operation' : 'Limit an operation'} hint=${`${ops.length ? 'Operations that are not listed' : 'All operations'} have the limits of the host. Calls are counted for each owner separately.`}><select value="" onChange=${(e) => { const op = e.target.value; e.target.value = ''; if (op) { add(op); setNewest(`[name="rateLimits.${op}.callsPer10s"]`); } }}><option value="">choose one …</option>${rest.map((op) => html`<option key=${op} value=${op}>${op}</option>`)}</select></${Field}>`}</fieldset>`;
}

/** @param {{ endpoint: any, reload: () => Promise<any> }} props */
export function Settings({ endpoint, reload }) {
  const first = () => ({ ...Object.fromEntries([...FIELDS.map(([n]) => n), ...OPERATIONS.flatMap(keysOf)].map((n) => [n, String(get(endpoint, n) ?? '')])), ...Object.fromEntries(LISTS.map(([n]) => [n, (get(endpoint, n) ?? []).join('\n')])), name: endpoint.name ?? '', networkVolumeId: endpoint.networkVolumeId ?? '', maxFuel: endpoint.exactFuel ?? '', env: envText(endpoint.env) });
  const kept = drafts.get(endpoint.id);
  const [was] = useState(() => kept?.was ?? first());
  const [now, setNow] = useState(() => kept?.now ?? was);
  const volumes = useLoad((s) => list('v1/networkvolumes', s), []);
  const [faults, setFaults] = useState(/** @type {Record<string, string>} */ ({}));
  /** Operations that have their own limits here, or are about to. @type {[string[], (ops: string[]) => void]} */
  const [limited, setLimited] = useState(() => kept?.limited ?? own(was));
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  const set = (n) => (e) => { setNow({ ...now, [n]: e.target.value }); const { [n]: _, ...others } = faults; setFaults(others); };
  /** What each control has. @param {string} n */
  const control = (n) => ({ name: n, value: now[n], 'aria-invalid': faults[n] ? 'true' : undefined });
  /** Shows what is wrong beside the fields, and goes to the first of them. @param {Record<string, string>} found */
  const refuse = (found) => {
    setFaults(found);
    const first = [...form.current?.elements ?? []].find((e) => /** @type {HTMLInputElement} */ (e).name in found);
    /** @type {HTMLElement | undefined} */ (first)?.focus();
  };
  const changed = Object.keys(was).filter((n) => was[n] !== now[n]);
  /** Operations with a changed limit; the limits of an operation count as one setting. */
  const ops = OPERATIONS.filter((op) => keysOf(op).some((n) => changed.includes(n)));
  const others = changed.filter((n) => !n.startsWith('rateLimits.'));
  const count = others.length + ops.length;
  useEffect(() => { if (count) drafts.set(endpoint.id, { was, now, limited, count }); else drafts.delete(endpoint.id); }, [now, limited]);
  const undo = () => { setNow(was); setFaults({}); setLimited(own(was)); };
  const reset = (op) => {
    setNow({ ...now, ...Object.fromEntries(keysOf(op).map((n) => [n, ''])) });
    setFaults(Object.fromEntries(Object.entries(faults).filter(([n]) => !keysOf(op).includes(n))));
    setLimited(limited.filter((o) => o !== op));
  };
  const save = async () => {
    // A limit is a whole: its first field may be wrong although only another one was changed.
    const found = Object.fromEntries([...others, ...ops.flatMap(keysOf)].map((n) => [n, check(n, now)]).filter(([, why]) => why));
    // The value of a field whose text is no number is empty, as if nothing had been typed.
    for (const e of /** @type {any} */ (form.current?.elements ?? [])) if (e.validity.badInput) found[e.name] = 'This is not a number.';
    if (Object.keys(found).length) return refuse(found);
    /** @type {any} */
    const body = {};
    for (const n of others.filter((x) => x !== 'maxFuel')) {
      const field = FIELDS.find((f) => f[0] === n);
      let v = /** @type {any} */ (now[n]);
      if (field && typeof field[3][0] === 'number') v = v === '' ? 0 : Number(v);
      if (LISTS.some(([name]) => name === n)) v = words(v);
      if (field?.[3] === FLAG) v = v === 'true';
      if (n === 'env') v = envOf(v);
      const outer = n.split('.'), inner = /** @type {string} */ (outer.pop());
      outer.reduce((o, k) => o[k] ??= {}, body)[inner] = v;
    }
    if (ops.length) {
      // The call replaces the limits of all operations, so the others are sent as they are now on the host.
      body.rateLimits = (await json(`v1/endpoints/${seg(endpoint.id)}`)).rateLimits ?? {};
      for (const op of ops) {
        const given = LIMITS.map(([n]) => [n, now[`rateLimits.${op}.${n}`]]).filter(([, v]) => v !== '');
        if (given.length) body.rateLimits[op] = Object.fromEntries(given.map(([n, v]) => [n, Number(v)])); else delete body.rateLimits[op];
      }
    }
    // Numbers above 2^53 go as they were typed.
    const fuel = changed.includes('maxFuel') ? `"maxFuel":${BigInt(now.maxFuel || 0)}` : '';
    const raw = `{${[JSON.stringify(body).slice(1, -1), fuel].filter(Boolean).join(',')}}`;
    try { await json(`v1/endpoints/${seg(endpoint.id)}`, { method: 'PATCH', raw }); } catch (e) {
      // For a value that is no number the host names only the object around it.
      const n = changed.find((x) => e.message.includes(`\`${x}\``)) ?? changed.find((x) => e.message.includes(`\`${x.split('.')[0]}\``) && !/^\d*$/.test(now[x]));
      if (!n) throw e;
      return refuse({ [n]: e.message });
    }
    drafts.delete(endpoint.id);
    say('Saved. The settings apply to jobs that start from now on.');
    await reload();
  };
  const isShown = (f) => !f[0].startsWith('http.') || endpoint.type === 'LOAD_BALANCER';
  return html`<section class="panel"><div class="body"><form class="form" ref=${form} onSubmit=${(e) => e.preventDefault()}>
    <${Field} label="Name" error=${faults.name}><input ...${control('name')} onInput=${set('name')}/></${Field}>
    ${FIELDS.filter(isShown).map(([n, label, hint, bounds]) => html`<${Field} key=${n} label=${label} error=${faults[n]} hint=${label.endsWith('(ms)') && Number(now[n]) > 0 ? duration(Number(now[n])) : hint}>${typeof bounds[0] === 'string' ? html`<select ...${control(n)} onChange=${set(n)}>${bounds.map((b) => html`<option key=${b} value=${b}>${bounds === FLAG ? (b === 'true' ? 'yes' : 'no') : b}</option>`)}</select>` : html`<input type="number" min=${bounds[0]} max=${bounds[1]} ...${control(n)} onInput=${set(n)}/>`}</${Field}>`)}
    <${Field} label="Most fuel" hint="instructions of one attempt; empty: no bound but the time limit" error=${faults.maxFuel}><input inputmode="numeric" autocomplete="off" spellcheck=${false} ...${control('maxFuel')} onInput=${set('maxFuel')}/></${Field}>
    <${Field} label="Network volume" error=${faults.networkVolumeId}><select ...${control('networkVolumeId')} onChange=${set('networkVolumeId')}><option value="">none</option>${(volumes.data ?? []).map((v) => html`<option key=${v.id} value=${v.id}>${v.name} (${v.size} GB)</option>`)}</select></${Field}>
    ${LISTS.filter(isShown).map(([n, label, , hint]) => html`<${Field} key=${n} wide label=${label} hint=${hint} error=${faults[n]}><textarea rows="3" spellcheck=${false} ...${control(n)} onInput=${set(n)}></textarea></${Field}>`)}
    <${Field} wide label="Environment" hint="one NAME=value a line; it comes before that of the template" error=${faults.env}><textarea rows="3" ...${control('env')} onInput=${set('env')}></textarea></${Field}>
    <${RateLimits} ops=${limited} faults=${faults} control=${control} set=${set} add=${(op) => setLimited(OPERATIONS.filter((o) => o === op || limited.includes(o)))} reset=${reset}/>
    <div class=${`wide actions ${count ? 'save-bar' : ''}`}><span class=${count ? '' : 'faint'} aria-live="polite">${count ? html`<b>${count} unsaved ${count === 1 ? 'change' : 'changes'}</b> <span class="faint">${[...others.map((n) => LABELS[n]), ...ops.map((op) => `limits of ${op}`)].join(', ')}</span>` : 'Nothing is changed.'}</span><${Button} disabled=${!changed.length} onClick=${undo}>Discard</${Button}><${Button} kind="primary" disabled=${!changed.length} onClick=${save}>Save</${Button}></div></form></div></section>`;
}
