// Numbers are those of the API: the overview, the charts and tabs of an endpoint, Billing and System.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { open, close, run, complete, deploy, key, api, until, upload, component } from './page.js';

after(close);
/** The row of an endpoint. */
const row = (page, id) => page.locator('tbody tr', { has: page.getByRole('link', { name: id, exact: true }) });
const tile = (page, name) => page.locator('.tile', { has: page.getByText(name, { exact: true }) }).locator('dd');
const fact = (page, name) => page.locator('.facts > div', { has: page.getByText(name, { exact: true }) }).locator('dd');
const whole = (text) => Number(text.replaceAll(',', ''));
/** `1.5 s` in milliseconds. */
const ms = (text) => { const [n, unit] = text.split(' '); return Number(n) * { ms: 1, s: 1000 }[unit]; };
const near = (shown, exact, what) => assert.ok(Math.abs(ms(shown) - exact) <= 0.06 + exact / 100, `${what}: ${shown} for ${exact} ms`);
/** How many points of a canvas have about this colour. */
const points = (canvas, color) => canvas.evaluate((c, name) => {
  const probe = document.createElement('i');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const [r, g, b] = (getComputedStyle(probe).color.match(/\d+/g) ?? []).map(Number);
  probe.remove();
  // A copy: Chromium warns of reading from a canvas that is drawn with the graphics card.
  const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(c, 0, 0);
  const { data } = copy.getImageData(0, 0, c.width, c.height);
  let n = 0;
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 100 && Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 24) n++;
  return n;
}, color);
const sampled = (id, jobs) => until('the host has taken a sample', async () => {
  const of = (await api('GET', 'v1/series?window=15m')).endpoints[id];
  return of?.submitted.reduce((a, b) => a + b, 0) === jobs && of.runMs && of;
}, 40_000);

test('each endpoint has its last failure, also while another endpoint fails all the time', async () => {
  for (const id of ['quiet', 'noisy', 'calm']) await deploy(id, 'playground');
  await complete('quiet', { op: 'fail', message: 'an older failure' });
  const quiet = await complete('quiet', { op: 'fail', message: 'the millstone is cracked' });
  await complete('calm', { op: 'echo' });
  await Promise.all(Array.from({ length: 250 }, () => run('noisy', { op: 'fail', message: 'no flour again' })));
  await until('all have failed', async () => (await api('GET', 'v1/jobs?endpoint=noisy&status=FAILED&limit=1000')).jobs.length === 250);
  const { page, login, to, check, end } = await open();
  const asked = [];
  page.on('request', (q) => { if (q.url().includes('/v1/jobs?')) asked.push(q.url()); });
  await login((await key()).text);
  await row(page, 'quiet').getByText('the millstone is cracked').waitFor();
  await row(page, 'noisy').getByText('no flour again').waitFor();
  assert.equal(await row(page, 'calm').locator('td').last().innerText(), '–');
  const rounds = asked.filter((u) => u.includes('limit=200')).length;
  assert.ok(asked.length >= 2 && asked.length <= 8 * rounds, `a bound of calls: ${asked.length} in ${rounds} rounds`);
  await row(page, 'quiet').getByRole('link', { name: 'the millstone is cracked' }).click();
  await page.locator('h1').getByText(quiet.id).waitFor();
  // A key that may not list endpoints knows them from the live counts.
  await page.getByText('Log out').click();
  await page.getByLabel('API key').fill((await key(['read'])).text);
  await page.getByRole('button', { name: 'Log in' }).click();
  await to('#/');
  // The page looks each 15 s for a reason to read the failures again.
  await row(page, 'quiet').getByText('the millstone is cracked').waitFor({ timeout: 40_000 });
  await check();
  await end();
});

test('the overview searches for failures again when there are more of them', async () => {
  await deploy('steady', 'playground');
  await complete('steady', { op: 'fail', message: 'the sieve has a hole' });
  const { page, login, check, end } = await open();
  let searches = 0, ticks = 0;
  page.on('request', (q) => { searches += q.url().includes('/v1/jobs?') ? 1 : 0; ticks += q.url().includes('/v1/system') ? 1 : 0; });
  await login((await key()).text);
  await row(page, 'steady').getByText('the sieve has a hole').waitFor();
  // The page reads the system each 15 s, and looks for a reason to search as often. The first counts are one.
  await until('three reads', () => ticks >= 3, 60_000);
  const before = searches;
  await until('two more reads', () => ticks >= 5, 60_000);
  assert.equal(searches, before);
  await complete('steady', { op: 'fail', message: 'the belt is torn' });
  await row(page, 'steady').getByText('the belt is torn').waitFor({ timeout: 40_000 });
  assert.ok(searches > before);
  await check();
  await end();
});

