// A reverse proxy of the host below a path prefix, as operators put one before it. `cut` breaks all of its
// connections, as a restart of the proxy does; while it is `down`, no request gets an answer.
import { createServer, request } from 'node:http';
import { HOST } from './page.js';

export async function proxy(prefix) {
  let isDown = false;
  const server = createServer((q, r) => {
    if (isDown) { r.destroy(); return; }
    if (!q.url?.startsWith(`${prefix}/`)) { r.writeHead(404).end(); return; }
    const up = request(`${HOST}${q.url.slice(prefix.length)}`, { method: q.method, headers: q.headers }, (a) => { r.writeHead(a.statusCode ?? 502, a.headers); a.pipe(r); });
    up.on('error', () => r.destroy());
    r.on('close', () => up.destroy());
    q.pipe(up);
  }).listen(0, '127.0.0.1');
  await new Promise((d) => server.once('listening', d));
  // A test that fails does not come to its end: the process may end all the same.
  server.unref();
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return { base: `http://127.0.0.1:${port}${prefix}`, cut: () => server.closeAllConnections(), down: (now) => { isDown = now; if (now) server.closeAllConnections(); }, end: () => { server.closeAllConnections(); server.close(); } };
}
