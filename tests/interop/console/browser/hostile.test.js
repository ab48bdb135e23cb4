// What handlers print and answer is text: markup does not become elements, escape codes and marks of direction are
// visible, an output of a megabyte does not stop the page, and a line of a megabyte, which the host cuts at 4 KiB, is
// shown as it is kept. Progress, errors of receivers and answers of a chat come from the test in place of the host.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { open, close, run, complete, key, api, until } from './page.js';

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

/** How `evil` is shown. */
const seen = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>␛[31mred⟨U+202E⟩esrever';
/** No element, no code and no hidden sign came of it. */
async function harmless(page, at) {
  assert.equal(await page.evaluate(() => /** @type {any} */ (window).owned), undefined, at);
  assert.equal(await page.locator('main img, main script').count(), 0, at);
  assert.doesNotMatch(await page.locator('main').innerText(), /[\u001b\u202e]/, at);
}

test('escape codes and markup in outputs, errors, chunks, progress, errors of receivers and chats are visible text', async () => {
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  const output = await complete('playground', { op: 'emit', value: { evil } }), error = await complete('playground', { op: 'fail', message: `\u001b[2J${evil}\n${evil}` });
  const words = await complete('playground', { op: 'emit', values: [evil, ' and ', evil] }), values = await complete('playground', { op: 'emit', values: [{ [evil]: evil }, 1] });
  const text = page.getByRole('main');
  for (const [job, where, shown] of [[output, text.getByRole('region', { name: 'Output' }), '\\u001b[31mred⟨U+202E⟩esrever'], [error, text.getByRole('region', { name: 'Error' }), seen], [words, text.getByRole('region', { name: 'Chunks' }), `${seen} and ${seen}`], [values, text.getByRole('region', { name: 'Chunks' }), '\\u001b[31mred⟨U+202E⟩esrever']]) {
    await to(`#/jobs/playground/${job.id}`);
    await until(shown, async () => (await where.innerText()).includes(shown));
    await harmless(page, shown);
  }
  await to('#/jobs?endpoint=playground&status=FAILED');
  await text.getByText('␛[2J').first().waitFor();
  await harmless(page, 'the list');
  await to('#/');
  await text.getByText('␛[2J').first().waitFor();
  await harmless(page, 'the overview');

  // In the playground.
  for (const [mode, input, shown] of [['stream', { op: 'emit', values: [evil] }, seen], ['runsync', { op: 'fail', message: evil }, seen], ['runsync', { op: 'echo', value: evil }, '[31mred⟨U+202E⟩']]) {
    await to(`#/playground?endpoint=playground&mode=${mode}`);
    await page.getByLabel('Input', { exact: true }).fill(JSON.stringify(input));
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await until(`${mode}: ${shown}`, async () => (await page.locator('section', { has: page.getByRole('heading', { name: 'Answer' }) }).innerText()).includes(shown));
    await harmless(page, mode);
  }
  await page.route('**/openai/v1/chat/completions', (route) => route.fulfill({ contentType: 'text/event-stream', body: `data: ${JSON.stringify({ choices: [{ delta: { content: evil } }] })}\n\ndata: [DONE]\n\n` }));
  await to('#/playground?endpoint=chat&mode=chat');
  await page.getByLabel('Message').fill(evil);
  await page.getByRole('button', { name: 'Send' }).click();
  await until('the answer is text', async () => await page.locator('.talk .assistant').innerText() === seen);
  assert.equal(await page.locator('.talk .user').innerText(), seen);
  await harmless(page, 'chat');

  await page.route(/\/status\/live\?/, (route) => route.fulfill({ json: { id: 'live', status: 'IN_PROGRESS', delayTime: 1, output: evil } }));
  await page.route(/\/timeline\/live$/, (route) => route.fulfill({ json: { id: 'live', status: 'IN_PROGRESS', events: [{ at: '2026-11-27T02:00:00Z', event: 'webhookGivenUp', error: evil }], attemptsOmitted: 0 } }));
  for (const path of [/\/stream\/live/, /\/logs\?job=live/, /topics=job/]) await page.route(path, (route) => route.fulfill(path.source.includes('logs') ? { json: [] } : { contentType: 'text/event-stream', body: 'event: end\ndata: {}\n\n' }));
  await to('#/jobs/playground/live');
  await until('progress is text', async () => (await text.getByRole('region', { name: 'Output' }).innerText()).includes('[31mred⟨U+202E⟩'));
  assert.ok((await text.locator('.timeline').innerText()).includes(seen));
  await harmless(page, 'progress');
  await page.route(/\/deliveries/, (route) => route.fulfill({ json: [{ id: '1', state: 'GIVEN_UP', jobId: output.id, jobStatus: 'FAILED', url: `http://receiver.invalid/${evil}`, attempts: 3, lastError: evil, createdAt: '2026-11-27T02:00:00Z', endedAt: '2026-11-27T02:00:00Z' }] }));
  await to('#/endpoints/playground/webhooks');
  await text.getByText('Given up').waitFor();
  await until('the error of a receiver is text', async () => (await text.innerText()).includes(seen));
  await harmless(page, 'webhooks');
  await check();
  await end();
});

test('a log line of a megabyte is shown as the host keeps it, and its escape codes are visible', async () => {
  const job = await complete('playground', { op: 'log', message: `${evil} ${'z'.repeat(1_000_000)}` });
  const [{ line }] = await api('GET', `v1/endpoints/playground/logs?job=${job.id}`);
  assert.ok(line.length > 4000 && new TextEncoder().encode(line).length <= 4096, `${line.length} characters`);
  const { page, login, to, check, end } = await open({ width: 320 });
  await login((await key()).text);
  await to(`#/logs?endpoint=playground&job=${job.id}`);
  const row = page.locator('.log-line').first();
  await row.locator('.line').getByText('<script>').waitFor();
  await row.click();
  const whole = page.locator('.log-open pre');
  assert.equal((await whole.innerText()).replaceAll('⟨U+202E⟩', '\u202E'), line);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'no sideways scroll');
  // Lines of a host that keeps escape codes look the same.
  await page.route(/\/logs\?tail=\d+&job=/, (route) => route.fulfill({ contentType: 'text/event-stream', body: `id: 1\ndata: ${JSON.stringify({ number: 1, at: '2026-11-27T02:00:00Z', jobId: job.id, level: 'info', line: evil })}\n\n` }), { times: 1 });
  await page.reload();
  await until('the escape code is visible', async () => await row.locator('.line').innerText() === seen);
  await harmless(page, 'log');
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
