// What handlers print and answer is text: markup does not become elements, escape codes and marks of
// direction are visible, and a line of a megabyte does not stop the page.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { open, close, run, key, api, until } from './page.js';

after(close);
const evil = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>\u001b[31mred\u202Eesrever';

test('hostile output, error, log line and tag stay text', async () => {
  const { page, login, to, check, end } = await open();
  const jobs = [await run('playground', { op: 'echo', value: { [evil]: evil, long: 'x'.repeat(1_000_000) } }, { tags: { note: '<b onclick=1>tag</b>' } }), await run('playground', { op: 'fail', message: evil }), await run('playground', { op: 'log', message: `${evil} ${'y'.repeat(4000)}`, count: 1 })];
  for (const j of jobs) await api('GET', `v2/playground/status-sync/${j.id}`);
  await login((await key()).text);
  await to(`#/jobs/playground/${jobs[0].id}`);
  await page.getByRole('region', { name: 'Output' }).getByText('<img src=x').first().waitFor();
  await page.getByText('more characters').waitFor();
  await to(`#/jobs/playground/${jobs[1].id}`);
  await page.getByRole('region', { name: 'Error' }).getByText('⟨U+202E⟩').waitFor();
  await to(`#/logs?endpoint=playground&job=${jobs[2].id}`);
  const line = page.getByRole('log').locator('.line').getByText('<script>').first();
  await line.waitFor();
  // The host itself takes the escape character out of log lines.
  assert.match(await line.innerText(), /\[31mred⟨U\+202E⟩/);
  await to('#/jobs?endpoint=playground');
  await page.getByText('<b onclick=1>').first().waitFor();
  assert.equal(await page.evaluate(() => /** @type {any} */ (window).owned), undefined);
  assert.equal(await page.locator('main img, main script').count(), 0);
  await check();
  await end();
});

test('of a thousand log lines only those in sight are elements', async () => {
  const { page, login, to, check, end } = await open();
  for (let n = 0; n < 8; n++) await Promise.all(Array.from({ length: 100 }, (_, i) => run('playground', { op: 'log', message: `line ${n * 100 + i}` })));
  await login((await key()).text);
  await to('#/logs?endpoint=playground');
  await until('the lines are there', async () => Number((await page.locator('main').innerText()).match(/([\d,]+) lines/)?.[1].replace(',', '')) >= 700);
  assert.ok(await page.locator('.log-line').count() < 120, 'only the rows in sight exist');
  await check();
  await end();
});
