// What single pages promise: the input of a job in every state, several logs in one list, wrapped lines,
// two releases compared, the form of settings, numbers while updates are paused, and a login that leads back.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { open, close, deploy, run, key, api, until, component, upload, refusal, HOST } from './page.js';

after(close);

test('the input of a job that waits, runs or failed is shown, and is the beginning of the next one', async () => {
  await api('PATCH', 'v1/endpoints/token-stream', { workersMax: 0 });
  const waiting = await run('token-stream', { prompt: 'of a job that waits' });
  const running = await run('playground', { op: 'sleep', ms: 60_000, value: 'of a job that runs' });
  const failed = await run('playground', { op: 'fail', message: 'of a job that failed' });
  await api('GET', `v2/playground/status-sync/${failed.id}`);
  await until('it runs', async () => (await api('GET', `v2/playground/status/${running.id}`)).status === 'IN_PROGRESS');
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  for (const [endpoint, job, status, text] of [['token-stream', waiting, 'Waiting', 'of a job that waits'], ['playground', running, 'Running', 'of a job that runs'], ['playground', failed, 'Failed', 'of a job that failed']]) {
    await to(`#/jobs/${endpoint}/${job.id}`);
    await page.locator('h1').getByText(status).waitFor();
    await page.getByRole('region', { name: 'Input' }).getByText(text).waitFor();
    await page.getByRole('button', { name: 'Run again …' }).click();
    const dialog = page.getByRole('dialog');
    assert.match(await dialog.getByLabel('Input').inputValue(), new RegExp(text));
    await dialog.getByRole('button', { name: 'Not now' }).click();
    await dialog.waitFor({ state: 'detached' });
  }
  // The failed one again, with another input.
  await page.getByRole('button', { name: 'Run again …' }).click();
  await page.getByRole('dialog').getByLabel('Input').fill('{"op":"echo","value":"another input"}');
  await page.getByRole('button', { name: 'Run as a new job' }).click();
  await page.getByRole('region', { name: 'Output' }).getByText('another input').waitFor();
  assert.ok(!page.url().includes(failed.id));
  await api('POST', `v2/playground/cancel/${running.id}`);
  await api('POST', `v2/token-stream/cancel/${waiting.id}`);
  await api('PATCH', 'v1/endpoints/token-stream', { workersMax: 4 });
  await check();
  await end();
});

test('logs of two endpoints come in one list, and long lines wrap', async () => {
  await upload('second:1', component('playground'));
  await api('POST', 'v1/templates', { id: 'second', name: 'second', imageName: 'second:1', category: 'CPU', isServerless: true });
  await api('POST', 'v1/endpoints', { id: 'second', name: 'second', templateId: 'second' });
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/logs?endpoint=playground');
  await page.getByLabel('Add an endpoint').selectOption('second');
  await page.getByRole('button', { name: 'Leave out second' }).waitFor();
  assert.ok(page.url().includes('endpoint=playground&endpoint=second'));
  for (const [endpoint, text] of [['playground', 'one'], ['second', 'two'], ['playground', 'three']]) {
    const job = await run(endpoint, { op: 'log', message: `in order ${text} ${'word '.repeat(60)}end of ${text}` });
    await api('GET', `v2/${endpoint}/status-sync/${job.id}`);
  }
  const lines = page.locator('.log-line', { hasText: 'in order' });
  await until('all three are there', async () => await lines.count() === 3);
  assert.deepEqual(await lines.evaluateAll((all) => all.map((l) => /** @type {any} */ (l.querySelector('.of')).textContent)), ['playground', 'second', 'playground']);
  const height = () => lines.first().evaluate((l) => l.clientHeight);
  assert.equal(await height(), 24);
  await page.getByRole('button', { name: 'Wrap lines' }).click();
  await until('the line takes several rows', async () => await height() > 24);
  // The height from the number of characters is the height of the text.
  for (const l of await lines.all()) assert.ok(await l.evaluate((e) => /** @type {any} */ (e.querySelector('.line')).scrollHeight <= e.clientHeight), 'the whole line is shown');
  await page.getByRole('button', { name: 'Leave out playground' }).click();
  await page.getByLabel('Endpoint', { exact: true }).waitFor();
  await until('only one endpoint is left', async () => await page.locator('.log-line', { hasText: 'in order' }).count() === 1);
  await check();
  await end();
});

