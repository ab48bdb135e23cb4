// The settings of an endpoint as a form. It sends only what was changed; the host checks the bounds, and
// its sentence is shown beside the field that it names.
import { html, useState, useRef } from '../lib/html.js';
import { json, seg, list } from '../lib/api.js';
import { envOf, envText } from '../lib/env.js';
import { useLoad } from '../lib/load.js';
import { Button, Field } from './parts.js';
import { say } from './toast.js';
import { duration } from '../lib/format.js';
import { visible } from '../lib/text.js';

/** @type {[string, string, string, [number, number] | string[], number?][]} name, label, hint, bounds or values, unit in ms */
export const FIELDS = [
  ['workersMin', 'Workers kept', 'without any job', [0, 1000]], ['workersMax', 'Most workers', '0 pauses the endpoint', [0, 1000]],
  ['idleTimeout', 'A worker waits (s)', 'for another job, then it ends', [1, 3600]], ['scalerType', 'Start a worker by', '', ['REQUEST_COUNT', 'QUEUE_DELAY']], ['scalerValue', 'Scaler value', 'jobs for each worker, or seconds of waiting', [1, 3600]],
  ['executionTimeoutMs', 'Time limit of a job (ms)', '5,000 to 604,800,000', [5000, 604800000]], ['memoryMib', 'Memory of a job (MiB)', '1 to 4,096', [1, 4096]], ['metering', 'Metering', 'epoch is faster, fuel is exact', ['fuel', 'epoch']],
  ['reuse.maxJobs', 'Jobs of one instance', '1: a new instance for each job', [1, 1000000]], ['reuse.maxIdle', 'An instance waits (s)', '', [1, 3600]], ['maxWaitingJobs', 'Most waiting jobs', "empty: the host's bound", [0, 10000000]],
  ['retention.completed', 'Keep completed (ms)', 'empty: 30 min for run', [0, 2592000000]], ['retention.failed', 'Keep failed (ms)', '', [0, 2592000000]], ['retention.cancelled', 'Keep cancelled (ms)', '', [0, 2592000000]],
];
const FUEL_MAX = 2n ** 64n - 1n;
/** The reason why a text cannot be sent as the value of its field. @type {Record<string, (text: string) => string | undefined>} */
const CHECKS = {
  maxFuel: (t) => t === '' || /^\d{1,20}$/.test(t) && BigInt(t) <= FUEL_MAX ? undefined : 'A whole number of at most 18,446,744,073,709,551,615 is allowed, or an empty field.',
  env: (t) => { const bad = t.split('\n').find((l) => l.trim() && !l.includes('=')); return bad && `${visible(bad.slice(0, 40))} has no =: a line is NAME=value.`; },
  callEndpoints: (t) => { const bad = words(t).find((id) => !/^[A-Za-z0-9_-]{1,128}$/.test(id)); return bad && `${visible(bad.slice(0, 40))} is not the id of an endpoint: an id has letters, digits, - and _.`; },
};
const words = (t) => t.split(/[\s,]+/).filter(Boolean);
export const get = (o, name) => name.split('.').reduce((v, k) => v?.[k], o);

