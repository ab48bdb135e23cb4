// The pages of objects: templates by category with their readme, volumes, registries and keys are made, changed and
// deleted; webhooks are listed, log lines are narrowed, a stream is called, and all jobs that match are deleted.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { open, close, run, key, api, until, refusal, HOST } from './page.js';

after(close);

test('a schedule is made, runs now, pauses, is changed and deleted', async () => {
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/schedules');
  await page.getByRole('button', { name: 'New schedule …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Id').fill('dawn');
  await dialog.getByLabel('Endpoint').fill('playground');
  await dialog.getByLabel('Input').fill('{"op":"echo","value":"dawn"}');
  await dialog.getByLabel('Times').fill('0 0 30 2 *');
  await dialog.getByRole('button', { name: 'Make it' }).click();
  await dialog.getByRole('alert').waitFor();
  await dialog.getByLabel('Times').fill('0 6 * * MON-FRI');
  await dialog.getByRole('button', { name: 'Make it' }).click();
  await page.getByRole('link', { name: 'dawn', exact: true }).click();
  await until('the next times are shown', async () => await page.locator('main ol > li').count() === 10);
  await page.getByRole('button', { name: 'Run now' }).click();
  await page.getByText('was submitted').waitFor();
  const jobs = async () => (await api('GET', 'v1/jobs?tag=schedule:dawn')).jobs;
  await until('its job is done', async () => (await jobs())[0]?.status === 'COMPLETED');
  await page.getByRole('button', { name: 'Pause', exact: true }).click();
  await page.getByText('None while it is paused.').waitFor();
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByRole('button', { name: 'Pause', exact: true }).waitFor();
  await to('#/schedules');
  await page.getByRole('button', { name: 'Change dawn' }).click();
  await dialog.getByLabel('Times').fill('0 7 * * *');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByText('0 7 * * *').waitFor();
  await page.getByRole('button', { name: 'Delete dawn' }).click();
  await dialog.getByRole('button', { name: 'Delete it' }).click();
  await page.getByRole('link', { name: 'dawn', exact: true }).waitFor({ state: 'detached' });
  assert.equal((await jobs()).length, 1, 'the job stays');
  await check(refusal(400));
  await end();
});

test('a template is made, shown with its readme, changed, deployed and deleted', async () => {
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/templates');
  await page.getByRole('button', { name: 'New template …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name', { exact: true }).fill('bakery');
  await dialog.getByLabel('Image').fill('echo:latest');
  await dialog.getByLabel('Environment').fill('OVEN=hot');
  await dialog.getByLabel('Readme').fill('# Bakery\n\nBakes **bread**, <img src=x onerror=alert(1)>.');
  await dialog.getByRole('button', { name: 'Make the template' }).click();
  await page.getByRole('heading', { name: 'bakery', exact: true }).waitFor();
  await page.getByRole('heading', { name: 'Bakery', exact: true }).waitFor();
  await page.locator('main strong', { hasText: 'bread' }).waitFor();
  assert.equal(await page.locator('main img').count(), 0, 'markup of a readme stays text');
  await page.getByText('OVEN=hot').waitFor();
  await page.getByRole('button', { name: 'Change …' }).click();
  await dialog.getByLabel('Environment').fill('OVEN=cold');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByText('OVEN=cold').waitFor();
  // A change sends only its own fields: another client changes the others meanwhile.
  const template = async () => (await api('GET', 'v1/templates')).find((t) => t.name === 'bakery');
  const values = { env: { OVEN: 'x=1\ny=2', QUOTED: '"hot"' }, dockerStartCmd: ['-c', 'a\nb', ''] };
  await page.getByRole('button', { name: 'Change …' }).click();
  await api('PATCH', `v1/templates/${(await template()).id}`, values);
  await dialog.getByLabel('Readme').fill('# Bakery\n\nBakes **rolls**.');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.locator('main strong', { hasText: 'rolls' }).waitFor();
  const { env, dockerStartCmd } = await template();
  assert.deepEqual({ env, dockerStartCmd }, values);
  // Values of several lines go through the form and back.
  await page.getByRole('button', { name: 'Change …' }).click();
  const variables = dialog.getByLabel('Environment');
  await variables.fill(`${await variables.inputValue()}\nBAD="x`);
  await dialog.getByRole('alert').waitFor();
  await variables.fill((await variables.inputValue()).replace('BAD="x', 'DOOR=open'));
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByText('DOOR=open').waitFor();
  assert.deepEqual((await template()).env, { ...values.env, DOOR: 'open' });
  await to('#/templates');
  const group = page.locator('section', { has: page.getByRole('heading', { name: 'CPU', exact: true }) });
  await group.getByRole('link', { name: /bakery/ }).click();
  await page.getByRole('button', { name: 'Make an endpoint …' }).click();
  await dialog.getByLabel('Id').fill('bakery');
  await dialog.getByRole('button', { name: 'Make the endpoint' }).click();
  await page.waitForURL(/endpoints\/bakery/);
  assert.equal((await api('GET', 'v1/endpoints/bakery')).env.OVEN, undefined, 'the variable is the template’s');
  await to('#/templates');
  await group.getByRole('link', { name: /bakery/ }).click();
  await api('DELETE', 'v1/endpoints/bakery');
  await page.getByRole('button', { name: 'Delete …' }).click();
  await dialog.getByRole('button', { name: 'Delete it' }).click();
  await until('it is deleted', async () => !(await api('GET', 'v1/templates')).some((t) => t.name === 'bakery'));
  await check();
  await end();
});

test('a volume is made, grows and is deleted, and a refusal is shown in the form', async () => {
  const { page, login, to, errors, check, end } = await open();
  await login((await key()).text);
  await to('#/volumes');
  const dialog = page.getByRole('dialog'), row = page.locator('tbody tr', { hasText: 'flour' });
  await page.getByRole('button', { name: 'New volume …' }).click();
  await dialog.getByLabel('Name').fill('flour');
  await dialog.getByLabel('Size (GB)').fill('2');
  await dialog.getByRole('button', { name: 'Make it' }).click();
  await row.getByText('2 GB').waitFor();
  await page.getByRole('button', { name: 'Change flour' }).click();
  await dialog.getByLabel('Size (GB)').fill('1');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.getByRole('alert').waitFor();
  assert.equal(errors.splice(0).filter((e) => !e.startsWith(refusal(400))).length, 0);
  await dialog.getByLabel('Size (GB)').fill('3');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await row.getByText('3 GB').waitFor();
  await page.getByRole('button', { name: 'Delete flour' }).click();
  await dialog.getByRole('button', { name: 'Delete it' }).click();
  await row.waitFor({ state: 'detached' });
  await check();
  await end();
});

test('a credential is made without its password ever being shown, and a key is shown once', async () => {
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  const dialog = page.getByRole('dialog');
  await to('#/registries');
  await page.getByRole('button', { name: 'New credential …' }).click();
  await dialog.getByLabel('Name').fill('ghcr');
  await dialog.getByLabel('Registry').fill('ghcr.io');
  await dialog.getByLabel('User').fill('mill');
  await dialog.getByLabel('Password or token').fill('secret-of-the-mill');
  await dialog.getByRole('button', { name: 'Make it' }).click();
  const row = page.locator('tbody tr', { hasText: 'ghcr.io' });
  await row.waitFor();
  assert.ok(!(await page.content()).includes('secret-of-the-mill'));
  await page.getByRole('button', { name: 'Delete ghcr' }).click();
  await dialog.getByRole('button', { name: 'Delete it' }).click();
  await row.waitFor({ state: 'detached' });

  await to('#/keys');
  await page.getByRole('button', { name: 'New key …' }).click();
  await dialog.getByLabel('Name').fill('baker');
  await dialog.getByLabel('Expires after (days)').fill('1');
  await dialog.getByRole('button', { name: 'Make it' }).click();
  const text = await page.locator('pre[aria-label="New key"]').innerText();
  assert.equal((await fetch(`${HOST}/v1/jobs`, { headers: { Authorization: `Bearer ${text}` } })).status, 200);
  await to('#/');
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await to('#/keys');
  const line = page.locator('tbody tr', { hasText: 'baker' });
  await line.waitFor();
  assert.ok(!(await page.content()).includes(text), 'not a second time');
  await page.getByRole('button', { name: 'Revoke baker' }).click();
  await dialog.getByRole('button', { name: 'Revoke it' }).click();
  await until('it is refused', async () => (await fetch(`${HOST}/v1/jobs`, { headers: { Authorization: `Bearer ${text}` } })).status === 401);
  await check();
  await end();
});

test('a template of a private image names the credential of its registry', async () => {
  const auth = await api('POST', 'v1/containerregistryauth', { name: 'the mill', registry: 'registry.invalid', username: 'miller', password: 'flour' });
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/templates');
  await page.getByRole('button', { name: 'New template …' }).click();
  const dialog = page.getByRole('dialog'), credential = dialog.getByLabel('Credential');
  await dialog.getByLabel('Name', { exact: true }).fill('private');
  await dialog.getByLabel('Image').fill('echo:latest');
  assert.equal(await credential.count(), 0, 'a handler of this host needs none');
  await dialog.getByLabel('Image').fill('registry.invalid/mill:1');
  await credential.selectOption({ label: 'the mill (registry.invalid)' });
  const sent = page.waitForRequest((q) => q.method() === 'POST' && q.url().endsWith('/v1/templates'));
  await dialog.getByRole('button', { name: 'Make the template' }).click();
  assert.equal((await sent).postDataJSON().containerRegistryAuthId, auth.id);
  // The registry does not exist, which the host says.
  await page.locator('.toast.bad').waitFor();
  await check(refusal(400));
  await end();
});

test('a stream of the playground arrives, and webhooks of an endpoint are listed', async () => {
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to('#/playground?endpoint=playground&mode=stream');
  await page.getByLabel('Input', { exact: true }).fill('{"op":"stream","count":4,"delay_ms":20}');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByText('4 chunks').waitFor();
  await page.getByText('First chunk after').waitFor();
  await page.locator('main').getByText('Completed').waitFor();

  // No such receiver exists: the host tries again, and says why.
  const url = 'http://receiver.invalid/hook';
  const job = await run('playground', { op: 'echo' }, { webhook: url });
  await to('#/endpoints/playground/webhooks');
  const row = page.locator('tbody tr', { hasText: url });
  await row.getByText('cannot connect').waitFor({ timeout: 30_000 });
  await row.getByRole('link').click();
  await page.locator('h1').getByText(job.id).waitFor();
  await page.getByText('Webhook sent').first().waitFor();
  await check();
  await end();
});

test('log lines are narrowed by level, text and job, and all jobs that match are deleted', async () => {
  const { page, login, to, check, end } = await open();
  const tags = { batch: 'crumbs' };
  const jobs = [];
  for (const message of ['oven is warm', 'oven is broken', 'dough is flat']) {
    const job = await run('playground', { op: 'log', message }, { tags });
    jobs.push(job);
    await api('GET', `v2/playground/status-sync/${job.id}`);
  }
  await login((await key()).text);
  await to('#/logs?endpoint=playground');
  const lines = async (texts) => until(`${texts}`, async () => {
    const shown = (await page.locator('.log-line .line').allInnerTexts()).filter((t) => /oven|dough/.test(t));
    return JSON.stringify(shown) === JSON.stringify(texts);
  });
  await lines(['oven is warm', 'oven is broken', 'dough is flat']);
  await page.getByLabel('Only lines with this text').fill('OVEN');
  await lines(['oven is warm', 'oven is broken']);
  assert.match(page.url(), /q=OVEN/, 'the address has the filter');
  await page.getByLabel('Only lines with this text').fill('');
  await lines(['oven is warm', 'oven is broken', 'dough is flat']);
  // The host warns of a log that is full.
  await api('POST', 'v2/playground/runsync', { input: { op: 'stdout', bytes: 300_000 } });
  await page.getByRole('group', { name: 'Least level' }).getByRole('button', { name: 'warn' }).click();
  await page.locator('.log-line.v-warn').first().waitFor();
  await until('no line of a lower level is left', async () => await page.locator('.log-line.v-info').count() === 0);
  assert.match(page.url(), /level=warn/);
  await to(`#/logs?endpoint=playground&job=${jobs[2].id}`);
  await lines(['dough is flat']);

  await to('#/jobs?tag=batch:crumbs');
  await page.getByLabel('Select all rows on this page').check();
  await page.getByRole('button', { name: 'Select all that match' }).click();
  await page.getByLabel('More actions on the selected jobs').click();
  await page.getByRole('button', { name: 'Delete all …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Delete 3 jobs' }).click();
  await dialog.getByText('The action is complete.').waitFor();
  assert.deepEqual((await api('GET', 'v1/jobs?tag=batch:crumbs')).jobs, []);
  await check();
  await end();
});
