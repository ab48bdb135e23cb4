// A page on another port of this machine, with which browsers share the console's cookies: it changes no session
// without a click, and no call of the console acts for the key of another session.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { agree, open, close, api, key, refusal, until, HOST } from './page.js';

after(close);

const { port } = new URL(HOST);
const COOKIE = `gristmill-console-${port}`;

/** A key of another owner, with a template by which its pages are known. @param {string} owner */
async function attacker(owner) {
  const { key: text } = await api('POST', 'v1/keys', { name: 'key of the attacker', owner, scopes: ['manage', 'read'] });
  await api('POST', 'v1/templates', { name: `template of ${owner}`, imageName: 'i' }, text);
  return text;
}
const linkOf = async (text) => (await api('POST', 'console/links', undefined, text)).link;
/** A site on another port. `answer` is the head and the page of each call. @param {(path: string) => { headers?: Record<string, string>, body: string }} answer */
async function site(answer) {
  const server = createServer((q, r) => { const { headers = {}, body } = answer(q.url ?? '/'); r.writeHead(200, { 'Content-Type': 'text/html', ...headers }).end(body); }).listen(0, '127.0.0.1');
  await new Promise((d) => server.once('listening', d));
  server.unref();
  return `http://127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}/`;
}
/** The cookie of a session that the attacker began. @param {string} text */
async function sessionOf(text) {
  const answer = await fetch(`${HOST}/console/session`, { method: 'POST', headers: { 'X-Gristmill-Console': '1', 'Content-Type': 'application/json' }, body: JSON.stringify({ key: text }) });
  return /** @type {RegExpExecArray} */ (/=([^;]+);/.exec(answer.headers.get('set-cookie') ?? ''))[1];
}
const who = (page) => page.locator('.who b').textContent();