test('a job shows its usage, all attempts together, and its cost', async () => {
  const job = await run('playground', { op: 'fail', message: 'no flour' });
  await until('it has failed', async () => (await api('GET', `v2/playground/status/${job.id}`)).status === 'FAILED');
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to(`#/jobs/playground/${job.id}`);
  const usage = page.locator('section', { has: page.getByRole('heading', { name: 'Usage and cost' }) });
  await usage.getByText('one attempt').waitFor();
  const fact = (name) => usage.locator('.facts > div', { hasText: name }).locator('dd').innerText();
  assert.match(await fact('Cost'), /^0 credits$/);
  assert.match(await fact('Processor'), /ms$/);
  assert.match(await fact('Peak memory'), /[KM]iB$/);
  await page.getByRole('button', { name: 'Retry' }).click();
  await usage.getByText('2 attempts together').waitFor();
  const stopped = await run('playground', { op: 'sleep', ms: 60000 });
  await until('it runs', async () => (await api('GET', `v2/playground/status/${stopped.id}`)).status === 'IN_PROGRESS');
  await to(`#/jobs/playground/${stopped.id}`);
  await page.getByRole('button', { name: 'Stop' }).click();
  await usage.getByText('one attempt').waitFor();
  await check();
  await end();
});

test('after a retry the chunks are those of the new attempt', async () => {
  const job = await run('playground', { op: 'emit', values: ['a', 'b'], delay_ms: 1500, message: 'no' });
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to(`#/jobs/playground/${job.id}`);
  await page.getByText('2 · complete').waitFor();
  await page.getByRole('button', { name: 'Retry' }).click();
  await page.getByText('1 · live').waitFor();
  await page.getByText('2 · complete').waitFor();
  await check();
  await end();
});

test('two releases are compared by what they are made of and by their settings', async () => {
  await upload('shift:1', component('echo'));
  await api('POST', 'v1/templates', { id: 'shift', name: 'shift', imageName: 'shift:1', category: 'CPU', isServerless: true });
  await api('POST', 'v1/endpoints', { id: 'shift', name: 'shift', templateId: 'shift' });
  await api('PATCH', 'v1/endpoints/shift', { memoryMib: 96, env: { SHIFT_TOKEN: 'do-not-show' }, allowedHosts: ['grain.example'] });
  await upload('shift:2', component('playground'));
  await api('PATCH', 'v1/templates/shift', { imageName: 'shift:2' });
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/endpoints/shift/releases');
  await page.getByLabel('Compare version 1').check();
  await page.getByLabel('Compare version 3').check();
  const both = page.getByRole('region', { name: 'Differences' });
  await both.getByText('+ gristmill:handler/log').waitFor();
  await both.getByText('shift:1').waitFor();
  assert.equal(await both.locator('tr.differs', { hasText: 'Imports' }).count(), 1);
  assert.equal(await both.locator('tr.differs', { hasText: 'Exports' }).count(), 0);
  assert.match(await both.locator('tr.differs', { hasText: 'Memory of a job' }).innerText(), /256\s+96/);
  await both.getByText('+ grain.example').waitFor();
  await both.getByText('+ SHIFT_TOKEN').waitFor();
  assert.equal(await both.getByText('do-not-show').count(), 0);
  assert.equal(await both.locator('tr.differs', { hasText: 'Most workers' }).count(), 0, 'it is the same');
  await check();
  await end();
});

