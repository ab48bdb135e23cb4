// The chat of the playground: no message is lost, and the newest words are in sight.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { open, close, key, until } from './page.js';

after(close);

test('a message waits for the models, comes back after an error, and its answer stays in sight', async () => {
  const { page, login, to, check, end } = await open({ width: 768 });
  let models = () => {}, fails = true;
  const gate = new Promise((f) => { models = () => f(undefined); });
  await page.route('**/openai/v1/models', async (route) => { await gate; await route.continue(); });
  await page.route('**/chat/completions', (route) => fails ? route.fulfill({ status: 409, json: { error: { message: 'the mill stands still' } } }) : route.continue());
  await login((await key()).text);
  await to('#/playground?endpoint=chat&mode=chat');
  const text = page.getByLabel('Message'), send = page.getByRole('button', { name: 'Send' }), talk = page.getByRole('log', { name: 'Conversation' });
  await text.fill('How is flour made?');
  assert.equal(await send.isDisabled(), true, 'no model is known yet');
  await page.keyboard.press('Enter');
  assert.equal(await text.inputValue(), 'How is flour made?');
  models();
  await until('it can be sent', () => send.isEnabled());
  await send.click();
  await page.getByText('the mill stands still').waitFor();
  assert.equal(await text.inputValue(), 'How is flour made?', 'the text is back');
  assert.equal(await talk.locator('p').count(), 0, 'and was not said');

  fails = false;
  const atEnd = () => talk.evaluate((e) => e.scrollHeight - e.scrollTop - e.clientHeight < 2);
  for (let n = 1; n <= 6; n++) {
    await text.fill(`Question ${n}: ${'how is bread made? '.repeat(12)}`);
    await page.keyboard.press('Enter');
    await until(`answer ${n}`, async () => await send.isVisible() && await talk.locator('.assistant').count() === n);
    await until('its end is in sight', atEnd);
  }
  assert.equal(await talk.evaluate((e) => e.scrollHeight > e.clientHeight), true, 'there is something to scroll');
  await check('Failed to load resource: the server responded with a status of 409 (Conflict)');
  await end();
});
