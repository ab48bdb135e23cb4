// Server-sent events read with fetch, since an EventSource cannot send the console's header. It
// promises: events in order, `Last-Event-ID` on each reconnection, pauses that grow from 0.5 s to 15 s,
// a reconnection when the stream is silent, and an end as soon as the signal aborts or the host refuses
// for good (4xx other than 408 and 429).
import { call, part, ApiError } from './api.js';

/** @typedef {{ event: string, data: string, id: string }} Event */

/**
 * The events in a body, one after the other.
 * @param {ReadableStream<Uint8Array>} body @returns {AsyncGenerator<Event>}
 */
export async function* events(body) {
  const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  let rest = '';
  let event = '', id = '';
  /** @type {string[]} */
  let data = [];
  try {
    for (;;) {
      const { value, done } = await part(reader);
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = /** @type {string} */ (lines.pop());
      for (const raw of lines) {
        const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
        if (line === '') {
          if (data.length || event) yield { event: event || 'message', data: data.join('\n'), id };
          event = ''; data = [];
          continue;
        }
        const colon = line.indexOf(':');
        if (colon === 0) continue;
        const field = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? '' : line.slice(colon + (line[colon + 1] === ' ' ? 2 : 1));
        if (field === 'data') data.push(text);
        else if (field === 'event') event = text;
        else if (field === 'id') id = text;
      }
    }
  } finally { reader.cancel().catch(() => {}); }
}

/**
 * Follows a stream until the signal aborts, or `onEvent` answers true for an event.
 * @param {string} path @param {AbortSignal} signal @param {(event: Event) => boolean | void} onEvent
 * @param {{ onState?: (state: 'open' | 'waiting' | 'refused', error?: any) => void, lastId?: string }} [options]
 */
export async function follow(path, signal, onEvent, options = {}) {
  let last = options.lastId ?? '';
  let pause = 500;
  while (!signal.aborted) {
    try {
      /** @type {Record<string, string>} */
      const headers = { Accept: 'text/event-stream' };
      if (last) headers['Last-Event-ID'] = last;
      const answer = await call(path, { headers, signal });
      options.onState?.('open');
      for await (const event of events(/** @type {ReadableStream<Uint8Array>} */ (answer.body))) {
        pause = 500;
        if (event.id) last = event.id;
        if (onEvent(event)) return;
      }
      options.onState?.('waiting');
    } catch (e) {
      if (signal.aborted) return;
      const status = e instanceof ApiError ? e.status : 0;
      if (status >= 400 && status < 500 && status !== 408 && status !== 429) return options.onState?.('refused', e);
      options.onState?.('waiting', e);
    }
    await new Promise((done) => {
      const timer = setTimeout(done, pause);
      signal.addEventListener('abort', () => { clearTimeout(timer); done(undefined); }, { once: true });
    });
    pause = Math.min(pause * 2, 15000);
  }
}
