// The page of a job: a trap with its stack, log lines, a call for the shell that does the same, its trace, deletion.
// The list of jobs: filters in the address. What the pages say where there is nothing yet.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { open, close, run, complete, deploy, key, api, until, refusal, HOST } from './page.js';

after(close);
/** Runs the call that a page shows, as its reader does. @returns {any} the answer */
async function curl(page) {
  const text = await page.locator('section', { has: page.getByRole('heading', { name: 'The same call with curl' }) }).locator('code').innerText();
  return JSON.parse(execFileSync('sh', ['-c', text], { encoding: 'utf8', env: { ...process.env, KEY: process.env.GRISTMILL_ADMIN_KEY }, stdio: ['ignore', 'pipe', 'ignore'] }));
}

test('a trap is shown with its stack, below its sentence', async () => {
  const job = await complete('playground', { op: 'trap' });
  assert.match(job.error, /unreachable/);
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to(`#/jobs/playground/${job.id}`);
  const error = page.getByRole('region', { name: 'Error' });
  await error.getByText(job.error, { exact: true }).waitFor();
  assert.equal(await error.locator('pre').count(), 0);
  // `gristmill dev` explains traps in the log; this host does not, so the lines come from here.
  const calls = ['trap: at playground::limits::trap (src/limits.rs:51)', 'trap: at playground::play (src/lib.rs:172)', 'trap: at <img src=x onerror=owned>', 'trap: at main'];
  await page.route(/\/logs\?job=/, (route) => route.fulfill({ json: calls.map((line, i) => ({ number: i + 1, at: '2026-11-27T02:00:00Z', jobId: job.id, level: 'error', line })) }));
  await page.reload();
  await error.getByText('Stack, 4 lines').click();
  assert.equal(await error.locator('pre').innerText(), calls.map((l) => l.slice(6)).join('\n'));
  assert.equal(await page.getByRole('log').locator('.log-line').count(), 4);
  await check();
  await end();
});

