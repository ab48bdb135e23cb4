// A Chromium with one page of the console, logged in with a new key. Whatever goes wrong in a page that a
// test does not expect fails the test: errors in the console, uncaught errors, violations of the policy.
import assert from 'node:assert/strict';
import { readFileSync, existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

export const HOST = /** @type {string} */ (process.env.GRISTMILL_URL);
const ADMIN = /** @type {string} */ (process.env.GRISTMILL_ADMIN_KEY);
export const component = (name) => join(/** @type {string} */ (process.env.GRISTMILL_COMPONENTS), `${name}.wasm`);

/** A call of the API as a client makes it. */
export async function api(method, path, body, key = ADMIN) {
  const answer = await fetch(`${HOST}/${path}`, { method, headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}
export const run = (endpoint, input, more = {}) => api('POST', `v2/${endpoint}/run`, { input, ...more });
/** Uploads a component under an image name. @param {string} image @param {string | Buffer} file a path or its bytes */
export async function upload(image, file) {
  const answer = await fetch(`${HOST}/v1/handlers/${image}`, { method: 'PUT', headers: { Authorization: `Bearer ${ADMIN}`, 'Content-Type': 'application/wasm' }, body: typeof file === 'string' ? readFileSync(file) : file });
  assert.ok(answer.ok, `${image}: ${answer.status} ${await answer.text()}`);
}
/** Makes an endpoint of its own. @param {string} id @param {string} handler the name of a sample @param {any} [settings] */
export async function deploy(id, handler, settings = {}) {
  await upload(`${id}:1`, component(handler));
  await api('POST', 'v1/templates', { id, name: id, imageName: `${id}:1`, category: 'CPU', isServerless: true });
  await api('POST', 'v1/endpoints', { id, name: id, templateId: id, ...settings });
}
/** Runs a job to its end. */
export const complete = async (endpoint, input, more = {}) => { const { id } = await run(endpoint, input, more); return api('GET', `v2/${endpoint}/status-sync/${id}`); };
/** Waits for something true, with the reason in its failure. */
export async function until(what, f, ms = 20000) {
  const end = Date.now() + ms;
  for (let last; ; await new Promise((d) => setTimeout(d, 50))) {
    try { const v = await f(); if (v) return v; } catch (e) { last = e; }
    if (Date.now() > end) assert.fail(`${what}: not within ${ms} ms ${last ?? ''}`);
  }
}
export const key = async (scopes = ['admin'], name = 'test') => { const k = await api('POST', 'v1/keys', { name, scopes }); return { id: k.id, text: k.key ?? k.text }; };

/** Waits until no placeholder of a part that loads is left. */
export const loaded = (page) => until('the page has loaded', async () => await page.locator('main .loading').count() === 0);
/** Agrees to the question of a link: its button works a second after the mouse has come into the page. */
export async function agree(page, name = /^Log in as /) {
  const yes = page.getByRole('button', { name });
  await yes.hover();
  await until('the button works', () => yes.isEnabled());
  await yes.click();
}

/** What Chromium reports of a refusal. @param {401 | 400 | 404 | 409} status */
export const refusal = (status) => `Failed to load resource: the server responded with a status of ${status} (${{ 400: 'Bad Request', 401: 'Unauthorized', 404: 'Not Found', 409: 'Conflict' }[status]})`;
/** What it reports of a stream whose connection broke, and of a call without an answer. */
export const BROKEN = ['ERR_INCOMPLETE_CHUNKED_ENCODING', 'ERR_EMPTY_RESPONSE', 'ERR_CONNECTION_RESET'].map((e) => `Failed to load resource: net::${e}`);

let browser;
export const launch = async () => browser ??= await chromium.launch({ executablePath: process.env.GRISTMILL_CHROMIUM, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
export const close = async () => { await browser?.close(); browser = undefined; };

/**
 * Opens the console. `errors` collects what went wrong; `login` types a key.
 * @param {{ base?: string, width?: number, dark?: boolean, reduced?: boolean }} [options]
 */
export async function open({ base = HOST, width = 1280, dark = false } = {}) {
  const context = await (await launch()).newContext({ viewport: { width, height: 860 }, colorScheme: dark ? 'dark' : 'light', reducedMotion: 'reduce', timezoneId: 'Europe/Berlin' });
  const page = await context.newPage();
  page.setDefaultTimeout(15000);
  const errors = [];
  page.on('pageerror', (e) => errors.push(`uncaught: ${e.stack || `${e.name} ${e.message}`}`));
  page.on('console', (m) => {
    if (m.type() !== 'error' && m.type() !== 'warning') return;
    const at = m.location().url;
    // Chromium reports each answer of 401; the first question for a session has no other answer.
    if (at.endsWith('/console/session') && m.text().includes('401')) return;
    errors.push(`${m.text()} (${at})`);
  });
  await page.addInitScript(() => {
    Object.assign(window, { violations: [] });
    addEventListener('securitypolicyviolation', (e) => /** @type {any} */ (window).violations.push(`${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}`));
  });
  await fromDisk(context);
  const to = (hash) => page.goto(`${base}/console/${hash}`);
  const login = async (text) => {
    await to('');
    await page.getByLabel('API key').fill(text);
    await page.getByRole('button', { name: 'Log in' }).click();
    // The login has a heading too.
    await page.getByLabel('API key').waitFor({ state: 'detached' });
    await page.getByRole('heading', { level: 1 }).first().waitFor();
  };
  /** `provoked`: the texts of errors that the test causes on purpose, without the address. @param {string[]} provoked */
  const check = async (...provoked) => {
    assert.deepEqual(await page.evaluate(() => /** @type {any} */ (window).violations), [], 'violations of the policy');
    assert.deepEqual(errors.filter((e) => !provoked.some((text) => e.startsWith(`${text} (`))), [], 'errors of the page');
  };
  return { page, context, errors, to, login, check, end: () => context.close() };
}

// GRISTMILL_CONSOLE_ASSETS=DIRECTORY: for work on the pages, their files come from there, with the
// headers of the host.
async function fromDisk(context) {
  const directory = process.env.GRISTMILL_CONSOLE_ASSETS;
  if (!directory) return;
  const types = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml' };
  await context.route(/\/console\/(assets\/.*)?(\?.*)?$/, async (route) => {
    const path = new URL(route.request().url()).pathname.replace(/^.*?\/console\/(assets\/)?/, '') || 'index.html';
    const file = join(directory, path);
    if (!existsSync(file) || !statSync(file).isFile()) return route.continue();
    const index = await route.fetch({ url: `${HOST}/console/` });
    const headers = { ...index.headers(), 'content-type': types[path.split('.').pop() ?? ''] };
    delete headers['content-length']; delete headers.etag;
    await route.fulfill({ status: 200, headers, body: readFileSync(file) });
  });
}
