// Buttons that change an endpoint: pause, removal of the waiting jobs, a new secret, deletion; and the theme.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { open, close, run, deploy, key, api, until, refusal, HOST } from './page.js';

after(close);

test('an endpoint is paused, its waiting jobs are removed, and it goes on', async () => {
  await deploy('operated', 'playground', { workersMax: 6 });
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/endpoints/operated');
  const dialog = page.getByRole('dialog'), main = page.getByRole('main');
  await main.getByRole('button', { name: 'Pause', exact: true }).click();
  await page.locator('h1').getByText('paused').waitFor();
  const workers = async () => { const { paused, workersMax } = await api('GET', 'v1/endpoints/operated'); return [paused, workersMax]; };
  assert.deepEqual(await workers(), [true, 6], 'the number of workers stays');
  const banner = page.getByRole('status').filter({ hasText: 'Paused.' });
  await banner.getByText('New jobs wait.').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Remove waiting jobs …' }).count(), 0);
  for (let i = 0; i < 3; i++) await run('operated', { op: 'echo' });
  await banner.getByText('3 jobs wait.').waitFor();
  await page.getByRole('button', { name: 'Remove waiting jobs …' }).click();
  await dialog.getByText('3 jobs wait now').waitFor();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  assert.equal((await api('GET', 'v2/operated/health')).jobs.inQueue, 3);
  await page.getByRole('button', { name: 'Remove waiting jobs …' }).click();
  await dialog.getByRole('button', { name: 'Remove them' }).click();
  await page.getByText('3 jobs removed.').waitFor();
  assert.equal((await api('GET', 'v2/operated/health')).jobs.inQueue, 0);
  await banner.getByRole('button', { name: 'Resume (6 workers)' }).click();
  await main.getByRole('button', { name: 'Pause', exact: true }).waitFor();
  assert.deepEqual(await workers(), [false, 6]);
  assert.equal(await banner.count(), 0);
  // Without any worker its jobs wait as well, and the page says what to change.
  await api('PATCH', 'v1/endpoints/operated', { workersMax: 0 });
  await page.getByText('“Most workers” is 0').waitFor();
  await page.locator('.banner').getByRole('link', { name: 'Settings' }).click();
  await page.getByLabel('Most workers').waitFor();
  await check();
  await end();
});

test('a new webhook secret is shown once, and an endpoint is deleted after a question', async () => {
  await deploy('retired', 'playground');
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/endpoints/retired/webhooks');
  const dialog = page.getByRole('dialog');
  const answer = page.waitForResponse(/rotate-webhook-secret$/);
  await page.getByRole('button', { name: 'New secret …' }).click();
  await dialog.getByRole('button', { name: 'Make a new secret' }).click();
  const { webhookSecret } = await (await answer).json();
  assert.match(webhookSecret, /^whsec_/);
  await page.getByText(webhookSecret, { exact: true }).waitFor();
  await page.reload();
  await page.getByText('No webhook yet').waitFor();
  assert.ok(!(await page.content()).includes(webhookSecret), 'not a second time');

  const there = async () => (await fetch(`${HOST}/v1/endpoints/retired`, { headers: { Authorization: `Bearer ${process.env.GRISTMILL_ADMIN_KEY}` } })).status;
  await page.getByRole('link', { name: 'Settings' }).click();
  await page.getByRole('button', { name: 'Delete …' }).click();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  assert.equal(await there(), 200);
  await page.getByRole('button', { name: 'Delete …' }).click();
  await dialog.getByRole('button', { name: 'Delete retired' }).click();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  assert.equal(await there(), 404);
  await until('its row goes', async () => await page.getByRole('link', { name: 'retired', exact: true }).count() === 0);
  // The page of the endpoint may ask once more.
  await check(refusal(404));
  await end();
});

test('the theme is switched, and stays after a reload', async () => {
  const { page, login, check, end } = await open();
  await login((await key()).text);
  const theme = (name) => page.getByRole('group', { name: 'Theme' }).getByRole('button', { name });
  const light = () => page.evaluate(() => (getComputedStyle(document.documentElement).backgroundColor.match(/\d+/g) ?? []).slice(0, 3).every((n) => Number(n) > 200));
  assert.equal(await light(), true);
  await theme('Dark').click();
  assert.equal(await light(), false);
  assert.equal(await theme('Dark').getAttribute('aria-pressed'), 'true');
  await page.reload();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  assert.equal(await light(), false);
  await theme('Auto').click();
  assert.equal(await light(), true);
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.equal(await light(), false);
  await theme('Light').click();
  assert.equal(await light(), true);
  await check();
  await end();
});