test('the overview has the numbers of the API: sparkline, failures, times, version, waiting jobs', async () => {
  await deploy('measured', 'playground');
  for (const input of [{ op: 'sleep', ms: 30 }, { op: 'sleep', ms: 300 }, { op: 'echo' }, { op: 'fail', message: 'one of four' }]) await complete('measured', input);
  const of = await sampled('measured', 4);
  const { page, login, check, end } = await open();
  await login((await key()).text);
  const cells = row(page, 'measured').locator('td'), cell = (n) => cells.nth(n).innerText();
  const spark = cells.nth(1).locator('svg');
  assert.equal(await spark.getAttribute('aria-label'), 'measured, the last 15 minutes: 4 submitted, 1 failed');
  const heights = [...(await spark.locator('path.line').getAttribute('d')).matchAll(/[ML][\d.]+ ([\d.]+)/g)].map((m) => Number(m[1]));
  assert.equal(heights.length, 90);
  assert.ok(Math.min(...heights) < Math.max(...heights), 'the line is not flat');
  assert.equal(await spark.locator('path.bad').count(), 1);
  assert.equal(await cell(4), '25 %');
  near(await cell(5), of.runMs.p50, 'p50');
  near(await cell(6), of.runMs.p99, 'p99');
  assert.ok(of.runMs.p50 < of.runMs.p99);
  // The longest job slept for 300 ms, and the second longest for 30.
  assert.ok(of.runMs.p99 >= 300 * 0.94 && of.runMs.p99 < 600, `p99 ${of.runMs.p99}`);
  assert.match(await cell(0), /\bv1\b/);
  assert.match(await cell(7), /one of four/);

  await api('PATCH', 'v1/endpoints/measured', { paused: true });
  for (let i = 0; i < 3; i++) await run('measured', { op: 'echo' });
  await until('the waiting jobs are counted', async () => await cell(2) === '3');
  await page.reload();
  await until('the version and the pause are shown', async () => /v2 · paused/.test(await cell(0)));
  await check();
  await end();
});

test('retries count as attempts: the rate of failures is never above 100 %, and no bar leaves its row', async () => {
  await deploy('retried', 'playground');
  const { id } = await complete('retried', { op: 'fail', message: 'again' });
  for (let i = 0; i < 7; i++) {
    await api('POST', `v2/retried/retry/${id}`);
    await until('it has failed again', async () => (await api('GET', `v2/retried/status/${id}`)).status === 'FAILED');
  }
  await until('all attempts are sampled', async () => (await api('GET', 'v1/series?window=15m')).endpoints.retried?.failed.reduce((a, b) => a + b, 0) === 8, 40_000);
  const { page, login, check, end } = await open();
  await login((await key()).text);
  const cells = row(page, 'retried').locator('td');
  await until('the rate is there', async () => await cells.nth(4).innerText() === '100 %');
  const ends = [...(await Promise.all((await cells.nth(1).locator('path.bad').all()).map((p) => p.getAttribute('d')))).join('').matchAll(/V([-\d.]+)/g)].map((m) => Number(m[1]));
  assert.ok(ends.length > 0 && Math.min(...ends) >= 0, `${ends}`);
  await check();
  await end();
});

