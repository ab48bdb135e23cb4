// A host that does not answer: the page says so and since when, keeps what it has, and goes on when the host is back.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { open, close, run, key, until, refusal, BROKEN } from './page.js';
import { proxy } from './proxy.js';

after(close);
const live = (page) => until('the live stream is open', () => page.getByText('Live', { exact: true }).isVisible());

test('a host that is away is said to be, pages open without it, and all goes on afterwards', async () => {
  const way = await proxy('/x');
  const { page, login, to, check, end } = await open({ base: way.base });
  const read = new Set();
  page.on('requestfinished', (q) => { const m = /assets\/pages\/(\w+)\.js/.exec(q.url()); if (m) read.add(m[1]); });
  await login((await key()).text);
  await live(page);
  await until('the other pages are read when there is time', () => ['keys', 'billing', 'job', 'system', 'endpoint'].every((p) => read.has(p)));
  await to('#/endpoints/echo');
  const completed = async () => Number((await page.locator('.tile', { hasText: 'Completed' }).locator('dd').innerText()).replaceAll(',', ''));
  const before = await until('a count is there', async () => Number.isFinite(await completed()) && { n: await completed() });
  way.down(true);
  const away = page.getByRole('alert').filter({ hasText: 'No answer from the host since' });
  await away.waitFor({ timeout: 20_000 });
  assert.match(await away.innerText(), /since \d\d:\d\d:\d\d\./);
  assert.equal(await completed(), before.n, 'the numbers are there still');
  assert.equal(await page.locator('.tiles').evaluate((e) => getComputedStyle(/** @type {Element} */ (e.closest('main > *'))).opacity), '0.6');
  await page.getByRole('link', { name: 'Keys', exact: true }).click();
  await page.getByRole('heading', { name: 'Keys' }).waitFor();
  await away.waitFor();
  await page.goBack();
  // Nobody is told that all is well before it is.
  await page.getByRole('button', { name: 'Try now' }).click();
  await page.locator('.toast.bad').first().waitFor();
  await run('echo', { after: 'the silence' });
  way.down(false);
  // The page may notice it by itself first: then there is no button any more.
  page.getByRole('button', { name: 'Try now' }).click().catch(() => {});
  await away.waitFor({ state: 'detached' });
  await until('the count goes on', async () => await completed() > before.n);
  await live(page);
  await check(...BROKEN);
  await end();
  way.end();
});

test('a host that hangs is said to be away, also where nothing is asked of it', async () => {
  const way = await proxy('/x');
  const { page, login, to, check, end } = await open({ base: way.base });
  await login((await key()).text);
  const away = page.getByRole('alert').filter({ hasText: 'No answer from the host since' });
  const back = async () => { way.hang(false); await away.waitFor({ state: 'detached', timeout: 60_000 }); await live(page); };
  // This page has only its stream.
  await to('#/jobs');
  await live(page);
  way.hang(true);
  await away.waitFor({ timeout: 60_000 });
  await page.getByText('Connecting …', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Try now' }).click();
  await page.locator('.toast.bad').first().waitFor();
  await back();
  // A call that waits is noticed sooner than the stream.
  way.hang(true);
  await to('#/keys');
  await away.waitFor({ timeout: 60_000 });
  await back();
  await page.getByRole('row').nth(1).waitFor();
  await check();
  await end();
  way.end();
});

test('a page whose files do not come is read again', async () => {
  const { page, login, check, end } = await open();
  await login((await key()).text);
  await page.route('**/assets/pages/billing.js', (route) => route.abort());
  await page.getByRole('link', { name: 'Billing', exact: true }).click();
  await page.getByRole('heading', { name: 'This page could not be loaded' }).waitFor();
  await page.unroute('**/assets/pages/billing.js');
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.getByRole('heading', { name: 'Billing' }).waitFor();
  await check('Failed to load resource: net::ERR_FAILED');
  await end();
});

test('one call that breaks off is no silence of the host', async () => {
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await live(page);
  let broken = 0, asked = 0;
  await page.route('**/v1/billing/**', (route) => { broken++; return route.abort(); });
  page.on('response', (r) => { if (broken && r.url().endsWith('/console/session')) asked++; });
  await to('#/billing');
  await page.getByText('The host does not answer').waitFor();
  await until('the host is asked', () => asked > 0);
  assert.equal(await page.getByText('No answer from the host since').count(), 0);
  await live(page);
  await check('Failed to load resource: net::ERR_FAILED');
  await end();
});

test('a job that does not exist leaves the page live', async () => {
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await live(page);
  const refused = [];
  page.on('response', (r) => { if (r.url().includes('/v1/events') && r.status() >= 400) refused.push(r.url()); });
  await to('#/jobs/echo/no-such-job');
  await page.getByRole('alert').waitFor();
  // A refused stream would be asked for within this time.
  await page.waitForTimeout(1000);
  assert.deepEqual(refused, []);
  await live(page);
  await check(refusal(404));
  await end();
});
