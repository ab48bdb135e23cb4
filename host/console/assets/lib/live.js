// The one event stream of this tab. Pages name the topics that they need; the stream is opened again
// when the set of topics changes, closed while the tab is hidden or its session has ended, and closed while
// live updates are paused; a page that is opened then still reads the first event. Values of the overview
// are signals: only the cells that show a changed number are drawn again.
import { signal, computed, effect, useEffect, batch } from './html.js';
import { follow } from './sse.js';
import { paused } from './settings.js';
import { session, ended } from './session.js';
import { query, text, watchReach } from './api.js';

/** @typedef {{ waiting: number, running: number, workers: number, submitted: number, completed: number, failed: number, cancelled: number, timedOut: number, version: number }} Counts */

/** 'off' before the first topic, while hidden and while paused. @type {{ value: 'off' | 'open' | 'waiting' | 'refused' }} */
export const state = signal('off');
/** The newest counts of each endpoint. @type {{ value: Record<string, Counts>, peek(): any }} */
export const counts = signal({});
/** The time of the newest overview event. */
export const seenAt = signal(0);

/** When the host answered last, while it does not; 0 while it does. */
export const away = signal(0);
// A call without an answer is followed by a question after this time, and by an answer within the same time or none:
// one call may break off, or wait for its job, while all others reach the host. The questions go on until one is
// answered: a call to a host that hung may wait for ever.
const PATIENCE_MS = 3000;
let heardAt = Date.now(), silence;
const heard = () => { heardAt = Date.now(); clearTimeout(silence); silence = undefined; away.value = 0; };
/** Asks the host now: an answer brings the stream and the pages back. */
export const tryNow = () => text('console/session', { signal: AbortSignal.timeout(PATIENCE_MS) });
const ask = () => {
  const own = silence = setTimeout(async () => {
    if (!hidden.peek()) await tryNow().catch(() => { if (silence === own) away.value = heardAt; });
    if (silence === own) ask();
  }, PATIENCE_MS);
};
watchReach((reached) => { if (reached) heard(); else if (!silence) ask(); });

/** @type {Map<string, number>} */
const wanted = new Map();
/** @type {Set<(event: string, data: any) => void>} */
const listeners = new Set();
const topics = signal('');
const hidden = signal(document.hidden);
document.addEventListener('visibilitychange', () => { hidden.value = document.hidden; });
/** Whether streams are open and pages ask again: the tab is shown, and its session has not ended. */
export const awake = computed(() => !hidden.value && !ended.value);

// Another key may see other endpoints.
let whose = '';
effect(() => {
  const id = session.value?.key.id ?? '';
  if (id !== whose) counts.value = {};
  whose = id;
});

let queued = false;
function changed() {
  if (queued) return;
  queued = true;
  // A page that is left and the page that follows it change the topics together.
  setTimeout(() => { queued = false; topics.value = [...wanted.keys()].sort().join(','); }, 30);
}

effect(() => {
  const now = topics.value;
  // A host that answers again is not waited for, and one that does not is not live.
  if (away.value) state.value = 'waiting';
  const once = paused.value;
  // Without this a page that is opened while updates are paused would have no numbers at all.
  const enough = once && (!now.includes('overview') || Object.keys(counts.peek()).length > 0);
  if (!now || enough || !awake.value) { state.value = 'off'; return; }
  const stop = new AbortController();
  let first = true;
  follow(`v1/events${query({ topics: now })}`, stop.signal, (event) => {
    let data;
    try { data = JSON.parse(event.data); } catch { return; }
    batch(() => {
      if (event.event === 'overview') {
        // The first event of a connection has all endpoints; what another key saw is forgotten.
        const next = { ...(first ? {} : counts.peek()), ...data.endpoints };
        first = false;
        for (const id of Object.keys(next)) if (next[id] === null) delete next[id];
        counts.value = next;
        seenAt.value = data.at;
      }
      for (const listener of listeners) listener(event.event, data);
      if (!stop.signal.aborted) state.value = once ? 'off' : 'open';
    });
    if (once) { stop.abort(); return true; }
  }, {
    // A stream is live with its first event: a busy host may accept the connection long before that.
    onState: (s) => { first = true; if (!stop.signal.aborted && !once) state.value = s === 'open' ? 'waiting' : s; },
  });
  return () => stop.abort();
});

/**
 * Keeps topics while a component is shown.
 * @param {string[]} names @param {(event: string, data: any) => void} [listener]
 */
export function useTopics(names, listener) {
  useEffect(() => {
    for (const n of names) wanted.set(n, (wanted.get(n) ?? 0) + 1);
    if (listener) listeners.add(listener);
    changed();
    return () => {
      for (const n of names) {
        const left = (wanted.get(n) ?? 1) - 1;
        if (left) wanted.set(n, left); else wanted.delete(n);
      }
      if (listener) listeners.delete(listener);
      changed();
    };
  }, [names.join(',')]);
}
