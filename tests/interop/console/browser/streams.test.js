// How many streams a tab has open on each page, by the network log of the browser: browsers open six connections to
// a host. Streams are closed while the tab is hidden and while updates are paused, and go on without a gap.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { open, close, run, complete, deploy, key, api, until } from './page.js';

after(close);
/** The streams that are open, and those that were opened. */
function watch(page) {
  const now = new Set(), all = [];
  page.on('request', (q) => { if (q.headers().accept === 'text/event-stream') { now.add(q); all.push(q); } });
  for (const kind of ['requestfinished', 'requestfailed']) page.on(/** @type {any} */ (kind), (q) => now.delete(q));
  const kinds = () => [...now].map((q) => /\/v1\/events/.test(q.url()) ? 'events' : /\/logs\?/.test(q.url()) ? 'logs' : 'chunks').sort().join(' ');
  return { all, are: async (wanted) => { try { await until(`streams: ${wanted}`, () => kinds() === wanted); } catch (e) { assert.fail(`${e}, but ${kinds()}`); } } };
}
/** As a browser does when another tab is shown, and when this one is shown again. */
const hide = (page, hidden) => page.evaluate((h) => {
  Object.defineProperty(document, 'hidden', { value: h, configurable: true });
  Object.defineProperty(document, 'visibilityState', { value: h ? 'hidden' : 'visible', configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}, hidden);
const THREE = ['creek', 'brook', 'river'];

test('a page of three logs has four streams, none while it is hidden or paused, and goes on after the last line', async () => {
  for (const id of THREE) await deploy(id, 'playground');
  const { page, login, to, check, end } = await open();
  const streams = watch(page);
  await login((await key()).text);
  await streams.are('events');
  const say = async (text) => { for (const id of THREE) await complete(id, { op: 'log', message: `${id} ${text}` }); };
  await say('first');
  await to(`#/logs?${THREE.map((id) => `endpoint=${id}`).join('&')}`);
  await streams.are('events logs logs logs');
  const lines = async (...texts) => until(`the lines ${texts}`, async () => {
    const shown = await page.locator('.log-line .line').allInnerTexts();
    return JSON.stringify(shown) === JSON.stringify(texts.flatMap((t) => THREE.map((id) => `${id} ${t}`)));
  });
  await lines('first');

  await hide(page, true);
  await streams.are('');
  await say('hidden');
  assert.equal(await page.locator('.log-line').count(), 3);
  const before = streams.all.length;
  await hide(page, false);
  await streams.are('events logs logs logs');
  await lines('first', 'hidden');
  for (const q of streams.all.slice(before).filter((s) => s.url().includes('/logs?'))) assert.match(q.headers()['last-event-id'] ?? '', /^\d+$/);

  // Its own pause closes the logs only; that of the console closes all.
  await page.getByRole('main').getByRole('button', { name: 'Pause', exact: true }).click();
  await streams.are('events');
  await say('paused');
  await page.getByText('paused', { exact: false }).first().waitFor();
  assert.equal(await page.locator('.log-line').count(), 6);
  await page.getByRole('main').getByRole('button', { name: 'Go on', exact: true }).click();
  await lines('first', 'hidden', 'paused');
  await page.getByRole('button', { name: 'Pause live updates' }).click();
  await streams.are('');
  await say('paused again');
  // A page that is opened while updates are paused has the lines of its time.
  await to('#/jobs');
  await page.getByRole('heading', { name: 'Jobs', exact: true }).waitFor();
  await to(`#/logs?${THREE.map((id) => `endpoint=${id}`).join('&')}`);
  await lines('first', 'hidden', 'paused', 'paused again');
  await streams.are('');
  await say('live');
  await page.getByRole('button', { name: 'Go on with live updates' }).click();
  await lines('first', 'hidden', 'paused', 'paused again', 'live');
  await streams.are('events logs logs logs');
  await check();
  await end();
});

test('the page of a job that streams has two streams, none while it is hidden, and misses no chunk', async () => {
  await deploy('trickle', 'playground');
  const values = Array.from({ length: 60 }, (_, i) => `<${i}>`), job = await run('trickle', { op: 'emit', values, delay_ms: 150 });
  const { page, login, to, check, end } = await open();
  const streams = watch(page), chunks = page.getByRole('region', { name: 'Chunks' });
  await login((await key()).text);
  await to(`#/jobs/trickle/${job.id}`);
  await chunks.getByText('<2>').waitFor();
  await streams.are('chunks events');
  await hide(page, true);
  await streams.are('');
  const shown = await chunks.innerText();
  await until('the job goes on', async () => (await api('GET', `v1/jobs?idPrefix=${job.id}`)).jobs[0].status === 'IN_PROGRESS' && new Promise((f) => setTimeout(() => f(true), 1000)));
  assert.equal(await chunks.innerText(), shown);
  const before = streams.all.length;
  await hide(page, false);
  await streams.are('chunks events');
  assert.match(streams.all.slice(before).find((q) => q.url().includes('/stream/')).headers()['last-event-id'] ?? '', /^\d+$/);
  await page.getByRole('button', { name: 'Pause live updates' }).click();
  await streams.are('');
  await page.getByText('· paused').waitFor();
  await page.getByRole('button', { name: 'Go on with live updates' }).click();
  await page.getByText('60 · complete').waitFor();
  assert.equal(await chunks.innerText(), values.join(''));
  await streams.are('events');

  // The chunks of a job that has ended are there also while updates are paused.
  await page.getByRole('button', { name: 'Pause live updates' }).click();
  await to('#/jobs');
  await page.getByRole('heading', { name: 'Jobs', exact: true }).waitFor();
  await to(`#/jobs/trickle/${job.id}`);
  await page.getByText('60 · complete').waitFor();
  await streams.are('');
  await check();
  await end();
});
