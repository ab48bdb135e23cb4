// The live stream: one for each tab, closed while updates are paused, and back after a broken connection.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { api, component, open, close, run, key, until, upload, BROKEN } from './page.js';
import { proxy } from './proxy.js';

after(close);

test('a broken connection comes back by itself, and the counts go on', async () => {
  const way = await proxy('/x');
  const { page, login, to, check, end } = await open({ base: way.base });
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
  await check(...BROKEN);
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

test('the page of an endpoint shows releases and settings that another client has changed', async () => {
  const { page, login, to, check, end } = await open();
  await upload('noticed:1', component('echo'));
  await api('POST', 'v1/templates', { id: 'noticed', name: 'noticed', imageName: 'noticed:1', category: 'CPU', isServerless: true });
  await api('POST', 'v1/endpoints', { id: 'noticed', name: 'noticed', templateId: 'noticed' });
  await login((await key()).text);
  await to('#/endpoints/noticed/releases');
  await until('there is one release', async () => await page.getByRole('row').count() === 2);
  await upload('noticed:2', component('playground'));
  await api('PATCH', 'v1/templates/noticed', { imageName: 'noticed:2' });
  await until('the new release is there', async () => await page.getByRole('row').count() === 3);
  await page.getByRole('row').nth(1).getByText('runs now').waitFor();
  // The form keeps what is being typed; the next tab shows the change.
  await page.getByRole('link', { name: 'Settings' }).click();
  await api('PATCH', 'v1/endpoints/noticed', { workersMax: 7 });
  await page.getByRole('link', { name: 'Charts' }).click();
  await page.locator('.tile', { hasText: 'Running' }).getByText('of 7').waitFor();
  await check();
  await end();
});
