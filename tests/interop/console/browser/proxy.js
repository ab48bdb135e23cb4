// A reverse proxy of the host below a path prefix, as operators put one before it. `cut` breaks all of its
// connections, as a restart of the proxy does; while it is `down`, no request gets an answer, and while it `hangs`,
// neither requests nor answers go on, as with a host that is stopped.
import { createServer, request } from 'node:http';
import { Transform, pipeline } from 'node:stream';
import { HOST } from './page.js';

export async function proxy(prefix) {
  let isDown = false, free = Promise.resolve(), letGo = () => {};
  const server = createServer(async (q, r) => {
    await free;
    if (isDown) { r.destroy(); return; }
    if (!q.url?.startsWith(`${prefix}/`)) { r.writeHead(404).end(); return; }
    const up = request(`${HOST}${q.url.slice(prefix.length)}`, { method: q.method, headers: q.headers }, (a) => { r.writeHead(a.statusCode ?? 502, a.headers); pipeline(a, new Transform({ transform: (part, _, done) => { free.then(() => done(null, part)); } }), r, () => {}); });
    up.on('error', () => r.destroy());
    r.on('close', () => up.destroy());
    q.pipe(up);
  }).listen(0, '127.0.0.1');
  await new Promise((d) => server.once('listening', d));
  // A test that fails does not come to its end: the process may end all the same.
  server.unref();
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return { base: `http://127.0.0.1:${port}${prefix}`, cut: () => server.closeAllConnections(), down: (now) => { isDown = now; if (now) server.closeAllConnections(); }, hang: (now) => { letGo(); if (now) free = new Promise((d) => { letGo = () => d(undefined); }); }, end: () => { server.closeAllConnections(); server.close(); } };
}
