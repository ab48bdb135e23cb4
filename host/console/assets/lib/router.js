// The route is the fragment of the address: `#/jobs?status=FAILED`. So the page works below any prefix,
// reloads where it was, and a link is all that has to be sent to a colleague.
import { signal } from './html.js';

/** @typedef {{ path: string[], query: URLSearchParams, text: string }} Route */

const decode = (part) => { try { return decodeURIComponent(part); } catch { return part; } };
/** @returns {Route} */
function read() {
  const text = location.hash.replace(/^#\/?/, '');
  const [path, query = ''] = text.split(/\?(.*)/s);
  return { path: path.split('/').filter(Boolean).map(decode), query: new URLSearchParams(query), text };
}

/** The present route. */
export const route = signal(read());
addEventListener('hashchange', () => { route.value = read(); });

/**
 * The address of a page: `link(['jobs', endpoint, id], { tab: 'logs' })`.
 * @param {string[]} path @param {Record<string, string | string[] | undefined>} [values]
 */
export function link(path, values = {}) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) for (const one of Array.isArray(value) ? value : [value]) if (one) q.append(name, one);
  const t = q.toString();
  return `#/${path.map(encodeURIComponent).join('/')}${t && `?${t}`}`;
}
/** @param {string} to */
export const go = (to) => { location.hash = to; };
/** Changes the address without a new entry in the history, as filters do while one types. @param {string} to */
export const replace = (to) => {
  history.replaceState(null, '', to);
  route.value = read();
};
