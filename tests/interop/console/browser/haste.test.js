// Users in a hurry: two clicks instead of one, several tabs, jobs that have changed meanwhile, a link in a tab that is
// open already, and fields that are left empty.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { agree, open, close, run, complete, deploy, key, api, until, refusal, HOST } from './page.js';

after(close);
const consoleLink = (apiKey) => {
  const text = execFileSync(/** @type {string} */ (process.env.GRISTMILL), ['console'], { encoding: 'utf8', env: { ...process.env, GRISTMILL_API_KEY: apiKey } });
  const [link] = /** @type {RegExpExecArray} */ (/http\S+#\/enter\/\S+/.exec(text));
  return link.slice(link.indexOf('#'));
};
const submissions = (page, path) => {
  const seen = [];
  page.on('request', (r) => { if (r.method() === 'POST' && r.url().endsWith(path)) seen.push(r.url()); });
  return seen;
};

test('two clicks make one key, and its text is shown', async () => {
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/keys');
  await page.getByRole('button', { name: 'New key …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('made once');
  const sent = submissions(page, '/v1/keys');
  await dialog.getByRole('button', { name: 'Make it' }).dblclick();
  await page.getByLabel('New key', { exact: true }).getByText(/^gm_/).waitFor();
  assert.equal(sent.length, 1);
  assert.equal((await api('GET', 'v1/keys')).filter((k) => k.name === 'made once').length, 1);
  await check();
  await end();
});

test('a dialog gives the focus back, and a selection that ends outside does not close it', async () => {
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/keys');
  const opener = page.getByRole('button', { name: 'New key …' }), dialog = page.getByRole('dialog');
  await opener.click();
  const name = dialog.getByLabel('Name');
  await name.fill('typed with care');
  const box = await name.boundingBox();
  assert.ok(box);
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(4, 4, { steps: 5 });
  await page.mouse.up();
  assert.equal(await name.inputValue(), 'typed with care');
  await dialog.getByRole('button', { name: 'Not now' }).click();
  await dialog.waitFor({ state: 'detached' });
  await until('the focus is back', () => opener.evaluate((b) => b === document.activeElement));
  // A click outside closes it as before.
  await opener.click();
  await dialog.waitFor();
  await page.mouse.click(4, 4);
  await dialog.waitFor({ state: 'detached' });
  await check();
  await end();
});

test('a key that is held down submits one job', async () => {
  await deploy('held', 'playground');
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/playground?endpoint=held');
  const input = page.getByLabel('Input', { exact: true });
  await input.fill('{"op":"sleep","ms":1500}');
  const sent = submissions(page, '/v2/held/runsync');
  for (let i = 0; i < 4; i++) await page.keyboard.down('Control').then(() => page.keyboard.press('Enter'));
  await page.keyboard.up('Control');
  await page.getByRole('link', { name: 'Open the job' }).waitFor();
  assert.equal(sent.length, 1);
  assert.equal((await api('GET', 'v1/jobs?endpoint=held')).jobs.length, 1);
  await check();
  await end();
});

test('the playground stays at its endpoint when one with an earlier name is created', async () => {
  await deploy('b-second', 'playground');
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/playground');
  const select = page.getByRole('combobox', { name: 'Endpoint' });
  await select.waitFor();
  const before = await select.inputValue();
  await deploy('0-first', 'playground');
  await until('the new endpoint is offered', async () => await select.locator('option', { hasText: '0-first' }).count() === 1);
  assert.equal(await select.inputValue(), before);
  await api('DELETE', 'v1/endpoints/0-first');
  await check();
  await end();
});

test('a job that has changed meanwhile does not stop the action on the others', async () => {
  await deploy('raced', 'playground');
  const jobs = [];
  for (let i = 0; i < 3; i++) jobs.push(await complete('raced', { op: 'fail', message: `grain ${i}` }));
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/jobs?endpoint=raced&status=FAILED');
  const box = page.getByRole('checkbox');
  await until('three rows', async () => await box.count() >= 3);
  for (const j of jobs) await page.getByRole('checkbox', { name: `Select ${j.id}` }).check();
  await page.getByText('3 selected').waitFor();
  // The newest row is the first one.
  await api('POST', 'v1/job-actions', { action: 'delete', filter: { endpoints: ['raced'], idPrefix: jobs[2].id } });
  await until('it is deleted', async () => (await api('GET', 'v1/jobs?endpoint=raced')).jobs.length === 2);
  await page.getByRole('button', { name: 'Retry 3' }).click();
  await page.getByText('2 of 3 jobs queued again.').waitFor();
  for (const j of jobs.slice(0, 2)) assert.equal((await api('GET', `v2/raced/status/${j.id}`)).retries, 1);
  await check(refusal(404));
  await end();
});

test('a time before now is counted from the moment at which the list is opened', async () => {
  await deploy('late', 'playground');
  await complete('late', { op: 'echo' });
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  const from = [];
  page.on('request', (r) => { const u = new URL(r.url()); if (u.pathname.endsWith('/v1/jobs') && u.searchParams.get('limit') === '50' && u.searchParams.get('from')) from.push(Date.parse(u.searchParams.get('from') ?? '')); });
  await to('#/jobs?endpoint=late&since=15m');
  await page.getByRole('link', { name: 'late', exact: true }).first().waitFor();
  const first = from[from.length - 1];
  // An event of the host has a later time once there is news.
  await complete('late', { op: 'echo' });
  await page.getByRole('button', { name: '1 newer' }).waitFor();
  await page.getByRole('button', { name: 'Refresh' }).click();
  await until('a later beginning', () => from[from.length - 1] > first);
  await check();
  await end();
});

test('a login or logout in another tab is one in this tab', async () => {
  const { page, context, login, check, end } = await open();
  await login((await key(['admin'], 'first key')).text);
  await page.getByText('first key').waitFor();
  const other = await context.newPage();
  await other.goto(`${HOST}/console/`);
  await other.getByText('first key').waitFor();
  await other.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('dialog', { name: 'Log in' }).waitFor();
  const stranger = await api('POST', 'v1/keys', { name: 'second key', scopes: ['manage', 'submit'], owner: 'stranger' });
  await other.getByLabel('API key').fill(stranger.key);
  await other.getByRole('button', { name: 'Log in' }).click();
  await other.getByText('second key').waitFor();
  await page.getByText('second key').waitFor();
  await page.getByRole('dialog', { name: 'Log in' }).waitFor({ state: 'detached' });
  await check(refusal(401));
  await end();
});

test('a logout that the host does not answer is not claimed', async () => {
  const { page, context, login, end } = await open();
  await login((await key()).text);
  await context.route(/console\/session$/, (route) => route.request().method() === 'DELETE' ? route.abort() : route.continue());
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByText('The host does not answer').waitFor();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await end();
});

test('a link of `gristmill console` works in a tab that is open already', async () => {
  const { page, login, to, check, end } = await open();
  await login((await key(['read'], 'only reads')).text);
  await to(consoleLink(process.env.GRISTMILL_ADMIN_KEY));
  await agree(page);
  await page.getByRole('link', { name: 'Keys', exact: true }).waitFor();
  assert.ok(!page.url().includes('enter'));
  // A used link leaves the session as it is, and says so.
  const used = consoleLink(process.env.GRISTMILL_ADMIN_KEY), second = await open();
  await second.to(used);
  await agree(second.page);
  await second.page.getByRole('heading', { name: 'Overview' }).waitFor();
  await second.end();
  await to(used);
  await page.getByText('this link was used').waitFor();
  await page.getByRole('link', { name: 'Keys', exact: true }).waitFor();
  // A call of the page before may arrive with the cookie that has ended.
  await check(refusal(401));
  await end();
});

test('a key for single endpoints sees a page that says so', async () => {
  await deploy('alone', 'playground');
  const made = await api('POST', 'v1/keys', { name: 'alone', scopes: ['submit'], endpoints: ['alone'] });
  const { page, to, check, end } = await open();
  await to('');
  await page.getByLabel('API key').fill(made.key);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByText('This key is for single endpoints').waitFor();
  await page.getByText('It reaches alone through the queue API only').waitFor();
  await check();
  await end();
});

test('an emptied number of workers is not sent as 0', async () => {
  await deploy('staffed', 'playground');
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/endpoints/staffed/settings');
  const most = page.getByLabel('Most workers');
  const before = await most.inputValue();
  await most.fill('');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('A whole number is needed here.').waitFor();
  // A browser gives an empty value for a text that is no number.
  await most.pressSequentially('-');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('This is not a number.').waitFor();
  assert.equal(String((await api('GET', 'v1/endpoints/staffed')).workersMax), before);
  await check();
  await end();
});

test('uploads go on after a session that ended midway', async () => {
  const volume = await api('POST', 'v1/networkvolumes', { name: 'interrupted', size: 1 });
  const { page, context, login, to, check, end } = await open();
  const own = await key(['admin'], 'ends midway');
  await login(own.text);
  await to(`#/volumes/${volume.id}`);
  await page.getByText('This volume is empty').waitFor();
  let sent = 0;
  await context.route(/\/files\/sack-/, async (route) => {
    if (++sent === 3) await api('DELETE', `v1/keys/${own.id}`);
    await route.continue();
  });
  const files = Array.from({ length: 8 }, (_, i) => ({ name: `sack-${i}`, mimeType: 'text/plain', buffer: Buffer.from(`${i}`) }));
  await page.getByLabel('Files to upload').setInputFiles(files);
  const again = page.getByRole('dialog', { name: 'Log in' });
  await again.waitFor({ timeout: 30_000 });
  await page.getByLabel('API key').fill((await key(['admin'], 'goes on')).text);
  await page.getByRole('button', { name: 'Log in' }).click();
  await until('all files are there', async () => (await api('GET', `v1/networkvolumes/${volume.id}/files`)).length === 8);
  await page.getByText('8 files are uploaded.').waitFor();
  await check(refusal(401));
  await end();
});