test('settings of an endpoint are set, saved, shown again and compared, and an error is shown beside its field', async () => {
  await upload('tuned:1', component('echo'));
  await api('POST', 'v1/templates', { id: 'tuned', name: 'tuned', imageName: 'tuned:1', category: 'CPU', isServerless: true });
  await api('POST', 'v1/endpoints', { id: 'tuned', name: 'tuned', templateId: 'tuned' });
  const { page, login, to, errors, check, end } = await open();
  await login((await key()).text);
  await to('#/endpoints/tuned/settings');
  const fuel = page.getByLabel('Most fuel'), traces = page.getByLabel('Traces go on'), calls = page.getByLabel('Endpoints that its handlers may submit jobs to');
  const memory = page.getByLabel('Memory of a job'), env = page.getByLabel('Environment'), save = page.getByRole('button', { name: 'Save' });
  const field = (input) => page.locator('.field', { has: input }).getByRole('alert');
  const focused = async (input) => until('the field has the focus', async () => await input.evaluate((e) => e === document.activeElement));
  assert.equal(await fuel.inputValue(), '');
  assert.equal(await traces.inputValue(), 'false');

  // Wrong values stay in their fields, with the reason, and the focus goes to the first.
  await fuel.fill('1.5');
  await env.fill('TOKEN');
  await calls.fill('echo no/id');
  await save.focus();
  await page.keyboard.press('Enter');
  await field(fuel).getByText('A whole number').waitFor();
  await field(calls).getByText('no/id is not the id of an endpoint').waitFor();
  await field(env).getByText('TOKEN has no =').waitFor();
  assert.equal(await fuel.getAttribute('aria-invalid'), 'true');
  await focused(fuel);
  await fuel.fill('18446744073709551616');
  await field(fuel).waitFor({ state: 'detached' });
  await save.click();
  await field(fuel).getByText('18,446,744,073,709,551,615').waitFor();
  // A refusal of the host, by the field that it names.
  await page.getByRole('button', { name: 'Discard' }).click();
  assert.equal(await field(calls).count(), 0);
  await memory.fill('5000');
  await save.click();
  await field(memory).getByText('`memoryMib` must be').waitFor();
  await focused(memory);
  assert.deepEqual(errors.splice(0).filter((e) => !/400/.test(e)), []);
  await page.getByRole('button', { name: 'Discard' }).click();

  // The keyboard alone.
  await fuel.focus();
  await page.keyboard.type('9007199254740993');
  await page.getByLabel('Take all memory at once').focus();
  await page.keyboard.press('Tab');
  await focused(traces);
  await page.keyboard.press('y');
  await calls.focus();
  await page.keyboard.type('echo\nplayground');
  await save.focus();
  await page.keyboard.press('Enter');
  await page.getByText('Saved.').waitFor();
  const exact = async () => (await (await fetch(`${HOST}/v1/endpoints/tuned`, { headers: { Authorization: `Bearer ${process.env.GRISTMILL_ADMIN_KEY}` } })).text()).match(/"maxFuel":(\d+)/)?.[1];
  assert.equal(await exact(), '9007199254740993', 'no digit is rounded');
  const saved = await api('GET', 'v1/endpoints/tuned');
  assert.deepEqual([saved.propagateTraces, saved.callEndpoints], [true, ['echo', 'playground']]);
  await page.reload();
  await until('the form is there again', async () => await fuel.inputValue() === '9007199254740993');
  assert.equal(await traces.inputValue(), 'true');
  assert.equal(await calls.inputValue(), 'echo\nplayground');
  await page.getByText('Nothing is changed.').waitFor();

  await upload('tuned:2', component('playground'));
  await api('PATCH', 'v1/templates/tuned', { imageName: 'tuned:2' });
  await to('#/endpoints/tuned/releases');
  // The page has read the releases before.
  await page.reload();
  await page.getByLabel('Compare version 1').check();
  await page.getByLabel('Compare version 3').check();
  const both = page.getByRole('region', { name: 'Differences' });
  assert.match(await both.locator('tr.differs', { hasText: 'Traces go on' }).innerText(), /no\s+yes/);
  await both.locator('tr.differs', { hasText: 'Most fuel' }).getByText('not set').waitFor();

  // An empty field resets the fuel, and an empty list forbids all calls.
  await to('#/endpoints/tuned/settings');
  await fuel.fill('');
  await calls.fill('');
  await traces.selectOption('no');
  await save.click();
  await until('it is saved', async () => await exact() === undefined);
  const reset = await api('GET', 'v1/endpoints/tuned');
  assert.deepEqual([reset.propagateTraces, reset.callEndpoints], [false, []]);
  await check();
  await end();
});

