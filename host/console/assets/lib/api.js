// Calls of the host's public API. It promises: URLs are relative to the page, so any prefix works;
// every call carries the console's header with the mark of the session, so that the host refuses it when the
// cookie is another session's; a failure is an ApiError with the host's own sentence; after a 401 `on401`
// asks once whether the session has ended; a host that does not answer is noticed, by calls and by streams.

import { quote } from './text.js';

/** A refusal of the host, or a broken connection (status 0). */
export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} message @param {number} [retryAfter] */
  constructor(status, code, message, retryAfter) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

const HEADER = 'X-Gristmill-Console';
// Before a login the value is of no account.
let mark = '1';
/** @param {string | undefined} text the mark of the session, from the answer of its login */
export const setMark = (text) => { mark = text || '1'; };

/** The page is at PREFIX/console/, the API at PREFIX/. */
const base = new URL('../', document.baseURI);
/** @param {string} path without a leading slash */
export const url = (path) => new URL(path.replace(/^\//, ''), base);
/** The address of the API as a person types it, without the slash at its end. */
export const hostUrl = base.href.replace(/\/$/, '');

/** @type {() => Promise<void>} */
let ask = async () => {};
/** @param {() => Promise<void>} f called after a 401, which may mean that the session has ended, or "this key lacks the scope" */
export const on401 = (f) => { ask = f; };

/** @type {(reached: boolean) => void} */
let onReach = () => {};
/** @param {(reached: boolean) => void} f called by each call and each part of a stream, with whether the host answered */
export const watchReach = (f) => { onReach = f; };
/** A call without an answer for this time may wait for its job, or the host hangs. */
const LATE_MS = 5000;
/** A silent stream is broken after this time: the host sends a comment every 15 s. */
const SILENT_MS = 20_000;
const unreachable = () => new ApiError(0, 'unreachable', 'The host does not answer. The page tries again when the connection is back.');

/**
 * The next part of a stream.
 * @template T
 * @param {ReadableStreamDefaultReader<T>} reader @returns {Promise<ReadableStreamReadResult<T>>}
 */
export async function part(reader) {
  let isSilent = false;
  const timer = setTimeout(() => { isSilent = true; reader.cancel().catch(() => {}); }, SILENT_MS);
  try {
    const read = await reader.read();
    onReach(!isSilent);
    if (isSilent) throw unreachable();
    return read;
  } finally { clearTimeout(timer); }
}

/** @type {Promise<void> | undefined} */
let asked;

/**
 * @typedef {{ method?: string, body?: unknown, raw?: BodyInit, type?: string, signal?: AbortSignal,
 *   headers?: Record<string, string>, quiet?: boolean }} Options
 */

/**
 * A call whose answer is still to be read. `quiet` leaves a 401 to the caller.
 * @param {string} path @param {Options} [options] @returns {Promise<Response>}
 */
export async function call(path, options = {}) {
  const { method = 'GET', body, raw, type, signal, headers = {}, quiet } = options;
  /** @type {Record<string, string>} */
  const all = { [HEADER]: mark, ...headers };
  if (body !== undefined || raw !== undefined) all['Content-Type'] = type ?? 'application/json';
  let answer;
  const late = setTimeout(() => onReach(false), LATE_MS);
  try {
    answer = await fetch(url(path), {
      method, headers: all, signal, cache: 'no-store', credentials: 'same-origin',
      body: raw ?? (body === undefined ? undefined : JSON.stringify(body)),
    });
  } catch (e) {
    if (signal?.aborted && signal.reason?.name !== 'TimeoutError') throw e;
    onReach(false);
    throw unreachable();
  } finally { clearTimeout(late); }
  onReach(true);
  if (answer.ok) return answer;
  throw await refusal(answer.status, answer.statusText, await answer.text(), answer.headers.get('Retry-After'), quiet);
}

/** @param {number} status @param {string} reason @param {string} text @param {string | null} retryAfter @param {boolean} [quiet] */
async function refusal(status, reason, text, retryAfter, quiet) {
  let document;
  try { document = JSON.parse(text); } catch { document = {}; }
  const sentence = typeof document.error === 'string' ? document.error
    : document.error?.message ?? document.message ?? (text.slice(0, 300) || `${status} ${reason}`);
  if (status === 401 && !quiet) await (asked ??= ask().finally(() => { asked = undefined; }));
  return new ApiError(status, document.code ?? document.error?.code ?? '', sentence, Number(retryAfter) || undefined);
}

/**
 * Sends a file. `fetch` does not report how much of a body is sent, so this is the older interface.
 * @param {string} path @param {Blob} file @param {AbortSignal} signal @param {(bytes: number) => void} onSent @returns {Promise<void>}
 */
export const upload = (path, file, signal, onSent) => new Promise((done, fail) => {
  const call = new XMLHttpRequest();
  call.open('PUT', url(path));
  call.setRequestHeader(HEADER, mark);
  call.setRequestHeader('Content-Type', 'application/octet-stream');
  call.upload.onprogress = (e) => onSent(e.loaded);
  call.onload = async () => { if (call.status < 300) done(); else fail(await refusal(call.status, call.statusText, call.responseText, call.getResponseHeader('Retry-After'))); };
  call.onerror = () => fail(new ApiError(0, 'unreachable', 'The upload broke off: the host does not answer, or the file cannot be read.'));
  call.onabort = () => fail(signal.reason);
  if (signal.aborted) { fail(signal.reason); return; }
  const stop = () => call.abort();
  signal.addEventListener('abort', stop);
  call.onloadend = () => signal.removeEventListener('abort', stop);
  call.send(file);
});

/** The text of an answer, unparsed. @param {string} path @param {Options} [options] */
export const text = async (path, options) => (await call(path, options)).text();

/**
 * A document of the API that has no values of users' handlers; those need `text`, see json.js.
 * @param {string} path @param {Options} [options] @returns {Promise<any>}
 */
export async function json(path, options) {
  const t = await text(path, options);
  return t === '' ? undefined : JSON.parse(t);
}

/** All pages of a list. @param {string} path @param {AbortSignal} [signal] @returns {Promise<any[]>} */
export async function list(path, signal) {
  const all = [];
  let next = path;
  while (next) {
    const answer = await call(next, { signal });
    all.push(...await answer.json());
    const at = cursor(answer);
    next = at ? `${path}${path.includes('?') ? '&' : '?'}cursor=${at}` : '';
  }
  return all;
}

/** Where the next page of a list begins, as it stands in an address; undefined after the last page. @param {Response} answer */
const cursor = (answer) => /<[^>]*[?&]cursor=([^&>]+)[^>]*>; rel="next"/.exec(answer.headers.get('Link') ?? '')?.[1];

/** One page of a list, and the cursor of the next one. @param {string} path @param {AbortSignal} [signal] @returns {Promise<{ items: any[], next: string | undefined }>} */
export async function page(path, signal) {
  const answer = await call(path, { signal });
  const next = cursor(answer);
  return { items: await answer.json(), next: next && new URLSearchParams(`c=${next}`).get('c') || undefined };
}

/** A query string with its question mark; empty values are left out. @param {Record<string, any>} values */
export function query(values) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null && one !== '') q.append(name, String(one));
  }
  const t = q.toString();
  return t && `?${t}`;
}

/** A part of a path. @param {string} part */
export const seg = (part) => encodeURIComponent(part);
/** A call of the queue API for a shell. @param {string} path below `v2`, such as `count/run` @param {string} body */
export const curl = (path, body) => `curl -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\\n  -d ${quote(body)} \\\n  ${hostUrl}/v2/${path}`;
