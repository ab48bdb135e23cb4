// Access: a revoked key ends the session at once, a key that only reads has no buttons that
// change things, a wrong key is refused with a sentence.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { agree, open, close, api, key, run, refusal, HOST } from './page.js';

after(close);

test('a revoked key ends the session, and the page asks for another one', async () => {
  const { page, login, to, check, end } = await open();
  const own = await key(['admin'], 'soon revoked');
  await login(own.text);
  await api('DELETE', `v1/keys/${own.id}`);
  await to('#/handlers');
  await page.getByText('The session has ended').or(page.getByLabel('API key')).first().waitFor();
  await page.getByLabel('API key').waitFor();
  await check(refusal(401));
  await end();
});

test('a session that is revoked while a page is open ends without a click', async () => {
  const { page, login, check, end } = await open();
  const own = await key(['admin'], 'revoked meanwhile');
  await login(own.text);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await api('DELETE', `v1/keys/${own.id}`);
  await page.getByText('The session has ended').waitFor({ timeout: 30000 });
  await check(refusal(401));
  await end();
});

test('a wrong key is refused with a sentence', async () => {
  const { page, to, check, end } = await open();
  await to('');
  await page.getByLabel('API key').fill('gm_nothing_here');
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('alert').getByText('this API key is unknown, revoked or expired').waitFor();
  // The call that refuses the key has the address of the question for a session.
  await check();
  await end();
});

test('a key that only reads sees jobs and changes nothing', async () => {
  const { page, login, to, check, end } = await open();
  const job = await run('echo', { read: 1 });
  await login((await key(['read'])).text);
  for (const name of ['Handlers', 'Keys', 'Playground', 'Logs']) assert.equal(await page.getByRole('link', { name, exact: true }).count(), 0, name);
  await to(`#/jobs/echo/${job.id}`);
  await page.getByRole('heading', { name: 'Timeline' }).waitFor();
  for (const name of ['Retry', 'Delete', 'Run again …', 'Stop']) assert.equal(await page.getByRole('button', { name }).count(), 0, name);
  await check();
  await end();
});

test('the link of `gristmill console` logs in once', async () => {
  const text = execFileSync(/** @type {string} */ (process.env.GRISTMILL), ['console'], { encoding: 'utf8', env: { ...process.env, GRISTMILL_API_KEY: process.env.GRISTMILL_ADMIN_KEY } });
  const link = /** @type {RegExpExecArray} */ (/http\S+#\/enter\/\S+/.exec(text))[0].replace(/^https?:\/\/[^/]+/, HOST);
  const hash = link.slice(link.indexOf('#'));
  const first = await open();
  await first.to(hash);
  await agree(first.page);
  await first.page.getByRole('heading', { name: 'Overview' }).waitFor();
  assert.ok(!first.page.url().includes('enter'));
  await first.check();
  await first.end();
  const second = await open();
  await second.to(hash);
  await second.page.getByRole('alert').getByText('this link was used').waitFor();
  await second.check(refusal(401));
  await second.end();
});
