// A session that ends while its user types: the login is shown above the page, and the page with all that was typed
// is there again after it, for a key of the same owner with the same scopes.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { open, close, complete, deploy, key, api, until, refusal } from './page.js';

after(close);
/** A session that ends now; the page notices it by itself. */
async function lose(page, own) {
  await api('DELETE', `v1/keys/${own.id}`);
  await page.getByRole('dialog', { name: 'Log in' }).waitFor({ timeout: 30_000 });
}
async function back(page, text) {
  await page.getByLabel('API key').fill(text);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('dialog', { name: 'Log in' }).waitFor({ state: 'detached' });
}

test('what was typed into a form, a dialog and the playground is there after the next login', async () => {
  await deploy('kept', 'playground');
  const job = await complete('kept', { op: 'fail', message: 'again, please' });
  const { page, login, to, check, end } = await open();
  let own = await key(['admin'], 'ends');
  const next = async () => { own = await key(['admin'], 'ends'); return own.text; };
  await login(own.text);
  await to('#/endpoints/kept/settings');
  const memory = page.getByLabel('Memory of a job');
  await memory.fill('77');
  await page.getByText('1 unsaved change').waitFor();
  await lose(page, own);
  const title = await page.title();
  assert.match(title, /^Log in/);
  // Nothing of the page can be reached, and Escape leads nowhere.
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog', { name: 'Log in' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Save' }).click({ timeout: 500 }).then(() => true, () => false), false);
  await back(page, await next());
  await until('the title is that of the page', async () => !(await page.title()).startsWith('Log in'));
  assert.equal(await memory.inputValue(), '77');
  await page.getByRole('button', { name: 'Save' }).click();
  await until('it is saved', async () => (await api('GET', 'v1/endpoints/kept')).memoryMib === 77);

  await to(`#/jobs/kept/${job.id}`);
  await page.getByRole('button', { name: 'Run again …' }).click();
  const again = page.getByRole('dialog', { name: /Run kept again/ });
  await again.getByLabel('Input').fill('{"op":"echo","value":"typed before the login"}');
  await lose(page, own);
  await back(page, await next());
  assert.equal(await again.getByLabel('Input').inputValue(), '{"op":"echo","value":"typed before the login"}');
  await page.getByRole('button', { name: 'Run as a new job' }).click();
  await page.getByRole('region', { name: 'Output' }).getByText('typed before the login').waitFor();

  await to('#/playground?endpoint=kept');
  await page.getByLabel('Input', { exact: true }).fill('{"op":"echo","value":"draft"}');
  await lose(page, own);
  await back(page, await next());
  assert.match(await page.getByLabel('Input', { exact: true }).inputValue(), /draft/);
  // The live stream is back.
  await until('the live stream is open', () => page.getByText('Live', { exact: true }).isVisible());
  await check(refusal(401));
  await end();
});

test('a key of another owner or with other scopes sees nothing of what was typed', async () => {
  await deploy('hidden', 'playground');
  const { page, login, to, check, end } = await open();
  const own = await key(['admin'], 'ends');
  await login(own.text);
  await to('#/playground?endpoint=hidden');
  await page.getByLabel('Input', { exact: true }).fill('{"op":"echo","value":"secret draft"}');
  await to('#/endpoints/hidden/settings');
  await page.getByLabel('Name', { exact: true }).fill('secret name');
  await lose(page, own);
  const other = await api('POST', 'v1/keys', { name: 'other', scopes: ['manage', 'submit'], owner: 'stranger' });
  await back(page, other.key);
  await page.getByText('There is no endpoint hidden.').waitFor();
  assert.equal(await page.getByLabel('Name', { exact: true }).count(), 0);
  await to('#/playground?endpoint=hidden');
  assert.doesNotMatch(await page.getByLabel('Input', { exact: true }).inputValue(), /secret/);
  assert.equal(await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage })).then((t) => /secret/.test(t)), false);
  await check(refusal(401), refusal(404));
  await end();
});
