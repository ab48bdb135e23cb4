// Schedules: jobs that the host submits at certain times. Without an id in the address the page is their list, with
// one it is the times of that schedule.
import { html } from '../lib/html.js';
import { json, seg, text } from '../lib/api.js';
import { member, pretty, problem } from '../lib/json.js';
import { useLoad } from '../lib/load.js';
import { link } from '../lib/router.js';
import { brief, num, shortId } from '../lib/format.js';
import { visible } from '../lib/text.js';
import { Head, Facts, Field, Table, Time, Trouble, Loading, Button, Empty } from '../ui/parts.js';
import { Collection } from '../ui/collection.js';
import { Json } from '../ui/json_view.js';
import { say } from '../ui/toast.js';

const times = (s) => s.cron ? html`<span class="mono">${visible(s.cron)}</span> <span class="sub-line">${s.timeZone}</span>` : html`every ${num(s.everyMs)} ms`;
const OUTCOME = { job: 'Job', skipped: 'Skipped', missed: 'Missed' };
const kind = {
  title: 'Schedules', one: 'Schedule', path: 'v1/schedules', sub: 'The host submits a job at each time of a schedule.',
  empty: { title: 'No schedule yet', text: 'A schedule submits jobs to an endpoint, such as one each night.', command: "gristmill schedules create nightly --endpoint mill --cron '0 4 * * *'" },
  head: ['Id', 'Endpoint', 'Times', 'Next', ['Jobs', 'n'], ['Left out', 'n']], first: { id: '', endpointId: '', cron: '0 4 * * *', timeZone: 'UTC', everyMs: '', input: '{}', overlap: 'skip', paused: false },
  row: (s) => html`<td><a class="endpoint-name" href=${link(['schedules', s.id])}>${s.id}</a></td><td><a href=${link(['endpoints', s.endpointId])}>${s.endpointId}</a></td><td>${times(s)}</td><td>${s.paused ? 'paused' : html`<${Time} at=${s.next[0]} show=${brief}/>`}</td><td class="n">${num(s.jobs)}</td><td class="n">${num(s.skipped + s.missed)}</td>`,
  form: (v, set) => html`${v.isNew !== false && html`<${Field} label="Id"><input required value=${v.id} onInput=${set('id')}/></${Field}>`}<${Field} label="Endpoint"><input required value=${v.endpointId} onInput=${set('endpointId')}/></${Field}>
    <${Field} label="Times" hint="minute, hour, day of the month, month, day of the week"><input spellcheck=${false} value=${v.cron} onInput=${set('cron')}/></${Field}><${Field} label="Time zone"><input value=${v.timeZone} onInput=${set('timeZone')}/></${Field}><${Field} label="Or every … milliseconds"><input type="number" min="1000" value=${v.everyMs} onInput=${set('everyMs')}/></${Field}>
    <${Field} label="While an earlier job runs"><select value=${v.overlap} onChange=${set('overlap')}><option value="skip">leave the time out</option><option value="queue">wait for its end</option><option value="cancel">cancel it</option></select></${Field}><${Field} label="Paused"><input type="checkbox" checked=${v.paused} onChange=${set('paused')}/></${Field}>
    <${Field} wide label="Input" hint="a JSON object"><textarea rows="4" spellcheck=${false} value=${v.input} onInput=${set('input')}></textarea></${Field}>`,
  body: ({ isNew, input, cron, everyMs, timeZone, ...v }, before) => {
    const wrong = problem(input);
    if (wrong) throw new Error(`The input is ${wrong}.`);
    const isOther = (name, value) => isNew !== false || before[name] !== value;
    const fields = Object.fromEntries(Object.entries(v).filter(([name, value]) => isOther(name, value)));
    const haveTimes = isOther('cron', cron) || isOther('everyMs', everyMs) || isOther('timeZone', timeZone);
    if (haveTimes) Object.assign(fields, cron ? { cron } : {}, timeZone && cron ? { timeZone } : {}, everyMs ? { everyMs: Number(everyMs) } : {});
    const all = Object.entries(fields).map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`);
    // The text of the input is sent as it was written: `JSON.parse` would round large numbers.
    return `{${[...all, ...isOther('input', input) ? [`"input":${input}`] : []].join()}}`;
  },
  change: async (s) => ({ isNew: false, endpointId: s.endpointId, cron: s.cron ?? '', everyMs: s.everyMs ? String(s.everyMs) : '', timeZone: s.timeZone ?? '', input: pretty(member(await text(`v1/schedules/${seg(s.id)}`), 'input') ?? '{}'), overlap: s.overlap, paused: s.paused }),
  removal: () => 'Its jobs stay.',
};

/** @param {{ id: string }} props */
function One({ id }) {
  const { data, error, reload } = useLoad((signal) => text(`v1/schedules/${seg(id)}`, { signal }), [id], { keep: true });
  const s = data && JSON.parse(data);
  const change = (body, done) => async () => { await json(`v1/schedules/${seg(id)}`, { method: 'PATCH', body }); say(done); await reload(); };
  const run = async () => { const job = await json(`v1/schedules/${seg(id)}/run`, { method: 'POST' }); say(`Job ${shortId(job.id)} was submitted.`); await reload(); };
  return html`<${Head} title=${s ? visible(s.name) : id} crumbs=${[['Schedules', '#/schedules']]}>${s && html`<${Button} onClick=${run}>Run now</${Button}>${s.paused ? html`<${Button} kind="primary" onClick=${change({ paused: false }, 'The pause has ended.')}>Resume</${Button}>` : html`<${Button} onClick=${change({ paused: true }, 'No jobs are submitted for now.')}>Pause</${Button}>`}`}</${Head}><${Trouble} error=${error} retry=${reload}/>
    ${!s ? error ? null : html`<${Loading}/>` : html`<section class="panel"><div class="body"><${Facts} pairs=${[['Endpoint', html`<a href=${link(['endpoints', s.endpointId])}>${s.endpointId}</a>`], ['Times', times(s)], ['While an earlier job runs', s.overlap], ['Jobs', html`<a href=${link(['jobs'], { tag: `schedule:${s.id}` })}>${num(s.jobs)}</a>`], ['Skipped', num(s.skipped)], ['Missed', num(s.missed)], ['Paused', s.paused ? 'yes' : 'no']]}/></div></section>
    <div class="two"><section class="panel"><header><h2>Last times</h2></header>${!s.ticks.length ? html`<${Empty} title="No time yet"/>` : html`<${Table} label="Last times" head=${['Time', 'Became', 'Job or reason']}>${s.ticks.map((t) => html`<tr key=${t.at}><td><${Time} at=${t.at} show=${brief}/></td><td>${OUTCOME[t.outcome]}</td><td>${t.jobId ? html`<a class="id" href=${link(['jobs', t.endpointId, t.jobId])}>${shortId(t.jobId)}</a>` : visible(t.reason ?? '')}</td></tr>`)}</${Table}>`}</section>
    <section class="panel"><header><h2>Next times</h2></header><div class="body">${s.next.length ? html`<ol>${s.next.map((at) => html`<li key=${at}><${Time} at=${at} show=${brief}/></li>`)}</ol>` : html`<p class="faint">None while it is paused.</p>`}</div></section></div>
    <section class="panel"><header><h2>Input</h2></header><${Json} text=${member(data, 'input')} label="Input"/></section>`}`;
}

/** @param {{ path: string[] }} props */
export const Page = ({ path: [, id] }) => id ? html`<${One} key=${id} id=${id}/>` : html`<${Collection} kind=${kind}/>`;
