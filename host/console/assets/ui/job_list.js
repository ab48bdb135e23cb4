// The jobs that a filter matches, page by page, and the actions on them. Rows never move under the
// pointer: the list ends with the newest job that it had when it was opened, later ones are only counted
// ("37 newer"), and rows change in place. "All that match" acts through /v1/job-actions with the same end.
// All of these times are the host's: the clock of the browser may be another one.
import { html, useEffect, useMemo, useRef, useState } from '../lib/html.js';
import { json, query, seg } from '../lib/api.js';
import { awake, counts, seenAt } from '../lib/live.js';
import { paused } from '../lib/settings.js';
import { can } from '../lib/session.js';
import { useLoad } from '../lib/load.js';
import { num } from '../lib/format.js';
import { Button, Loading, Menu, Trouble, ended } from './parts.js';
import { Dialog, ask } from './dialog.js';
import { JobTable } from './job_table.js';
import { Progress, DONE } from './progress.js';
import { typing } from './keys.js';
import { say } from './toast.js';

/** `since`: milliseconds before the moment at which the list is opened.
 * @typedef {{ endpoint?: string[], status?: string[], tag?: string[], since?: number, from?: string, to?: string, idPrefix?: string, idPart?: string, error?: string }} Filter */
const PAGE = 50;
/** An action in a button, and while it is at work. “Cancel” closes dialogs, so jobs are stopped. */
const VERB = { retry: 'Retry', cancel: 'Stop', delete: 'Delete' };
const DOING = { retry: 'Retrying', cancel: 'Stopping', delete: 'Deleting' };
/** Why a button has no job. */
const NONE = { retry: 'None of the selected jobs has failed or timed out.', cancel: 'All of the selected jobs have ended.', delete: 'None of the selected jobs has ended.' };

/** The filter in the form of /v1/job-actions, which know no part of an id. @param {Filter} f */
const asAction = (f) => {
  const tags = Object.fromEntries((f.tag ?? []).map((t) => [t.slice(0, t.indexOf(':')), t.slice(t.indexOf(':') + 1)]));
  return { endpoints: f.endpoint?.length ? f.endpoint : undefined, statuses: f.status?.length ? f.status : undefined, tags: f.tag?.length ? tags : undefined, from: f.from, to: f.to, idPrefix: f.idPrefix, error: f.error };
};
/** @param {number} ms */
const iso = (ms) => new Date(ms).toISOString();
/** @param {number} n */
const jobsOf = (n) => `${num(n)} ${n === 1 ? 'job' : 'jobs'}`;
/** What an action can change. */
const FITS = { retry: (s) => s === 'FAILED' || s === 'TIMED_OUT', cancel: (s) => !ended(s), delete: ended };

/**
 * Preview, progress and abort of an action on all jobs of a filter.
 * @param {{ action: 'retry' | 'cancel' | 'delete', filter: Filter, onClose: () => void, onEnd: () => void }} props
 */
function Bulk({ action, filter, onClose, onEnd }) {
  const [found, setFound] = useState({ n: 0, fit: 0, done: false, more: false });
  const [id, setId] = useState('');
  useEffect(() => {
    const stop = new AbortController();
    (async () => {
      let cursor, n = 0, fit = 0, pages = 0;
      do {
        const page = await json(`v1/jobs${query({ ...filter, limit: 1000, cursor })}`, { signal: stop.signal });
        n += page.jobs.length;
        fit += page.jobs.filter((j) => FITS[action](j.status)).length;
        cursor = page.cursor;
        setFound({ n, fit, done: !cursor, more: !!cursor });
      } while (cursor && ++pages < 20);
    })().catch((e) => { if (!stop.signal.aborted) say(e.message, 'bad'); });
    return () => stop.abort();
  }, []);
  const begin = async () => setId((await json('v1/job-actions', { method: 'POST', body: { action, filter: asAction(filter) } })).id);
  const words = `${found.more ? 'more than ' : ''}${jobsOf(found.fit)}`;
  return html`<${Dialog} title=${`${VERB[action]} all jobs that match`} onClose=${onClose}>
    ${id ? html`<${Progress} id=${id} total=${found.done ? found.fit : undefined} onEnd=${onEnd}/><footer><${Button} onClick=${onClose}>Close</${Button}></footer>`
    : html`<p aria-live="polite"><strong>${words}</strong> will be ${DONE[action]}${found.n > found.fit ? `; ${num(found.n - found.fit)} more match, but their status does not permit it` : ''}.${found.done || found.more ? '' : ' Counting …'}</p>
      <p class="faint">Jobs that were submitted after this list was opened are left alone.${action === 'delete' ? ' Deleted jobs and their results cannot be brought back.' : ''}</p>
      <footer><${Button} onClick=${onClose}>Cancel</${Button}><${Button} kind=${action === 'retry' ? 'primary' : 'danger'} disabled=${!found.fit} onClick=${begin}>${VERB[action]} ${words}</${Button}></footer>`}</${Dialog}>`;
}