test('the charts of an endpoint have the numbers of the API and marks at its deploys, for each window', async () => {
  await deploy('charted', 'playground');
  await upload('charted:2', Buffer.concat([readFileSync(component('playground')), Buffer.from([0, 2, 1, 120])]));
  await api('PATCH', 'v1/templates/charted', { imageName: 'charted:2' });
  for (let i = 0; i < 6; i++) await complete('charted', { op: 'log', message: `chart ${i}` });
  await complete('charted', { op: 'fail', message: 'a red line' });
  await sampled('charted', 7);
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/endpoints/charted');
  const chart = page.locator('section.chart', { has: page.getByRole('heading', { name: 'Jobs in 10 s' }) }), canvas = chart.locator('canvas');
  await canvas.waitFor();
  assert.equal(await page.locator('section.chart canvas').count(), 5);
  for (const [color, what] of [['--good', 'completed'], ['--bad', 'failed'], ['--grain-ink', 'the marks']]) await until(`${what} are drawn`, async () => await points(canvas, color) > 3);
  await chart.getByText('The numbers').click();
  const column = async (n) => (await chart.locator(`tbody td:nth-child(${n})`).allInnerTexts()).reduce((a, t) => a + whole(t), 0);
  assert.deepEqual([await column(2), await column(3), await column(4)], [7, 6, 1]);
  assert.equal(await tile(page, 'Completed').innerText(), '6');
  assert.equal(await tile(page, 'Failed').innerText(), '1');

  for (const [name, window] of [['6 h', '6h'], ['7 days', '7d'], ['15 min', '15m']]) {
    const asked = page.waitForRequest((q) => q.url().endsWith(`/v1/endpoints/charted/series?window=${window}`));
    await page.getByRole('button', { name, exact: true }).click();
    await asked;
    assert.equal(await page.getByRole('button', { name, exact: true }).getAttribute('aria-pressed'), 'true');
    assert.match(page.url(), new RegExp(`window=${window}$`));
  }

  // The tabs are those of this endpoint.
  await page.getByRole('link', { name: 'Jobs', exact: true }).last().click();
  const ids = (await api('GET', 'v1/jobs?endpoint=charted')).jobs.map((j) => j.id);
  assert.equal(ids.length, 7);
  const shown = () => page.locator('tbody a.id').evaluateAll((all) => all.map((a) => a.title));
  await until('the jobs are those of the API', async () => (await shown()).join() === ids.join());
  await page.getByRole('link', { name: 'Logs', exact: true }).last().click();
  for (let i = 0; i < 6; i++) await page.getByRole('log').getByText(`chart ${i}`, { exact: true }).waitFor();
  await page.getByRole('link', { name: 'Usage', exact: true }).click();
  const [used] = await api('GET', 'v1/billing/endpoints?endpointId=charted&bucketSize=day');
  await until('the attempts are those of the API', async () => whole(await tile(page, 'Attempts').innerText()) === used.jobs);
  assert.equal(used.jobs, 7);
  await check();
  await end();
});

test('Billing has the usage of each endpoint as the API has it', async () => {
  await deploy('billed', 'playground');
  for (let i = 0; i < 3; i++) await complete('billed', { op: 'sha256', rounds: 2000 });
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/billing');
  const [used] = await api('GET', 'v1/billing/endpoints?endpointId=billed&bucketSize=day');
  const cells = row(page, 'billed').locator('td');
  await until('the attempts are there', async () => await cells.nth(1).innerText() === '3');
  assert.equal(used.jobs, 3);
  near(await cells.nth(2).innerText(), used.timeBilledMs, 'ran');
  near(await cells.nth(3).innerText(), used.cpuMs, 'processor');
  assert.equal(await cells.nth(4).innerText(), `${(used.memoryBytesPeak / 1048576).toFixed(1)} MiB`);
  const all = await api('GET', 'v1/billing/endpoints?bucketSize=day');
  assert.equal(whole(await tile(page, 'Attempts').innerText()), all.reduce((n, r) => n + r.jobs, 0));
  const asked = page.waitForRequest((q) => /bucketSize=hour&grouping=endpointId/.test(q.url()));
  await page.getByRole('button', { name: '1 day' }).click();
  await asked;
  await page.getByRole('button', { name: 'Template' }).click();
  await page.getByRole('heading', { name: 'By template' }).waitFor();
  assert.match(page.url(), /range=1d&by=templateId/);
  await check();
  await end();
});

test('System has the state and the options of the host as the API has them', async () => {
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/system');
  const s = await api('GET', 'v1/system');
  await until('the version is there', async () => await fact(page, 'Version').innerText() === s.version);
  assert.equal(whole(await fact(page, 'Endpoints').innerText()), s.endpoints);
  assert.equal(whole(await fact(page, 'Jobs kept').innerText()), s.jobs);
  assert.equal(whole(await fact(page, 'Max running jobs').innerText()), Number(s.settings['max-running-jobs']));
  assert.equal(await fact(page, 'Listen').innerText(), s.settings.listen);
  assert.equal(await fact(page, 'TLS').innerText(), 'no');
  const [, max] = (await tile(page, 'Sandboxes running').innerText()).split(' of ');
  assert.equal(whole(max), s.sandboxes.max);
  // The page asks again by itself.
  await deploy('one-more', 'echo');
  await until('the new endpoint is counted', async () => whole(await fact(page, 'Endpoints').innerText()) === s.endpoints + 1);
  await check();
  await end();
});
