// Many jobs and many log lines: the page shows a part of them, goes through all of them, and answers its
// user meanwhile. GRISTMILL_CONSOLE_JOBS and GRISTMILL_CONSOLE_LINES change the numbers of jobs and of lines.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { open, close, run, key, api, until, component, upload } from './page.js';

after(close);
const JOBS = Number(process.env.GRISTMILL_CONSOLE_JOBS ?? 100_000), LINES = Number(process.env.GRISTMILL_CONSOLE_LINES ?? 1_000_000);

/** Does something `count` times, 64 at one time. @param {number} count @param {(n: number) => Promise<any>} f */
async function times(count, f) {
  let next = 0;
  await Promise.all(Array.from({ length: 64 }, async () => { while (next < count) await f(next++); }));
}
/** The longest time in which the page did nothing for its user, in milliseconds. */
const watch = (page) => page.evaluate(() => {
  let last = performance.now();
  Object.assign(window, { longest: 0 });
  const beat = () => { const now = performance.now(); /** @type {any} */ (window).longest = Math.max(/** @type {any} */ (window).longest, now - last); last = now; setTimeout(beat, 20); };
  beat();
});
const longest = (page) => page.evaluate(() => /** @type {any} */ (window).longest);

test(`a list of ${JOBS.toLocaleString('en-US')} jobs`, async (t) => {
  await upload('many:1', component('echo'));
  await api('POST', 'v1/templates', { id: 'many', name: 'many', imageName: 'many:1', category: 'CPU', isServerless: true });
  // Without workers they all wait.
  await api('POST', 'v1/endpoints', { id: 'many', name: 'many', templateId: 'many', workersMax: 0, rateLimits: { run: { callsPer10s: 1_000_000 } } });
  const began = Date.now();
  const first = await run('many', { n: 'first' }, { tags: { which: 'first' } });
  await times(JOBS - 1, (n) => run('many', { n }));
  t.diagnostic(`submitted in ${Math.round((Date.now() - began) / 1000)} s`);

  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await watch(page);
  await to('#/jobs?endpoint=many');
  const ids = page.locator('tbody tr a.id');
  await ids.first().waitFor();
  assert.equal(await ids.count(), 50);
  const seen = new Set();
  for (let n = 1; n <= 5; n++) {
    for (const id of await ids.evaluateAll((all) => all.map((a) => a.title))) seen.add(id);
    const top = await ids.first().getAttribute('title');
    await page.getByRole('button', { name: 'Older' }).click();
    await until('the next page is there', async () => await ids.first().getAttribute('title') !== top);
  }
  assert.equal(seen.size, 250, 'no job is on two pages');
  // A selection is of one page, so that its number is that of the jobs that are changed.
  await page.getByLabel('Select all rows on this page').check();
  await page.getByText('50 selected').waitFor();
  await page.getByRole('button', { name: 'Older' }).click();
  await page.getByText('50 selected').waitFor({ state: 'detached' });

  // The oldest of them, by its tag and by its id.
  await to('#/jobs?endpoint=many&tag=which:first');
  await page.locator(`a.id[title="${first.id}"]`).waitFor();
  await to(`#/jobs?q=${first.id}`);
  await page.locator(`a.id[title="${first.id}"]`).waitFor();

  // All of them at once; the preview counts what it can see in a bound of calls.
  await to('#/jobs?endpoint=many');
  await page.getByLabel('Select all rows on this page').check();
  await page.getByRole('button', { name: 'Select all that match' }).click();
  await page.getByRole('button', { name: 'Stop all …' }).click();
  const dialog = page.getByRole('dialog');
  const many = JOBS > 20_000 ? 'more than 20,000' : JOBS.toLocaleString('en-US');
  await dialog.getByRole('button', { name: `Stop ${many} jobs` }).click();
  await dialog.getByText('so far').waitFor();
  await dialog.getByRole('button', { name: 'Abort' }).click();
  await dialog.getByText('The action was aborted').waitFor();
  t.diagnostic(`the page was busy for ${Math.round(await longest(page))} ms at most`);
  assert.ok(await longest(page) < 3000, 'the page answers its user');
  await check();
  await end();
  await api('DELETE', 'v1/endpoints/many');
});

test(`a log of ${LINES.toLocaleString('en-US')} lines that come while it is shown`, async (t) => {
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/logs?endpoint=playground');
  await page.getByText('live', { exact: false }).first().waitFor();
  await watch(page);
  // 64 bytes a line; a job may write some thousands.
  const each = 4000;
  await times(LINES / each, () => api('POST', 'v2/playground/runsync', { input: { op: 'stdout', bytes: 64 * each } }));
  await run('playground', { op: 'log', message: 'the very last line' });
  await page.getByRole('log').getByText('the very last line').waitFor({ timeout: 60_000 });
  const shown = await page.locator('.log-foot').innerText();
  t.diagnostic(`${shown.split('\n')[0]}; busy for ${Math.round(await longest(page))} ms at most`);
  assert.match(shown, /^50,000 lines, the newest that this page keeps/);
  assert.ok(await page.locator('.log-line').count() < 120, 'only the rows in sight exist');
  assert.ok(await longest(page) < 5000, 'the page answers its user');

  // To its beginning and back, as wrapped lines too.
  await page.getByRole('log').evaluate((e) => { e.scrollTop = 0; });
  await page.getByRole('log').getByText('x'.repeat(63)).first().waitFor();
  await page.getByRole('button', { name: 'Wrap lines' }).click();
  await page.getByRole('log').evaluate((e) => { e.scrollTop = e.scrollHeight; });
  await page.getByRole('log').getByText('the very last line').waitFor();
  await check();
  await end();
});