test('an endpoint for HTTP has its names and the pages of other origins in the form', async () => {
  await upload('site:1', component('http-playground'));
  await api('POST', 'v1/templates', { id: 'site', name: 'site', imageName: 'site:1', category: 'CPU', isServerless: true });
  await api('POST', 'v1/endpoints', { id: 'site', name: 'site', templateId: 'site', type: 'LOAD_BALANCER', http: { public: true, cors: { exposeHeaders: ['x-sack'] } } });
  const { page, login, to, errors, check, end } = await open();
  await login((await key()).text);
  await to('#/endpoints/site/settings');
  const hosts = page.getByLabel('Its own host names'), origins = page.getByLabel('Origins whose pages'), headers = page.getByLabel('Headers that those pages');
  const cookies = page.getByLabel('Cookies from other origins'), age = page.getByLabel('A preflight answer holds'), save = page.getByRole('button', { name: 'Save' });
  const field = (input) => page.locator('.field', { has: input }).getByRole('alert');
  assert.deepEqual([await headers.inputValue(), await age.inputValue(), await cookies.inputValue()], ['x-sack', '600', 'false']);
  await origins.fill('*');
  await cookies.selectOption('yes');
  await save.click();
  await field(cookies).getByText('needs named origins').waitFor();
  await origins.fill('https://mill.example/path');
  await save.click();
  await field(origins).getByText('an origin is').waitFor();
  assert.deepEqual(errors.splice(0).filter((e) => !/400/.test(e)), []);
  await origins.fill('https://mill.example\nhttps://bakery.example');
  await age.fill('');
  await save.click();
  await field(age).getByText('A whole number is needed').waitFor();
  await age.fill('0');
  await hosts.fill('site.example');
  await headers.fill('');
  await save.click();
  await page.getByText('Saved.').waitFor();
  const { http } = await api('GET', 'v1/endpoints/site');
  assert.deepEqual([http.public, http.hosts, http.cors], [true, ['site.example'], { maxAge: 0, origins: ['https://mill.example', 'https://bakery.example'], exposeHeaders: [], credentials: true }]);

  // Jobs have no settings of HTTP.
  await to('#/endpoints/echo/settings');
  await page.getByLabel('Hosts that its handlers may call').waitFor();
  assert.equal(await origins.count(), 0);
  await check();
  await end();
});

