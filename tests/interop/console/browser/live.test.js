// The live stream: one for each tab, closed while updates are paused, and back after a broken connection.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { open, close, run, key, until } from './page.js';
import { proxy } from './proxy.js';

after(close);

test('a broken connection comes back by itself, and the counts go on', async () => {
  const way = await proxy('/x');
  const { page, login, to, errors, end } = await open({ base: way.base });
  await login((await key()).text);
  await to('#/endpoints/echo');
  await until('the live stream is open', () => page.getByText('Live', { exact: true }).isVisible());
  const completed = async () => Number((await page.locator('.tile', { hasText: 'Completed' }).locator('dd').innerText()).replaceAll(',', ''));
  const before = await until('a count is there', async () => Number.isFinite(await completed()) && { n: await completed() });
  way.cut();
  await run('echo', { after: 'the cut' });
  await until('the count goes on', async () => await completed() > before.n);
  await until('the stream is open again', () => page.getByText('Live', { exact: true }).isVisible());
  // Chromium reports the broken connections themselves.
  assert.deepEqual(errors.filter((e) => !/ERR_|reset|network/i.test(e)), []);
  await end();
  way.end();
});

test('a tab has one stream, and none while updates are paused', async () => {
  const { page, login, to, check, end } = await open();
  const streams = new Set();
  page.on('request', (q) => q.url().includes('/v1/events') && streams.add(q));
  for (const kind of ['requestfinished', 'requestfailed']) page.on(/** @type {any} */ (kind), (q) => streams.delete(q));
  await login((await key()).text);
  for (const at of ['#/', '#/jobs', '#/endpoints/echo', '#/playground?endpoint=echo', '#/endpoints/echo/jobs']) {
    await to(at);
    await page.getByRole('heading', { level: 1 }).waitFor();
  }
  await until('one stream is open', () => streams.size === 1);
  await page.getByRole('button', { name: 'Pause live updates' }).click();
  await page.getByText('Paused', { exact: true }).waitFor();
  await until('no stream is open', () => streams.size === 0);
  await page.getByRole('button', { name: 'Go on with live updates' }).click();
  await until('one stream is open again', () => streams.size === 1);
  await check();
  await end();
});
