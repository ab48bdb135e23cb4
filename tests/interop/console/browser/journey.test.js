// The journey of an operator: log in, deploy by drop, run, watch a stream, see jobs fail, retry all that
// failed with progress, read the logs, deploy again and roll back.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { open, close, api, run, key, component, upload, until } from './page.js';

after(close);

const drop = (page, file, name) => page.evaluate(({ bytes, name }) => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0))], name, { type: 'application/wasm' }));
  const zone = document.querySelector('.drop');
  for (const kind of ['dragover', 'drop']) zone?.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
}, { bytes: readFileSync(file).toString('base64'), name });

test('login, deploy by drop, run, watch, fail, retry all, logs, rollback', async () => {
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();

  // Deploy by drop.
  await page.getByRole('link', { name: 'Handlers' }).click();
  await page.getByText('Drop a component here').waitFor();
  await drop(page, component('playground'), 'journey.wasm');
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Deploy' }).click();
  await page.getByRole('heading', { name: 'journey', exact: true }).waitFor();
  assert.equal((await api('GET', 'v1/endpoints/journey')).templateId, 'journey');

  // Run, with numbers that a browser would round.
  await page.getByRole('link', { name: 'Try it' }).click();
  await page.getByLabel('Input', { exact: true }).fill('{"op":"echo","value":{"big":9007199254740993,"price":1.10}}');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByRole('region', { name: 'Output' }).getByText('9007199254740993').waitFor();
  await page.getByRole('region', { name: 'Output' }).getByText('1.10').waitFor();

  // Watch a stream while it runs.
  const stream = await run('journey', { op: 'stream', count: 20, delay_ms: 150 });
  await to(`#/jobs/journey/${stream.id}`);
  await page.getByRole('region', { name: 'Chunks' }).waitFor();
  const first = (await page.getByRole('region', { name: 'Chunks' }).innerText()).length;
  await until('more chunks arrive', async () => (await page.getByRole('region', { name: 'Chunks' }).innerText()).length > first);
  await page.locator('h1').getByText('Completed').waitFor();

  // Failing jobs, found and retried together.
  await Promise.all(Array.from({ length: 70 }, (_, i) => run('journey', { op: 'fail', message: `no flour ${i}` }, { tags: { batch: 'night' } })));
  await until('all have failed', async () => (await api('GET', 'v1/jobs?endpoint=journey&status=FAILED&limit=100')).jobs.length === 70);
  await to('#/endpoints/journey/failed');
  await page.getByText('no flour').first().waitFor();
  assert.equal(await page.locator('tbody tr').count(), 50);
  await page.getByLabel('Select all rows on this page').check();
  await page.getByText('50 selected').waitFor();
  await page.getByRole('button', { name: 'Select all that match' }).click();
  await page.getByRole('button', { name: 'Retry all …' }).click();
  await dialog.getByRole('button', { name: 'Retry 70 jobs' }).click();
  await dialog.getByText('70 queued again').waitFor();
  await dialog.getByText('The action is complete.').waitFor();
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  await until('they were run again', async () => (await api('GET', 'v1/jobs?endpoint=journey&status=FAILED&limit=100')).jobs.every((j) => j.retries === 1));

  // The timeline of one of them shows both attempts, and its error.
  const [failed] = (await api('GET', 'v1/jobs?endpoint=journey&status=FAILED&limit=1')).jobs;
  await to(`#/jobs/journey/${failed.id}`);
  await page.getByText('Queued again by a retry').waitFor();
  await page.getByText('Attempt 2 started').waitFor();
  await page.getByRole('region', { name: 'Error' }).getByText('no flour').waitFor();

  // Logs, live.
  await to('#/logs?endpoint=journey');
  await page.getByText('live', { exact: false }).first().waitFor();
  await run('journey', { op: 'log', message: 'ground to powder', count: 2 });
  await page.getByRole('log').getByText('ground to powder').first().waitFor();

  // A second release, and back.
  await to('#/handlers');
  await page.getByText('Drop a component here').waitFor();
  await drop(page, component('echo'), 'journey.wasm');
  await dialog.getByLabel('Tag').fill('2');
  await dialog.getByRole('button', { name: 'Deploy' }).click();
  await page.getByRole('heading', { name: 'journey', exact: true }).waitFor();
  await page.getByRole('link', { name: 'Releases' }).click();
  await page.getByRole('row').nth(2).getByRole('button', { name: 'Roll back' }).click();
  await dialog.getByRole('button', { name: 'Roll back to' }).click();
  await until('the first handler runs again', async () => { const r = await api('GET', 'v1/endpoints/journey/releases'); return r.length === 3 && r[0].sha256 === r[2].sha256; });
  await page.getByRole('row').nth(3).waitFor();
  await check();
  await end();
});

