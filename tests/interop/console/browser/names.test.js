// Pages of HTTP endpoints by names of their own: they work as a page of any server does, and reach neither the
// console nor the API.
import test, { after, before } from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { close, component, launch, until } from './page.js';

const data = mkdtempSync(join(tmpdir(), 'names-'));
/** @type {import('node:child_process').ChildProcess} */
let host;
/** The ports of the API and of the names. */
let api = '', names = '', key = '';
const siteOf = (name) => `http://${name}.localhost:${names}`;

/** @param {string} method @param {string} path @param {unknown} body */
async function call(method, path, body) {
  const bytes = body instanceof Uint8Array;
  const headers = { Authorization: `Bearer ${key}`, 'Content-Type': bytes ? 'application/wasm' : 'application/json' };
  const answer = await fetch(`http://127.0.0.1:${api}/${path}`, { method, headers, body: bytes ? /** @type {any} */ (body) : JSON.stringify(body) });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${await answer.text()}`);
}

before(async () => {
  const serve = ['serve', '--json', '--data-dir', data, '--listen', '127.0.0.1:0', '--http-listen', '127.0.0.1:0', '--http-domain', 'localhost'];
  host = spawn(/** @type {string} */ (process.env.GRISTMILL), serve, { stdio: ['ignore', 'pipe', 'ignore'] });
  const lines = createInterface({ input: /** @type {any} */ (host.stdout) });
  const { ready } = JSON.parse(await new Promise((first) => lines.once('line', first)));
  [api, names] = [ready.addr, ready.httpAddr].map((at) => at.split(':').pop());
  key = readFileSync(join(data, 'admin.key'), 'utf8').trim();
  await call('PUT', 'v1/handlers/site:1', readFileSync(component('http-playground')));
  await call('POST', 'v1/templates', { id: 'site', name: 'site', imageName: 'site:1', isServerless: true });
  const http = { public: true };
  await call('POST', 'v1/endpoints', { id: 'site', templateId: 'site', type: 'LOAD_BALANCER', http: { ...http, cors: { origins: [siteOf('friend')] } } });
  for (const id of ['friend', 'stranger']) await call('POST', 'v1/endpoints', { id, templateId: 'site', type: 'LOAD_BALANCER', http });
});
after(async () => {
  await close();
  host.kill();
  await new Promise((end) => host.once('exit', end));
  rmSync(data, { recursive: true });
});

test('a page has a form, events and cookies', async () => {
  const page = await (await (await launch()).newContext()).newPage();
  await page.goto(`${siteOf('site')}/page`);
  await page.getByText('event 3').waitFor();
  assert.deepEqual((await page.locator('li').allTextContents()).slice(0, 3), ['event 1', 'event 2', 'event 3']);
  await page.locator('input').fill('a word');
  await page.getByRole('button', { name: 'send' }).click();
  await page.getByText('text=a+word with seen=1').waitFor();
  // The text of a stream is there before its end.
  const early = await page.evaluate(async () => {
    const reader = /** @type {any} */ ((await fetch('/stream?count=600&ms=100')).body).getReader();
    const { value } = await reader.read();
    await reader.cancel();
    return new TextDecoder().decode(value);
  });
  assert.match(early, /^000\n/);
  await page.context().close();
});

test('a page reaches neither the console of its name nor the API', async () => {
  const context = await (await launch()).newContext();
  const console = await context.newPage();
  // Cookies know no ports, so the console's one is sent to the page's host too.
  await console.goto(`http://site.localhost:${api}/console/`);
  await console.getByLabel('API key').fill(key);
  await console.getByRole('button', { name: 'Log in' }).click();
  await console.getByLabel('API key').waitFor({ state: 'detached' });
  assert.ok((await context.cookies()).some((cookie) => cookie.name === `gristmill-console-${api}`));
  const page = await context.newPage();
  await page.goto(`${siteOf('site')}/page`);
  const seen = await page.evaluate(async () => (await fetch('/head')).text());
  assert.ok(seen.includes('"cookie","seen=1"') || seen.includes('"cookie", "seen=1"'), seen);
  assert.ok(!seen.includes('gristmill-console'), seen);
  const reads = (url, headers = {}) => page.evaluate(
    async ([at, more]) => fetch(/** @type {string} */ (at), { credentials: 'include', headers: /** @type {any} */ (more) }).then((a) => a.status, () => 'refused'),
    [url, headers],
  );
  for (const at of ['site.localhost', 'localhost', '127.0.0.1']) {
    assert.equal(await reads(`http://${at}:${api}/v1/endpoints`), 'refused', at);
    assert.equal(await reads(`http://${at}:${api}/v1/endpoints`, { 'X-Gristmill-Console': '1' }), 'refused', at);
  }
  // The page has set a cookie of the console's name in vain.
  assert.ok(!(await context.cookies()).some((cookie) => cookie.value === 'stolen'));
  await console.reload();
  await console.getByRole('heading', { level: 1 }).first().waitFor();
  await context.close();
});

test('pages of permitted origins ask, others do not', async () => {
  const page = await (await (await launch()).newContext()).newPage();
  for (const [name, expected] of [['friend', 'hello\n'], ['stranger', 'refused']]) {
    await page.goto(`${siteOf(name)}/`);
    const text = await page.evaluate((at) => fetch(at, { headers: { 'X-Own': '1' } }).then((a) => a.text(), () => 'refused'), `${siteOf('site')}/`);
    assert.equal(text, expected, name);
  }
  await page.context().close();
});

test('below the path of the API a browser gets nothing', async () => {
  const page = await (await (await launch()).newContext()).newPage();
  const answer = await page.goto(`http://localhost:${api}/http/site/page`);
  assert.equal(answer?.status(), 403);
  await until('the refusal is shown', async () => (await page.locator('body').innerText()).includes('are for programs'));
  await page.context().close();
});