test('changed settings are there when the form is opened again, until they are saved or discarded', async () => {
  await deploy('drafted', 'playground');
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/endpoints/drafted/settings');
  const memory = page.getByLabel('Memory of a job'), choose = page.getByLabel('Limit an operation');
  await memory.fill('99');
  await choose.selectOption('run');
  await page.getByLabel('run: Calls in 10 s').fill('40');
  await page.getByText('2 unsaved changes').waitFor();
  await page.getByText('Memory of a job (MiB), limits of run').waitFor();
  await page.getByRole('link', { name: 'Keys', exact: true }).click();
  await page.getByRole('heading', { name: 'Keys' }).waitFor();
  await page.goBack();
  await page.getByText('2 unsaved changes').waitFor();
  assert.equal(await memory.inputValue(), '99');
  assert.equal(await page.getByLabel('run: Calls in 10 s').inputValue(), '40');
  // The other tabs say that there is something, and another endpoint has nothing of it.
  await page.getByRole('link', { name: 'Charts' }).click();
  await page.getByRole('link', { name: 'Settings 2 unsaved' }).waitFor();
  await to('#/endpoints/playground/settings');
  await page.getByText('Nothing is changed.').waitFor();
  await to('#/endpoints/drafted/settings');
  // A reload would lose them, so the browser asks.
  const asked = [];
  page.on('dialog', (d) => { asked.push(d.type()); d.dismiss(); });
  await page.evaluate(() => { location.reload(); });
  await until('the browser asks', () => asked.length > 0);
  assert.equal(await memory.inputValue(), '99');
  await page.getByRole('button', { name: 'Discard' }).click();
  await page.getByText('Nothing is changed.').waitFor();
  await memory.fill('98');
  await page.getByRole('button', { name: 'Save' }).click();
  await until('it is saved', async () => (await api('GET', 'v1/endpoints/drafted')).memoryMib === 98);
  await page.getByText('Nothing is changed.').waitFor();
  await page.getByRole('link', { name: 'Charts' }).click();
  await page.getByRole('link', { name: 'Settings', exact: true }).click();
  await until('the saved value is there', async () => await memory.inputValue() === '98');
  await page.getByText('Nothing is changed.').waitFor();
  await check();
  await end();
});

test('rate limits and the bounds of kept jobs are set, refused beside their field, changed one by one and removed', async () => {
  await api('POST', 'v1/templates', { id: 'sieve', name: 'sieve', imageName: 'echo:latest', category: 'CPU', isServerless: true });
  await api('POST', 'v1/endpoints', { id: 'sieve', name: 'sieve', templateId: 'sieve' });
  const { page, login, to, errors, check, end } = await open();
  await login((await key()).text);
  /** What the form sends. @type {any[]} */
  const sent = [];
  page.on('request', (q) => { if (q.method() === 'PATCH') sent.push(q.postDataJSON()); });
  await to('#/endpoints/sieve/settings');
  const save = page.getByRole('button', { name: 'Save' }), choose = page.getByLabel(/^Limit (an|another) operation/);
  const limit = (op, column) => page.getByLabel(`${op}: ${column}`), calls = limit('run', 'Calls in 10 s');
  const jobs = page.getByLabel('Most kept jobs'), mib = page.getByLabel('Most kept MiB');
  const alert = (input) => page.locator('.field', { has: input }).getByRole('alert');
  const fault = async (input, text) => { await page.locator('.limits').getByRole('alert').getByText(text).waitFor(); assert.match(await page.locator(`[id="${await input.getAttribute('aria-describedby')}"]`).innerText(), new RegExp(text)); };
  const focused = async (input) => until('the field has the focus', async () => await input.evaluate((e) => e === document.activeElement));
  const saved = async (what, f) => { await save.click(); await until(what, async () => f(await api('GET', 'v1/endpoints/sieve'))); await page.getByText('Nothing is changed.').waitFor(); };

  assert.equal(await calls.count(), 0);
  await choose.selectOption('run');
  await focused(calls);
  await page.getByText('Nothing is changed.').waitFor();
  // A limit has its first field; other bounds are the host's.
  await limit('run', 'At one time').fill('3');
  await save.click();
  await fault(calls, 'are needed');
  await focused(calls);
  assert.deepEqual(sent, []);
  await calls.fill('0');
  await save.click();
  await fault(calls, '`rateLimits.run.callsPer10s` must be 1 to 4294967295');
  assert.equal(await calls.getAttribute('aria-invalid'), 'true');
  await calls.fill('50');
  await limit('run', 'Calls per worker').fill('-1');
  await save.click();
  await fault(limit('run', 'Calls per worker'), 'negative');
  await limit('run', 'Calls per worker').fill('');
  await jobs.fill('100000001');
  await save.click();
  await alert(jobs).getByText('`retention.maxJobs` must be').waitFor();
  await jobs.fill('1000');
  await mib.fill('1.5');
  await save.click();
  await alert(mib).getByText('expected a whole number').waitFor();
  await focused(mib);
  assert.deepEqual(errors.splice(0).filter((e) => !/400/.test(e)), []);
  await mib.fill('64');
  await saved('both are set', (e) => e.rateLimits.run?.callsPer10s === 50 && e.rateLimits.run.concurrent === 3 && e.retention.maxJobs === 1000 && e.retention.maxMib === 64);
  assert.deepEqual(sent.at(-1), { rateLimits: { run: { callsPer10s: 50, concurrent: 3 } }, retention: { maxJobs: 1000, maxMib: 64 } });

  // Another client limits another operation meanwhile: its limit stays.
  await page.reload();
  await until('the form is there again', async () => await calls.inputValue() === '50');
  assert.equal(await jobs.inputValue(), '1000');
  await api('PATCH', 'v1/endpoints/sieve', { rateLimits: { run: { callsPer10s: 50, concurrent: 3 }, cancel: { callsPer10s: 7 } } });
  await limit('run', 'At one time').fill('');
  await saved('the bound is removed', (e) => e.rateLimits.run && e.rateLimits.run.concurrent === undefined);
  assert.equal((await api('GET', 'v1/endpoints/sieve')).rateLimits.cancel.callsPer10s, 7);
  assert.equal('retention' in sent.at(-1), false, 'only what was changed is sent');

  // Undo, then back to the host's limits, and no bound.
  await page.getByRole('button', { name: 'Default limits for run' }).click();
  await calls.waitFor({ state: 'detached' });
  await focused(choose);
  await page.getByText('1 unsaved change').waitFor();
  await page.getByRole('button', { name: 'Discard' }).click();
  assert.equal(await calls.inputValue(), '50');
  await page.getByRole('button', { name: 'Default limits for run' }).click();
  await mib.fill('');
  await jobs.fill('0');
  await saved('they are removed', (e) => !e.rateLimits.run && e.rateLimits.cancel && !e.retention.maxMib && !e.retention.maxJobs);
  assert.deepEqual(sent.at(-1).retention, { maxJobs: 0, maxMib: 0 });
  await check();
  await end();
});

