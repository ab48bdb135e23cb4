// The settings of an endpoint as a form. It sends only what was changed; the host checks the bounds, and
// its sentence is shown.
import { html, useState } from '../lib/html.js';
import { json, seg, list } from '../lib/api.js';
import { useLoad } from '../lib/load.js';
import { Button, Field } from './parts.js';
import { say } from './toast.js';
import { duration } from '../lib/format.js';

/** @type {[string, string, string, [number, number] | string[], number?][]} name, label, hint, bounds or values, unit in ms */
export const FIELDS = [
  ['workersMin', 'Workers kept', 'without any job', [0, 1000]], ['workersMax', 'Most workers', '0 pauses the endpoint', [0, 1000]],
  ['idleTimeout', 'A worker waits (s)', 'for another job, then it ends', [1, 3600]], ['scalerType', 'Start a worker by', '', ['REQUEST_COUNT', 'QUEUE_DELAY']], ['scalerValue', 'Scaler value', 'jobs for each worker, or seconds of waiting', [1, 3600]],
  ['executionTimeoutMs', 'Time limit of a job (ms)', '5,000 to 604,800,000', [5000, 604800000]], ['memoryMib', 'Memory of a job (MiB)', '1 to 4,096', [1, 4096]], ['metering', 'Metering', 'epoch is faster, fuel is exact', ['fuel', 'epoch']],
  ['reuse.maxJobs', 'Jobs of one instance', '1: a new instance for each job', [1, 1000000]], ['reuse.maxIdle', 'An instance waits (s)', '', [1, 3600]], ['maxWaitingJobs', 'Most waiting jobs', "empty: the host's bound", [0, 10000000]],
  ['retention.completed', 'Keep completed (ms)', 'empty: 30 min for run', [0, 2592000000]], ['retention.failed', 'Keep failed (ms)', '', [0, 2592000000]], ['retention.cancelled', 'Keep cancelled (ms)', '', [0, 2592000000]],
];
export const get = (o, name) => name.split('.').reduce((v, k) => v?.[k], o);

/** @param {{ endpoint: any, reload: () => Promise<any> }} props */
export function Settings({ endpoint, reload }) {
  const first = () => ({ ...Object.fromEntries(FIELDS.map(([n]) => [n, String(get(endpoint, n) ?? '')])), name: endpoint.name ?? '', networkVolumeId: endpoint.networkVolumeId ?? '', allowedHosts: (endpoint.allowedHosts ?? []).join('\n'), env: Object.entries(endpoint.env ?? {}).map(([k, v]) => `${k}=${v}`).join('\n') });
  const [was] = useState(first);
  const [now, setNow] = useState(first);
  const volumes = useLoad((s) => list('v1/networkvolumes', s), []);
  const set = (n) => (e) => setNow({ ...now, [n]: e.target.value });
  const changed = Object.keys(was).filter((n) => was[n] !== now[n]);
  const save = async () => {
    /** @type {any} */
    const body = {};
    for (const n of changed) {
      const field = FIELDS.find((f) => f[0] === n);
      let v = /** @type {any} */ (now[n]);
      if (field && typeof field[3][0] === 'number') v = v === '' ? 0 : Number(v);
      if (n === 'allowedHosts') v = v.split(/\s+/).filter(Boolean);
      if (n === 'env') v = Object.fromEntries(v.split('\n').filter((l) => l.includes('=')).map((l) => [l.slice(0, l.indexOf('=')).trim(), l.slice(l.indexOf('=') + 1)]));
      const [outer, inner] = n.split('.');
      if (inner) body[outer] = { ...(outer === 'reuse' ? endpoint.reuse : {}), ...body[outer], [inner]: v }; else body[n] = v;
    }
    await json(`v1/endpoints/${seg(endpoint.id)}`, { method: 'PATCH', body });
    say('Saved. The settings apply to jobs that start from now on.');
    await reload();
  };
  return html`<section class="panel"><div class="body"><form class="form" onSubmit=${(e) => e.preventDefault()}>
    <${Field} label="Name"><input value=${now.name} onInput=${set('name')}/></${Field}>
    ${FIELDS.map(([n, label, hint, bounds]) => html`<${Field} key=${n} label=${label} hint=${label.endsWith('(ms)') && Number(now[n]) > 0 ? duration(Number(now[n])) : hint}>${typeof bounds[0] === 'string' ? html`<select value=${now[n]} onChange=${set(n)}>${bounds.map((b) => html`<option key=${b} value=${b}>${b}</option>`)}</select>` : html`<input type="number" min=${bounds[0]} max=${bounds[1]} value=${now[n]} onInput=${set(n)}/>`}</${Field}>`)}
    <${Field} label="Network volume"><select value=${now.networkVolumeId} onChange=${set('networkVolumeId')}><option value="">none</option>${(volumes.data ?? []).map((v) => html`<option key=${v.id} value=${v.id}>${v.name} (${v.size} GB)</option>`)}</select></${Field}>
    <${Field} wide label="Hosts that its handlers may call" hint="one a line: example.com, *.example.com, example.com:8443"><textarea rows="3" value=${now.allowedHosts} onInput=${set('allowedHosts')}></textarea></${Field}>
    <${Field} wide label="Environment" hint="one NAME=value a line; it comes before that of the template"><textarea rows="3" value=${now.env} onInput=${set('env')}></textarea></${Field}>
    <div class="wide actions"><${Button} kind="primary" disabled=${!changed.length} onClick=${save}>Save</${Button}><${Button} disabled=${!changed.length} onClick=${() => setNow(was)}>Undo</${Button}><span class="faint" aria-live="polite">${changed.length ? `${changed.length} changed` : 'Nothing is changed.'}</span></div></form></div></section>`;
}
