// Selected jobs: each button says what it will do and to how many, and nothing is deleted without a question.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { open, close, run, complete, deploy, key, api, until } from './page.js';

after(close);

test('selected jobs are deleted after a question with their number, and Escape clears the selection', async () => {
  await deploy('picked', 'playground');
  for (let i = 0; i < 3; i++) await complete('picked', { op: 'echo' });
  await complete('picked', { op: 'fail', message: 'no flour' });
  const running = await run('picked', { op: 'sleep', ms: 60_000 });
  const there = async () => (await api('GET', 'v1/jobs?endpoint=picked')).jobs.length;
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/jobs?endpoint=picked');
  const dialog = page.getByRole('dialog'), all = page.getByLabel('Select all rows on this page');
  const button = (name) => page.getByRole('button', { name, exact: true });
  await until('all rows', async () => await page.locator('tbody tr').count() === 5);
  await all.check();
  await page.getByText('5 selected').waitFor();
  // Each action counts the jobs whose status permits it.
  await button('Retry 1').waitFor();
  await button('Stop 1').waitFor();
  assert.equal(await button('Cancel').count(), 0);
  const more = page.getByLabel('More actions on the selected jobs');
  await more.click();
  await button('Delete 4 …').click();
  await dialog.getByText('4 jobs of picked will be deleted with their results. This cannot be taken back.').waitFor();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  assert.equal(await there(), 5);
  await page.getByText('5 selected').waitFor();

  // Escape closes the menu first, then clears the selection.
  await more.click();
  await button('Delete 4 …').waitFor();
  await page.keyboard.press('Escape');
  await button('Delete 4 …').waitFor({ state: 'hidden' });
  await page.getByText('5 selected').waitFor();
  await page.keyboard.press('Escape');
  await page.getByText('5 selected').waitFor({ state: 'detached' });
  assert.equal(await all.isChecked(), false);

  // What fits no selected job is grey, and says why.
  await page.getByLabel(`Select ${running.id}`).check();
  assert.equal(await button('Retry').isDisabled(), true);
  assert.match(await button('Retry').getAttribute('title') ?? '', /failed or timed out/);
  await button('Stop 1').click();
  await page.getByText('1 job cancelled.').waitFor();
  await until('it is cancelled', async () => (await api('GET', `v2/picked/status/${running.id}`)).status === 'CANCELLED');

  await all.check();
  await more.click();
  await button('Delete 5 …').click();
  await dialog.getByRole('button', { name: 'Delete 5 jobs' }).click();
  await page.getByText('5 jobs deleted.').waitFor();
  assert.equal(await there(), 0);
  await check();
  await end();
});