test('a page that opens a link changes the session only after a click', async () => {
  const { page, context, login, check, end } = await open();
  await login((await key(['admin'], 'key of the operator')).text);
  const foreign = attacker('opens-links');
  const link = await linkOf(await foreign);
  const at = await site(() => ({ body: `<script>location = ${JSON.stringify(`${HOST}/console/#/enter/${link}`)}</script>` }));
  const other = await context.newPage();
  await other.goto(at);
  const question = other.getByRole('form', { name: 'Log in with a link' });
  for (const part of ['key of the attacker', 'opens-links', 'manage, read', 'key of the operator', 'default']) await question.getByText(part, { exact: true }).waitFor();
  assert.ok(!other.url().includes('enter'), 'the link has left the address');
  // A key that is pressed while the page appears decides nothing.
  await other.keyboard.press('Enter');
  await other.keyboard.press('Space');
  await page.reload();
  assert.equal(await who(page), 'key of the operator');
  await other.getByRole('button', { name: 'Stay logged in as key of the operator' }).click();
  await other.getByRole('heading', { name: 'Overview' }).waitFor();
  assert.equal(await who(other), 'key of the operator');
  // A question uses nothing up, and all tabs follow the answer.
  await other.goto(`${HOST}/console/#/enter/${link}`);
  await agree(other);
  await page.locator('.who b', { hasText: 'key of the attacker' }).waitFor();
  // A link that was used asks nothing.
  await other.goto(`${HOST}/console/#/enter/${link}`);
  await other.getByText('this link was used').waitFor();
  assert.equal(await who(other), 'key of the attacker');
  await check(refusal(401));
  await end();
});

test('a click on the question as soon as it is there decides nothing', async () => {
  const { page, context, login, check, end } = await open();
  await login((await key(['admin'], 'key of the operator')).text);
  const link = await linkOf(await attacker('double-click'));
  const other = await context.newPage();
  // The second click of a double-click that began on another page comes sooner than any other.
  await other.addInitScript(() => new MutationObserver((_, own) => {
    const button = [...document.querySelectorAll('button')].find((b) => b.textContent?.startsWith('Log in as'));
    if (!button) return;
    own.disconnect();
    button.click();
    Object.assign(window, { clicked: true });
  }).observe(document, { childList: true, subtree: true }));
  const at = await site(() => ({ body: `<body onmousedown='location = ${JSON.stringify(`${HOST}/console/#/enter/${link}`)}'>Double-click here` }));
  await other.goto(at);
  await other.mouse.click(200, 200);
  await until('the question is there', () => other.evaluate(() => /** @type {any} */ (window).clicked));
  const yes = other.getByRole('button', { name: 'Log in as key of the attacker' });
  await until('the button works', () => yes.isEnabled());
  // A window that lay below another one, and a tab that was hidden, are shown anew.
  for (const event of ['focus', 'visibilitychange']) {
    await yes.evaluate((button, event) => {
      (event === 'focus' ? window : document).dispatchEvent(new Event(event));
      /** @type {HTMLButtonElement} */ (button).click();
    }, event);
    await until('the button works again', () => yes.isEnabled());
  }
  await page.reload();
  assert.equal(await who(page), 'key of the operator');
  await agree(other);
  await page.locator('.who b', { hasText: 'key of the attacker' }).waitFor();
  // A call of the tab before may still carry the mark of the session that ended.
  await check(refusal(401));
  await end();
});

test('a question that is not whole in sight, and a press that began before, decide nothing', async () => {
  const { page, context, login, check, end } = await open();
  await login((await key(['admin'], 'key of the operator')).text);
  const link = await linkOf(await attacker('small-window'));
  const other = await context.newPage();
  await other.setViewportSize({ width: 420, height: 110 });
  await other.goto(`${HOST}/console/#/enter/${link}`);
  const yes = other.getByRole('button', { name: 'Log in as key of the attacker' });
  const click = () => yes.evaluate((button) => /** @type {HTMLButtonElement} */ (button).click());
  await other.getByText('Make the window larger').waitFor();
  await other.waitForTimeout(1500);
  assert.ok(await yes.isDisabled(), 'a button in a window that shows a part');
  await other.setViewportSize({ width: 1280, height: 720 });
  await click();
  await until('the button works', () => yes.isEnabled());
  // A mouse that comes from a window above this one clicks at once.
  await yes.evaluate((button) => {
    document.documentElement.dispatchEvent(new PointerEvent('pointerenter', { pointerType: 'mouse' }));
    /** @type {HTMLButtonElement} */ (button).click();
  });
  // The mouse is pressed before the second is over, and released long after it.
  await yes.hover();
  await other.evaluate(() => dispatchEvent(new Event('focus')));
  await other.mouse.down();
  await other.waitForTimeout(1500);
  await other.mouse.up();
  await until('the button works again', () => yes.isEnabled());
  await page.reload();
  assert.equal(await who(page), 'key of the operator');
  await yes.click();
  await page.locator('.who b', { hasText: 'key of the attacker' }).waitFor();
  await check(refusal(401));
  await end();
});

test('without a session a link asks too', async () => {
  const link = await linkOf(await attacker('without-session'));
  const { page, to, check, end } = await open();
  await to(`#/enter/${link}`);
  await page.getByRole('form', { name: 'Log in with a link' }).getByText('without-session', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Not now' }).click();
  await page.getByLabel('API key').waitFor();
  await page.reload();
  await page.getByLabel('API key').waitFor();
  await check();
  await end();
});

test('two cookies of the name act for nobody', async () => {
  const { page, context, login, to, check, end } = await open();
  await login((await key(['admin'], 'key of the operator')).text);
  const own = await attacker('longer-path');
  const token = await sessionOf(own);
  const at = await site(() => ({ headers: { 'Set-Cookie': `${COOKIE}=${token}; Path=/v1` }, body: 'hello' }));
  const other = await context.newPage();
  await other.goto(at);
  await to('#/templates');
  await page.getByText(`two cookies of the name ${COOKIE}`).first().waitFor();
  assert.equal(await page.getByText('template of longer-path').count(), 0);
  await page.reload();
  await page.getByText(`two cookies of the name ${COOKIE}`).first().waitFor();
  assert.equal(await page.getByText('template of longer-path').count(), 0);
  await check(refusal(401));
  await end();
});

test('a cookie that was replaced acts for nobody, before and after a reload', async () => {
  const { page, context, login, to, check, end } = await open();
  await login((await key(['admin'], 'key of the operator')).text);
  const own = await attacker('same-path');
  const token = await sessionOf(own);
  const at = await site(() => ({ headers: { 'Set-Cookie': `${COOKIE}=${token}; Path=/; HttpOnly` }, body: 'hello' }));
  const other = await context.newPage();
  await other.goto(at);
  await to('#/templates');
  await page.getByRole('dialog', { name: 'Log in' }).getByText('the cookie of another session').waitFor();
  assert.equal(await page.getByText('template of same-path').count(), 0);
  await page.reload();
  await page.getByText('the cookie of another session').waitFor();
  assert.equal(await page.getByText('template of same-path').count(), 0);
  // The next login begins a session whose cookie counts again.
  await page.getByLabel('API key').fill((await key(['admin'], 'the next key')).text);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('heading', { name: 'Templates' }).waitFor();
  assert.equal(await who(page), 'the next key');
  await check(refusal(401));
  await end();
});

test('a cookie alone, which services on other ports receive, is no login', async () => {
  const { page, context, login, to, check, end } = await open();
  await login((await key(['admin'], 'key of the operator')).text);
  const { value } = /** @type {import('playwright-core').Cookie} */ ((await context.cookies(HOST)).find((c) => c.name === COOKIE));
  for (const path of ['console/session', 'v1/keys', 'v2/echo/health']) {
    const answer = await fetch(`${HOST}/${path}`, { headers: { Cookie: `${COOKIE}=${value}`, 'X-Gristmill-Console': '1', 'Sec-Fetch-Site': 'same-origin' } });
    assert.equal(answer.status, 401, path);
  }
  await to('#/keys');
  await page.getByRole('heading', { name: 'Keys' }).waitFor();
  await check();
  await end();
});