/** @param {{ filter: Filter, empty: any, endpoint?: boolean, tagTo?: (k: string, v: string) => string }} props */
export function JobList({ filter, empty, endpoint = true, tagTo }) {
  const key = JSON.stringify(filter);
  // Grows each time the list is opened again. The first answer fixes the list's end, so that all pages
  // and actions mean the same jobs.
  const [opened, setOpened] = useState(0);
  const [end, setEnd] = useState(/** @type {{ opened: number, at: number } | null} */ (null));
  const [cursors, setCursors] = useState(/** @type {(string | undefined)[]} */ ([undefined]));
  const [picked, setPicked] = useState(/** @type {Set<string>} */ (new Set()));
  const [everything, setEverything] = useState(false);
  const [bulk, setBulk] = useState(/** @type {any} */ (null));
  // The action that runs on the selected jobs now.
  const [work, setWork] = useState('');
  const again = () => { setOpened((n) => n + 1); setCursors([undefined]); setPicked(new Set()); setEverything(false); };
  const before = useRef(key);
  useEffect(() => { if (before.current !== key) { before.current = key; again(); } }, [key]);
  const endAt = end?.opened === opened ? end.at : undefined;
  const from = useMemo(() => filter.since ? iso((seenAt.peek() || Date.now()) - filter.since) : filter.from, [key, opened]);
  const full = useMemo(() => ({ ...filter, since: undefined, from, to: filter.to ?? (endAt === undefined ? undefined : iso(endAt + 1)) }), [key, from, endAt]);
  const cursor = cursors[cursors.length - 1];
  // A page of a rare match may come back short, with a cursor: it is filled up to a bound of calls.
  const read = async (signal) => {
    const of = opened;
    const jobs = [];
    let next = cursor;
    for (let calls = 0; calls < 8 && jobs.length < PAGE; calls++) {
      const page = await json(`v1/jobs${query({ ...full, limit: PAGE - jobs.length, cursor: next })}`, { signal });
      jobs.push(...page.jobs);
      next = page.cursor;
      if (!next) break;
    }
    setEnd((e) => e?.opened === of ? e : { opened: of, at: jobs.length ? Date.parse(jobs[0].createdAt) : 0 });
    return { jobs, cursor: next, at: cursor };
  };
  const { data, error, loading, reload, set } = useLoad(read, [key, opened, cursor], { keep: true });
  const pages = useRef(data);
  pages.current = data;

  // The counts are those of endpoints: which of the new jobs match a narrower filter is not known.
  const narrow = !!(filter.status?.length || filter.tag?.length || filter.idPrefix || filter.idPart || filter.error);
  const total = Object.entries(counts.value).reduce((n, [id, c]) => !filter.endpoint?.length || filter.endpoint.includes(id) ? n + c.submitted : n, 0);
  // The total at the end of the list: that of the newest event, and one call for the jobs between the two.
  const [base, setBase] = useState(/** @type {{ opened: number, total: number } | null} */ (null));
  const counted = seenAt.value > 0 && Object.keys(counts.value).length > 0;
  useEffect(() => {
    if (endAt === undefined || !counted || base?.opened === opened) return;
    if (narrow) { setBase({ opened, total }); return; }
    const stop = new AbortController();
    const [seen, sum] = [seenAt.peek(), total];
    const [from, to] = [Math.min(seen, endAt), Math.max(seen, endAt)];
    json(`v1/jobs${query({ endpoint: filter.endpoint, from: iso(from + 1), to: iso(to + 1), limit: 1000 })}`, { signal: stop.signal })
      .then(({ jobs }) => setBase({ opened, total: sum - Math.sign(seen - endAt) * jobs.length }), () => {});
    return () => stop.abort();
  }, [opened, endAt, counted]);
  const newer = base?.opened === opened ? Math.max(0, total - base.total) : 0;

  const unfinished = data?.jobs.some((j) => !j.old && !ended(j.status));
  useEffect(() => {
    if (!unfinished || paused.value) return;
    let busy = false;
    const timer = setInterval(async () => {
      const now = pages.current;
      if (busy || !awake.peek() || now?.at !== cursor) return;
      busy = true;
      try {
        const fresh = new Map((await read()).jobs.map((j) => [j.id, j]));
        // A row that no longer matches the filter stays, a little paler, until the list is opened again.
        if (pages.current === now) set({ ...now, jobs: now.jobs.map((j) => fresh.get(j.id) ?? { ...j, old: true }) });
      } catch { /* the next round tries again */ } finally { busy = false; }
    }, 2000);
    return () => clearInterval(timer);
  }, [unfinished, full, cursor, paused.value]);

  const pick = (ids, on) => { setEverything(false); setPicked((p) => { const n = new Set(p); for (const id of ids) if (on) n.add(id); else n.delete(id); return n; }); };
  const fit = (action) => (data?.jobs ?? []).filter((j) => picked.has(j.id) && FITS[action](j.status));
  const act = async (action) => {
    if (everything) { setBulk(action); return; }
    const rows = fit(action);
    const of = new Set(rows.map((j) => j.endpointId));
    const what = jobsOf(rows.length);
    if (action === 'delete' && !await ask(`Delete ${what}?`, `${what} of ${of.size === 1 ? [...of][0] : `${num(of.size)} endpoints`} will be deleted with ${rows.length === 1 ? 'its' : 'their'} results. This cannot be taken back.`, `Delete ${what}`)) return;
    let done = 0, refused;
    for (const j of rows) try {
      setWork(`${DOING[action]} ${num(done + 1)} of ${num(rows.length)} …`);
      if (action === 'delete') {
        // There is no call that deletes one job: an action on its whole id does.
        const a = await json('v1/job-actions', { method: 'POST', body: { action, filter: { endpoints: [j.endpointId], idPrefix: j.id } } });
        for (let state = a.state; state === 'RUNNING';) { await new Promise((f) => setTimeout(f, 100)); state = (await json(`v1/job-actions/${a.id}`)).state; }
      } else await json(`v2/${seg(j.endpointId)}/${action}/${seg(j.id)}`, { method: 'POST' });
      done++;
    } catch (e) {
      refused = e;
      // A job may have changed meanwhile; the others need not have.
      if (e.status !== 400 && e.status !== 404) break;
    }
    if (refused) say(`${num(done)} of ${num(rows.length)} jobs ${DONE[action]}. ${refused.message}`, 'bad');
    else say(`${num(done)} ${done === 1 ? 'job' : 'jobs'} ${DONE[action]}.`);
    setWork('');
    setPicked(new Set());
    await reload();
  };
  const chosen = everything || picked.size > 0;
  const clear = () => { setEverything(false); setPicked(new Set()); };
  useEffect(() => {
    if (!chosen) return;
    const key = (e) => { if (e.key === 'Escape' && !typing(e) && !document.querySelector('dialog[open]')) clear(); };
    addEventListener('keydown', key);
    return () => removeEventListener('keydown', key);
  }, [chosen]);
  // Only the jobs that are shown can be selected one by one.
  const turn = (to) => { setPicked(new Set()); setCursors(to); };
  const jobs = data?.jobs ?? [];
  const write = can('submit');
  const n = picked.size;
  // Selected jobs are counted, so that a button says what it will do; those of the whole filter are counted in the dialog.
  const button = (action) => {
    const count = everything ? 1 : fit(action).length;
    return html`<${Button} small disabled=${!count || !!work} title=${count ? undefined : NONE[action]} onClick=${() => act(action)}>${VERB[action]}${everything ? ' all …' : count ? ` ${num(count)}${action === 'delete' ? ' …' : ''}` : ''}</${Button}>`;
  };
  return html`<section class="panel" aria-busy=${loading}><div class="bar">
      ${chosen ? html`<strong aria-live="polite">${work || (everything ? 'All that match are selected' : `${num(n)} selected`)}</strong>${!everything && !filter.idPart && html`<${Button} small kind="quiet" onClick=${() => setEverything(true)}>Select all that match</${Button}>`}<${Button} small kind="quiet" onClick=${clear}>Clear</${Button}><span class="grow"></span>
        ${button('retry')}${button('cancel')}<${Menu} label="More actions on the selected jobs">${button('delete')}</${Menu}>`
      : html`<span class="faint">${cursors.length > 1 ? `Page ${cursors.length}` : 'Newest first'}</span><span class="grow"></span>${newer > 0 && html`<button type="button" class="newer" onClick=${again}>${num(newer)} ${narrow ? 'submitted since' : 'newer'}</button>`}<${Button} small kind="quiet" onClick=${again}>Refresh</${Button}>`}</div>
    <${Trouble} error=${error} retry=${reload}/>
    ${loading && !data ? html`<${Loading} rows=${10}/>` : jobs.length ? html`<${JobTable} jobs=${jobs} endpoint=${endpoint} tagTo=${tagTo} picked=${everything ? new Set(jobs.map((j) => j.id)) : picked} pick=${write ? pick : undefined}/>` : error ? null : empty}
    ${(data?.cursor || cursors.length > 1) && html`<div class="bar"><${Button} small disabled=${cursors.length < 2} onClick=${() => turn(cursors.slice(0, -1))}>Newer</${Button}><${Button} small disabled=${!data?.cursor} onClick=${() => turn([...cursors, data?.cursor])}>Older</${Button}></div>`}
    ${bulk && html`<${Bulk} action=${bulk} filter=${full} onClose=${() => { setBulk(null); again(); }} onEnd=${() => {}}/>`}</section>`;
}