test('a job has its log lines and its trace, and is deleted after a question', async () => {
  const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
  const answer = await fetch(`${HOST}/v2/playground/run`, { method: 'POST', headers: { Authorization: `Bearer ${process.env.GRISTMILL_ADMIN_KEY}`, 'Content-Type': 'application/json', traceparent: `00-${traceId}-00f067aa0ba902b7-01` }, body: JSON.stringify({ input: { op: 'log', message: 'sieved twice' } }) });
  const { id } = await answer.json();
  const other = await complete('playground', { op: 'log', message: 'of another job' });
  await api('GET', `v2/playground/status-sync/${id}`);
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to(`#/jobs/playground/${id}`);
  await page.getByRole('log').getByText('sieved twice', { exact: true }).waitFor();
  assert.equal(await page.getByRole('log').getByText('of another job').count(), 0);
  await page.locator('.facts > div', { hasText: 'Trace' }).getByText(traceId, { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  const dialog = page.getByRole('dialog', { name: `Delete the job ${id.slice(-13, -5)}?` });
  await dialog.getByText(`The job ${id} of playground`).waitFor();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  assert.equal((await api('GET', `v2/playground/status/${id}`)).status, 'COMPLETED');
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await dialog.getByRole('button', { name: 'Delete the job' }).click();
  await page.getByRole('heading', { name: 'Jobs', exact: true }).waitFor();
  await until('only this job is deleted', async () => (await api('GET', `v1/jobs?idPrefix=${id}`)).jobs.length === 0);
  await to(`#/jobs/playground/${other.id}`);
  await page.getByRole('heading', { name: 'Timeline' }).waitFor();
  assert.equal(await page.getByText('Trace', { exact: true }).count(), 0, 'a job without a trace');
  // The page of the deleted job may ask once more.
  await check(refusal(404));
  await end();
});

test('the calls for the shell do what the page did', async () => {
  const value = { text: "it's 100% $HOME `id` \\ \"quoted\"\n", big: 1.5 };
  // The host keeps the input of a job that failed.
  const job = await complete('playground', { op: 'fail', message: value.text }, { tags: { by: 'curl-test' } });
  const done = await complete('playground', { op: 'echo' });
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to(`#/jobs/playground/${job.id}`);
  await page.getByRole('region', { name: 'Input' }).waitFor();
  const again = await curl(page);
  assert.notEqual(again.id, job.id);
  const ended = await api('GET', `v2/playground/status-sync/${again.id}`);
  assert.equal(ended.error, value.text);
  assert.deepEqual((await api('GET', 'v1/jobs?tag=by:curl-test')).jobs.map((j) => j.id), [again.id, job.id]);
  await to(`#/jobs/playground/${done.id}`);
  await page.getByText('The input is not kept: put it in.').waitFor();

  await to('#/playground?endpoint=playground');
  await page.getByLabel('Input', { exact: true }).fill(JSON.stringify({ op: 'echo', value }));
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByRole('region', { name: 'Output' }).getByText('"quoted', { exact: false }).waitFor();
  assert.deepEqual((await curl(page)).output, { echo: value });
  // The way Queue answers at once; its page has the result.
  await page.getByRole('button', { name: 'Queue', exact: true }).click();
  await page.getByRole('button', { name: 'Queue the job' }).click();
  await page.getByRole('region', { name: 'Answer' }).getByText('"IN_QUEUE"').waitFor();
  const queued = await curl(page);
  assert.equal(queued.status, 'IN_QUEUE');
  await page.getByRole('link', { name: 'Open the job' }).click();
  await page.locator('h1').getByText('Completed').waitFor();
  await page.getByRole('region', { name: 'Output' }).getByText('"quoted', { exact: false }).waitFor();
  await check();
  await end();
});

test('the filters of the list of jobs are in the address, and the address is enough', async () => {
  await deploy('sorted', 'playground');
  for (let i = 0; i < 3; i++) await complete('sorted', { op: 'echo' });
  for (const message of ['the belt slipped', 'the belt tore']) await complete('sorted', { op: 'fail', message });
  await api('PATCH', 'v1/endpoints/sorted', { workersMax: 0 });
  await run('sorted', { op: 'echo' });
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/jobs?endpoint=sorted');
  const rows = page.locator('tbody tr'), chip = (name) => page.getByRole('group', { name: 'Status' }).getByRole('button', { name });
  const shown = (n, words) => until(`${n} rows`, async () => { const all = await rows.locator('.status').allInnerTexts(); return all.length === n && all.every((t) => words.includes(t.trim())); });
  await shown(6, ['Waiting', 'Completed', 'Failed']);
  await chip('Failed').click();
  await shown(2, ['Failed']);
  await chip('Waiting').click();
  await shown(3, ['Failed', 'Waiting']);
  assert.match(page.url(), /#\/jobs\?status=FAILED&status=IN_QUEUE&endpoint=sorted$/);
  await chip('Waiting').click();

  const asked = page.waitForRequest((q) => q.url().includes('/v1/jobs?') && q.url().includes('from='));
  await page.getByLabel('Submitted').selectOption('Last hour');
  const from = Date.parse(/** @type {string} */ (new URL((await asked).url()).searchParams.get('from')));
  assert.ok(Math.abs(Date.now() - 3_600_000 - from) < 120_000, 'an hour before now');
  assert.match(page.url(), /since=1h/);
  await page.getByLabel(/^Search/).fill('belt tore');
  await page.keyboard.press('Enter');
  await shown(1, ['Failed']);
  assert.match(page.url(), /q=belt\+tore/);

  await page.reload();
  await shown(1, ['Failed']);
  await page.getByText('the belt tore').waitFor();
  assert.equal(await chip('Failed').getAttribute('aria-pressed'), 'true');
  assert.equal(await chip('Waiting').getAttribute('aria-pressed'), 'false');
  assert.equal(await page.getByLabel('Submitted').inputValue(), '1h');
  // The search is a condition with a name, and the field is free.
  const term = (text) => page.getByRole('button', { name: `Remove ${text}` });
  await term('error contains “belt tore”').waitFor();
  const search = page.getByLabel(/^Search/);
  assert.equal(await search.inputValue(), '');
  // Escape leaves the field with its text, and every condition stays.
  await search.pressSequentially('half a word');
  await page.keyboard.press('Escape');
  assert.equal(await search.inputValue(), 'half a word');
  assert.equal(await search.evaluate((e) => e === document.activeElement), false);
  assert.match(page.url(), /q=belt\+tore/);
  await term('error contains “belt tore”').click();
  await shown(2, ['Failed']);
  await search.fill('run:7');
  await page.keyboard.press('Enter');
  await term('tag run = 7').waitFor();
  assert.match(page.url(), /tag=run%3A7/);
  await term('tag run = 7').click();
  await shown(2, ['Failed']);
  await page.getByLabel(/^Search/).fill('no such text');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'No job matches' }).waitFor();
  await page.getByRole('button', { name: 'Clear filters' }).click();
  await until('there are jobs again', async () => await rows.count() > 5);
  assert.match(page.url(), /#\/jobs$/);
  await check();
  await end();
});

test('a webhook that was refused is red, and says so once', async () => {
  const job = await complete('playground', { op: 'echo' });
  const { page, login, to, check, end } = await open();
  const at = new Date().toISOString(), url = 'https://receiver.example/hook';
  const sent = [200, 500, undefined].map((httpStatus, i) => ({ event: 'webhookSent', at, attempt: i + 1, httpStatus }));
  await page.route(/\/timeline\//, async (route) => { const r = await route.fetch(), doc = await r.json(); await route.fulfill({ response: r, json: { ...doc, events: [...doc.events, ...sent] } }); });
  const delivery = { id: 'd', jobId: job.id, jobStatus: 'COMPLETED', url, state: 'PENDING', attempts: 1, createdAt: at, nextAttemptAt: at };
  await page.route(/\/deliveries/, (route) => route.fulfill({ json: [{ ...delivery, lastStatus: 500, lastError: 'answered 500' }, { ...delivery, id: 'e', state: 'DELIVERED', lastStatus: 204 }] }));
  await login((await key()).text);
  await to(`#/jobs/playground/${job.id}`);
  const lines = page.locator('.timeline li', { hasText: 'Webhook sent' });
  await lines.nth(2).waitFor();
  const color = (name) => page.evaluate((n) => { const i = document.createElement('i'); i.style.color = `var(${n})`; document.body.append(i); const c = getComputedStyle(i).color; i.remove(); return c; }, name);
  const shown = await lines.locator('span').evaluateAll((all) => all.map((e) => getComputedStyle(e).color));
  assert.deepEqual(shown, [await color('--good'), await color('--bad'), await color('--bad')]);
  await to('#/endpoints/playground/webhooks');
  const answers = page.locator('tbody tr td:nth-child(5)');
  await until('both deliveries', async () => await answers.count() === 2);
  assert.deepEqual(await answers.allInnerTexts(), ['answered 500', 'answered 204']);
  await check();
  await end();
});

test('ids are shown by the part that differs, and are found by any part', async () => {
  await deploy('twins', 'playground');
  const jobs = await Promise.all(Array.from({ length: 12 }, () => run('twins', { op: 'echo' })));
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/jobs?endpoint=twins');
  const ids = page.locator('tbody a.id');
  await until('all rows', async () => await ids.count() === 12);
  const texts = await ids.allInnerTexts();
  assert.equal(new Set(texts).size, 12, `${texts}`);
  const [{ id }] = jobs, shown = texts[(await ids.evaluateAll((all) => all.map((a) => a.title))).indexOf(id)];
  assert.ok(shown.length <= 8 && id.includes(shown), shown);
  for (const part of [shown, id, id.slice(0, 30), id.slice(20)]) {
    await page.getByLabel(/^Search/).fill(part);
    await page.keyboard.press('Enter');
    await until(`it is found by ${part}`, async () => (await ids.evaluateAll((all) => all.map((a) => a.title))).includes(id) && await ids.count() < 12);
  }
  // An action on all that match cannot have a part of an id as its condition.
  await page.getByLabel(/^Search/).fill(shown);
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: `Remove id contains ${shown}` }).waitFor();
  await page.getByLabel('Select all rows on this page').check();
  await page.getByText('1 selected').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Select all that match' }).count(), 0);
  await check();
  await end();
});

test('where there is nothing yet, the page names the next command', async () => {
  // Nothing is there for a new owner.
  const { key: text } = await api('POST', 'v1/keys', { name: 'newcomer', scopes: ['manage', 'submit'], owner: 'newcomer' });
  const { page, login, to, check, end } = await open();
  await login(text);
  const commands = { '#/': 'gristmill deploy count', '#/jobs': '/v2/ENDPOINT/run', '#/logs': 'gristmill deploy count', '#/playground': 'gristmill deploy --sample word-count', '#/handlers': 'gristmill ', '#/templates': 'gristmill ', '#/volumes': 'gristmill ', '#/registries': 'gristmill ', '#/billing': 'gristmill billing --bucket day' };
  for (const [at, command] of Object.entries(commands)) {
    await to(at);
    await until(`${at} names ${command}`, async () => (await page.locator('.empty').getByLabel('Command').innerText()).includes(command));
  }
  // The first command of the overview is one that exists.
  await to('#/');
  assert.match(await page.locator('.empty').getByLabel('Command').innerText(), new RegExp(`^export GRISTMILL_URL=${HOST}\ngristmill new count`));
  await deploy('idle', 'echo');
  await page.getByText('Log out').click();
  await page.getByLabel('API key').fill((await key()).text);
  await page.getByRole('button', { name: 'Log in' }).click();
  await to('#/endpoints/idle/jobs');
  await page.locator('.empty').getByText(`${HOST}/v2/idle/run`).waitFor();
  await to('#/endpoints/idle/failed');
  await page.getByText('No failed job').waitFor();
  await to('#/endpoints/idle/usage');
  await page.locator('.empty').getByText('gristmill billing --bucket day').waitFor();
  await to('#/endpoints/idle/webhooks');
  await page.getByText('No webhook yet').waitFor();
  await check();
  await end();
});