test('a user without an endpoint deploys a sample with one click, and sees the output of its first job', async () => {
  const { page, login, check, end } = await open();
  // The endpoints of other owners are invisible for it.
  const { key: text } = await api('POST', 'v1/keys', { name: 'newcomer', owner: 'newcomer', scopes: ['manage', 'submit'] });
  await login(text);
  await page.getByRole('heading', { name: 'No endpoint yet' }).waitFor();
  const samples = page.getByRole('group', { name: 'Deploy a sample' });
  await samples.getByText('Counts the lines').waitFor();
  assert.equal(await samples.getByRole('button').count(), 3);
  await samples.getByRole('button', { name: 'Deploy “Word count”' }).click();
  await page.getByRole('heading', { name: 'Playground' }).waitFor();
  assert.match(await page.getByLabel('Input', { exact: true }).inputValue(), /"text": "to be or not to be"/);
  await page.getByRole('region', { name: 'Output' }).getByText('"most_common"').waitFor();
  const jobs = await api('GET', 'v1/jobs?endpoint=word-count', undefined, text);
  assert.equal(jobs.jobs.length, 1, 'the input runs once');
  assert.ok(await page.getByLabel('Endpoint', { exact: true }).inputValue() === 'word-count');
  await check();
  await api('DELETE', 'v1/endpoints/word-count', undefined, text);
  await end();
});

test('rows stay where they are: new jobs are only counted', async () => {
  const { page, login, to, check, end } = await open();
  for (let i = 0; i < 5; i++) await run('echo', { i });
  await login((await key()).text);
  await to('#/jobs?endpoint=echo');
  await page.locator('tbody tr').first().waitFor();
  // Jobs count as newer from the end of the list on, whenever the first event comes.
  const before = await page.locator('tbody tr a.id').first().getAttribute('title');
  for (let i = 0; i < 37; i++) await run('echo', { i });
  await page.getByRole('button', { name: '37 newer' }).waitFor();
  assert.equal(await page.locator('tbody tr a.id').first().getAttribute('title'), before);
  await page.getByRole('button', { name: '37 newer' }).click();
  await until('the list begins with a new job', async () => await page.locator('tbody tr a.id').first().getAttribute('title') !== before);
  await check();
  await end();
});

test('the playground begins with an input that the schema of the endpoint allows', async () => {
  const { page, errors, login, to, check, end } = await open();
  const schema = { type: 'object', required: ['op', 'value'], properties: { op: { const: 'echo' }, value: { type: 'integer', minimum: 7 } } };
  // The schema is a custom section of the component: its length, the length of its name, its name, its text.
  const varint = (n) => n < 128 ? [n] : [n % 128 + 128, ...varint(Math.floor(n / 128))];
  const name = Buffer.from('gristmill:input-schema'), text = Buffer.from(JSON.stringify(schema));
  const content = Buffer.concat([Buffer.from(varint(name.length)), name, text]);
  await upload('fitting:1', Buffer.concat([readFileSync(component('playground')), Buffer.from([0, ...varint(content.length)]), content]));
  const template = await api('POST', 'v1/templates', { name: 'fitting', imageName: 'fitting:1', category: 'CPU', isServerless: true });
  await api('POST', 'v1/endpoints', { id: 'fitting', name: 'fitting', templateId: template.id });
  await login((await key()).text);
  await to('#/playground?endpoint=fitting');
  const input = page.getByLabel('Input', { exact: true });
  await until('the example is there', async () => (await input.inputValue()).includes('"value": 7'));
  await page.getByText('The schema of the input').click();
  await page.getByRole('region', { name: 'Schema' }).getByText('"minimum"').waitFor();
  await page.getByRole('button', { name: 'Run' }).click();
  await page.getByRole('region', { name: 'Output' }).getByText('"echo"').waitFor();
  await input.fill('{ "op": "echo", "value": 6 }');
  await page.getByRole('button', { name: 'Run' }).click();
  await page.getByText('must be at least 7').waitFor();
  assert.equal(errors.splice(0).filter((e) => !e.includes('400')).length, 0, 'Chromium reports the refusal');
  await check();
  await end();
});

test('a chat with OpenAI’s format streams its answer', async () => {
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/playground?endpoint=chat&mode=chat');
  await page.getByLabel('Message').fill('How is bread made?');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('First chunk after').waitFor();
  assert.ok((await page.locator('.talk .assistant').innerText()).length > 5);
  await check();
  await end();
});