test('a page that is opened while updates are paused has its numbers', async () => {
  const { page, login, to, check, end } = await open();
  await to('');
  await page.getByLabel('API key').waitFor();
  // Before the first event of any stream.
  await page.evaluate(async () => { (await import(/** @type {any} */ (new URL('assets/lib/settings.js', document.baseURI).href))).paused.value = true; });
  await page.getByLabel('API key').fill((await key()).text);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByText('Paused', { exact: true }).waitFor();
  const cell = page.locator('tbody tr', { hasText: 'echo' }).locator('td').nth(2);
  await until('the number is there', async () => /^\d+$/.test(await cell.innerText()));
  await check();
  await end();
});

test('who logs in again after the session has ended is where he was', async () => {
  const { page, login, to, check, end } = await open();
  const own = await key(['admin'], 'ends midway');
  const job = await run('playground', { op: 'stream', count: 400, delay_ms: 50 });
  await login(own.text);
  await to(`#/jobs/playground/${job.id}`);
  await page.getByRole('region', { name: 'Chunks' }).waitFor();
  await api('DELETE', `v1/keys/${own.id}`);
  await page.getByText('The session has ended').waitFor({ timeout: 30_000 });
  await page.getByLabel('API key').fill((await key()).text);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.locator('h1').getByText(job.id).waitFor();
  await page.getByRole('region', { name: 'Chunks' }).waitFor();
  await api('POST', `v2/playground/cancel/${job.id}`);
  await check(refusal(401));
  await end();
});
