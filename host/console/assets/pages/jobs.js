// Jobs of all endpoints. The filter is the address, so a link to it is a saved view.
import { html, useState } from '../lib/html.js';
import { replace, link, go } from '../lib/router.js';
import { curl } from '../lib/api.js';
import { counts } from '../lib/live.js';
import { Head, Empty, Status, STATUSES, Button } from '../ui/parts.js';
import { visible } from '../lib/text.js';
import { Icon } from '../ui/icons.js';
import { JobList } from '../ui/job_list.js';

const SINCE = [['', 'Any time'], ['15m', 'Last 15 minutes'], ['1h', 'Last hour'], ['24h', 'Last day'], ['7d', 'Last 7 days']];
const MS = { '15m': 9e5, '1h': 36e5, '24h': 864e5, '7d': 6048e5 };

/**
 * What a search means: `key:value` is a tag, an id or a part of it is one, the rest is text of an error. The host finds
 * the beginning of an id without a look at other jobs, and any other part with one.
 * @param {string} q @returns {{ tag?: string[], idPrefix?: string, idPart?: string, error?: string }}
 */
function meaning(q) {
  const t = q.trim();
  if (!t) return {};
  if (/^[a-z0-9._/-]+:./.test(t)) return { tag: [t] };
  if (/^(sync-|call[1-8]-|01[0-9a-f]{6}-)[0-9a-f-]*$/.test(t)) return { idPrefix: t };
  if (/^[0-9a-f][0-9a-f-]{3,}$/.test(t)) return { idPart: t };
  return { error: t };
}

/** @param {{ query: URLSearchParams }} props */
export function Page({ query }) {
  const [text, setText] = useState('');
  const q = query.get('q') ?? '';
  const now = { status: query.getAll('status'), endpoint: query.getAll('endpoint'), tag: query.getAll('tag'), since: query.get('since') ?? '', q };
  const to = (change) => link(['jobs'], { ...now, ...change });
  const set = (change) => replace(to(change));
  const found = meaning(q);
  const filter = { endpoint: now.endpoint, status: now.status, tag: [...now.tag, ...(found.tag ?? [])], idPrefix: found.idPrefix, idPart: found.idPart, error: found.error, since: MS[now.since] };
  // A search becomes a condition with a name, so the field is free for the next one.
  const search = (e) => {
    e.preventDefault();
    const { tag } = meaning(text);
    if (text.trim()) set(tag ? { tag: [...new Set([...now.tag, ...tag])] } : { q: text.trim() });
    setText('');
  };
  const tagText = (t) => `tag ${t.slice(0, t.indexOf(':'))} = ${t.slice(t.indexOf(':') + 1)}`;
  /** What each condition is, and the filter without it. @type {[string, any][]} */
  const terms = now.tag.map((t) => [tagText(t), { tag: now.tag.filter((x) => x !== t) }]);
  if (q.trim()) terms.push([found.tag ? tagText(found.tag[0]) : found.error ? `error contains “${found.error}”` : found.idPart ? `id contains ${found.idPart}` : `id begins with ${found.idPrefix}`, { q: '' }]);
  const any = now.status.length || now.endpoint.length || now.tag.length || now.since || q;
  const names = [...new Set([...Object.keys(counts.value), ...now.endpoint])].sort();
  return html`<${Head} title="Jobs"/>
    <div class="filters" role="search"><form class="search" onSubmit=${search}><${Icon} name="search"/><input type="search" data-search aria-label="Search: id, key:value of a tag, or text of an error" placeholder="id, tag key:value, or error text" value=${text} onInput=${(e) => setText(e.target.value)}/></form>
      <select aria-label="Endpoint" value=${now.endpoint[0] ?? ''} onChange=${(e) => set({ endpoint: e.target.value ? [e.target.value] : [] })}><option value="">All endpoints</option>${names.map((n) => html`<option key=${n} value=${n}>${n}</option>`)}</select>
      <select aria-label="Submitted" value=${now.since} onChange=${(e) => set({ since: e.target.value })}>${SINCE.map(([v, t]) => html`<option key=${v} value=${v}>${t}</option>`)}</select></div>
    <div class="filters" role="group" aria-label="Status">${STATUSES.map((s) => html`<button key=${s} type="button" class="chip" aria-pressed=${now.status.includes(s)} onClick=${() => set({ status: now.status.includes(s) ? now.status.filter((x) => x !== s) : [...now.status, s] })}><${Status} of=${s}/></button>`)}
      ${terms.map(([t, without]) => html`<button key=${t} type="button" class="chip" aria-pressed="true" aria-label=${`Remove ${t}`} title=${t} onClick=${() => set(without)}><span>${visible(t)}</span> ×</button>`)}
      <a class="chip" href=${link(['jobs'], { status: ['IN_QUEUE', 'IN_PROGRESS'] })}>In flight</a><a class="chip" href=${link(['jobs'], { status: ['FAILED', 'TIMED_OUT'], since: '1h' })}>Failed in the last hour</a>
      ${any && html`<${Button} small kind="quiet" onClick=${() => go('#/jobs')}>Clear filters</${Button}>`}</div>
    <${JobList} filter=${filter} tagTo=${(k, v) => to({ tag: [...new Set([...now.tag, `${k}:${v}`])] })} empty=${any ? html`<${Empty} title="No job matches">Older jobs may have been deleted: an endpoint's retention decides how long they are kept.</${Empty}>`
      : html`<${Empty} title="No job yet" command=${curl('ENDPOINT/run', '{"input":{}}')}>A client submits jobs over HTTP; the page Playground does the same.</${Empty}>`}/>`;
}