/** @param {{ endpoint: any, reload: () => Promise<any> }} props */
export function Settings({ endpoint, reload }) {
  const first = () => ({ ...Object.fromEntries(FIELDS.map(([n]) => [n, String(get(endpoint, n) ?? '')])), name: endpoint.name ?? '', networkVolumeId: endpoint.networkVolumeId ?? '', allowedHosts: (endpoint.allowedHosts ?? []).join('\n'), callEndpoints: (endpoint.callEndpoints ?? []).join('\n'), maxFuel: endpoint.exactFuel ?? '', propagateTraces: String(endpoint.propagateTraces ?? false), env: envText(endpoint.env) });
  const [was] = useState(first);
  const [now, setNow] = useState(first);
  const volumes = useLoad((s) => list('v1/networkvolumes', s), []);
  const [faults, setFaults] = useState(/** @type {Record<string, string>} */ ({}));
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
  const save = async () => {
    const found = Object.fromEntries(changed.map((n) => [n, CHECKS[n]?.(now[n])]).filter(([, why]) => why));
    if (Object.keys(found).length) return refuse(found);
    /** @type {any} */
    const body = {};
    for (const n of changed.filter((x) => x !== 'maxFuel')) {
      const field = FIELDS.find((f) => f[0] === n);
      let v = /** @type {any} */ (now[n]);
      if (field && typeof field[3][0] === 'number') v = v === '' ? 0 : Number(v);
      if (n === 'allowedHosts') v = v.split(/\s+/).filter(Boolean);
      if (n === 'callEndpoints') v = words(v);
      if (n === 'propagateTraces') v = v === 'true';
      if (n === 'env') v = envOf(v);
      const [outer, inner] = n.split('.');
      if (inner) body[outer] = { ...(outer === 'reuse' ? endpoint.reuse : {}), ...body[outer], [inner]: v }; else body[n] = v;
    }
    // Numbers above 2^53 go as they were typed.
    const fuel = changed.includes('maxFuel') ? `"maxFuel":${BigInt(now.maxFuel || 0)}` : '';
    const raw = `{${[JSON.stringify(body).slice(1, -1), fuel].filter(Boolean).join(',')}}`;
    try { await json(`v1/endpoints/${seg(endpoint.id)}`, { method: 'PATCH', raw }); } catch (e) {
      const n = changed.find((x) => e.message.includes(`\`${x}\``));
      if (!n) throw e;
      return refuse({ [n]: e.message });
    }
    say('Saved. The settings apply to jobs that start from now on.');
    await reload();
  };
  return html`<section class="panel"><div class="body"><form class="form" ref=${form} onSubmit=${(e) => e.preventDefault()}>
    <${Field} label="Name" error=${faults.name}><input ...${control('name')} onInput=${set('name')}/></${Field}>
    ${FIELDS.map(([n, label, hint, bounds]) => html`<${Field} key=${n} label=${label} error=${faults[n]} hint=${label.endsWith('(ms)') && Number(now[n]) > 0 ? duration(Number(now[n])) : hint}>${typeof bounds[0] === 'string' ? html`<select ...${control(n)} onChange=${set(n)}>${bounds.map((b) => html`<option key=${b} value=${b}>${b}</option>`)}</select>` : html`<input type="number" min=${bounds[0]} max=${bounds[1]} ...${control(n)} onInput=${set(n)}/>`}</${Field}>`)}
    <${Field} label="Most fuel" hint="instructions of one attempt; empty: enough for the time limit" error=${faults.maxFuel}><input inputmode="numeric" autocomplete="off" spellcheck=${false} ...${control('maxFuel')} onInput=${set('maxFuel')}/></${Field}>
    <${Field} label="Traces go on" hint="requests and webhooks carry traceparent and tracestate" error=${faults.propagateTraces}><select ...${control('propagateTraces')} onChange=${set('propagateTraces')}><option value="false">no</option><option value="true">yes</option></select></${Field}>
    <${Field} label="Network volume" error=${faults.networkVolumeId}><select ...${control('networkVolumeId')} onChange=${set('networkVolumeId')}><option value="">none</option>${(volumes.data ?? []).map((v) => html`<option key=${v.id} value=${v.id}>${v.name} (${v.size} GB)</option>`)}</select></${Field}>
    <${Field} wide label="Hosts that its handlers may call" hint="one a line: example.com, *.example.com, example.com:8443" error=${faults.allowedHosts}><textarea rows="3" ...${control('allowedHosts')} onInput=${set('allowedHosts')}></textarea></${Field}>
    <${Field} wide label="Endpoints that its handlers may submit jobs to" hint="one id a line, of the same owner; they need not exist yet" error=${faults.callEndpoints}><textarea rows="3" spellcheck=${false} ...${control('callEndpoints')} onInput=${set('callEndpoints')}></textarea></${Field}>
    <${Field} wide label="Environment" hint="one NAME=value a line; it comes before that of the template" error=${faults.env}><textarea rows="3" ...${control('env')} onInput=${set('env')}></textarea></${Field}>
    <div class="wide actions"><${Button} kind="primary" disabled=${!changed.length} onClick=${save}>Save</${Button}><${Button} disabled=${!changed.length} onClick=${() => { setNow(was); setFaults({}); }}>Undo</${Button}><span class="faint" aria-live="polite">${changed.length ? `${changed.length} changed` : 'Nothing is changed.'}</span></div></form></div></section>`;
}
