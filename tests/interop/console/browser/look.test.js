// Every page in both colour schemes and at 320 px, and its dialogs, menu, selection and errors: no serious finding of
// axe, no sideways scroll, no error in the console; the same below a prefix, with the keyboard alone, and what the
// first paint needs.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { open, close, run, key, api, loaded, refusal, HOST } from './page.js';
import { proxy } from './proxy.js';

after(close);
const axe = readFileSync(new URL('../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

/** The longest name of an endpoint that a select has to bear. */
const LONG = 'an-endpoint-whose-name-is-as-long-as-a-sentence-about-mills-and-millers';

async function pages() {
  const ok = await run('playground', { op: 'echo', value: { a: [1, { b: null }] } }, { tags: { env: 'prod' } });
  const bad = await run('playground', { op: 'fail', message: 'no more flour' });
  for (const j of [ok, bad]) await api('GET', `v2/playground/status-sync/${j.id}`);
  // A volume with a directory and a file whose name is long, and an endpoint with rate limits of its own.
  const v = (await api('GET', 'v1/networkvolumes')).find((x) => x.name === 'shelf') ?? await api('POST', 'v1/networkvolumes', { name: 'shelf', size: 1 });
  for (const name of ['box/1.txt', 'long-'.repeat(50)]) await fetch(`${HOST}/v1/networkvolumes/${v.id}/files/${name}`, { method: 'PUT', headers: { Authorization: `Bearer ${process.env.GRISTMILL_ADMIN_KEY}` }, body: name });
  if (!(await api('GET', 'v1/endpoints')).some((x) => x.id === 'limited')) {
    await api('POST', 'v1/templates', { id: 'limited', name: 'limited', imageName: 'echo:latest', category: 'CPU', isServerless: true });
    await api('POST', 'v1/endpoints', { id: 'limited', name: 'limited', templateId: 'limited', rateLimits: { 'purge-queue': { callsPer10s: 5 } }, paused: true });
    await api('POST', 'v1/endpoints', { id: LONG, name: LONG, templateId: 'limited' });
  }
  if (!(await api('GET', 'v1/schedules')).some((x) => x.id === 'nightly')) await api('POST', 'v1/schedules', { id: 'nightly', endpointId: 'playground', cron: '30 4 * * *' });
  const e = '#/endpoints/playground';
  return ['#/', e, `${e}/jobs`, `${e}/failed`, `${e}/logs`, `${e}/releases`, `${e}/webhooks`, `${e}/settings`, `${e}/usage`, '#/jobs', '#/jobs?status=FAILED', `#/jobs/playground/${ok.id}`, `#/jobs/playground/${bad.id}`,
    '#/playground?endpoint=playground', '#/playground?endpoint=chat&mode=chat', '#/logs?endpoint=playground', '#/handlers', '#/handlers/echo:latest', '#/templates', '#/templates/echo', '#/volumes', `#/volumes/${v.id}`, `#/volumes/${v.id}/box`, '#/endpoints/limited', '#/endpoints/limited/settings', '#/schedules', '#/schedules/nightly', '#/registries', '#/keys', '#/billing', '#/system'];
}

/** Adds the serious findings of axe in a page to a list. */
const looker = (page, found) => async (at) => {
  await page.evaluate(axe);
  const result = await page.evaluate(() => /** @type {any} */ (window).axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
  for (const v of result.violations) if (['serious', 'critical'].includes(v.impact)) found.push(`${at}: ${v.id} ${v.nodes.slice(0, 2).map((n) => `${n.target} ${n.any[0]?.message ?? ''}`).join(' | ')}`);
};
for (const [dark, width] of /** @type {[boolean, number][]} */ ([[false, 1280], [true, 1280], [false, 320]])) {
  const where = `${dark ? 'dark' : 'light'} at ${width} px`;
  test(`no serious finding of axe in ${where}`, async () => {
    const { page, login, to, check, end } = await open({ dark, width });
    const found = [], look = looker(page, found);
    await to('');
    await page.getByLabel('API key').waitFor();
    await look('login');
    await login((await key()).text);
    for (const at of await pages()) {
      await to(at);
      await page.getByRole('heading', { level: 1 }).waitFor();
      await loaded(page);
      await look(at);
    }
    assert.deepEqual(found, []);
    await check();
    await end();
  });

  test(`no serious finding of axe with a dialog, the menu, a selection and errors in ${where}`, async () => {
    await pages();
    const { page, login, to, check, end } = await open({ dark, width });
    const found = [], look = looker(page, found), dialog = page.getByRole('dialog');
    const own = await key();
    const shut = async () => { await page.keyboard.press('Escape'); await dialog.waitFor({ state: 'detached' }); };
    const fits = async (at) => assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${at} scrolls sideways`);
    await login(own.text);
    for (const [at, button] of [['#/templates', 'New template …'], ['#/volumes', 'New volume …'], ['#/registries', 'New credential …'], ['#/keys', 'New key …'], ['#/endpoints/limited/settings', 'Delete …']]) {
      await to(at);
      await page.getByRole('button', { name: button }).click();
      await dialog.waitFor();
      await look(button);
      await fits(button);
      await shut();
    }
    const { jobs: [failed] } = await api('GET', 'v1/jobs?endpoint=playground&status=FAILED&limit=1');
    await to(`#/jobs/playground/${failed.id}`);
    await page.getByRole('button', { name: 'Run again …' }).click();
    await dialog.getByLabel('Input').fill('{"op": }');
    await dialog.getByText('not JSON').waitFor();
    await look('an editor with a fault');
    await shut();
    if (width < 600) { await page.getByRole('button', { name: 'Menu' }).click(); await page.getByRole('link', { name: 'Overview', exact: true }).waitFor(); await look('the menu'); await fits('the menu'); }
    await page.getByRole('button', { name: 'Keys', exact: true }).click();
    await dialog.waitFor();
    await look('the keys');
    await shut();

    await to('#/jobs?endpoint=playground&status=FAILED');
    await page.getByLabel('Select all rows on this page').check();
    await page.getByText(/^\d+ selected$/).waitFor();
    await look('a selection');
    await fits('a selection');
    await page.getByRole('button', { name: 'Select all that match' }).click();
    await page.getByRole('button', { name: 'Retry all …' }).click();
    await dialog.getByRole('button', { name: /^Retry \d+ job/ }).waitFor();
    await look('an action on all that match');
    await shut();

    await to('#/endpoints/limited/settings');
    await page.getByLabel('Most fuel').fill('1.5');
    await page.getByLabel('Environment').fill('TOKEN');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('TOKEN has no =').waitFor();
    await look('a form with faults');
    await to('#/volumes/no-such-volume');
    await page.getByRole('alert').waitFor();
    await look('a page with an error');
    await page.route('**/v1/endpoints/playground', (route) => route.request().method() === 'PATCH' ? route.fulfill({ status: 409, json: { error: 'the endpoint is being changed' } }) : route.continue());
    await to('#/endpoints/playground');
    await page.getByRole('main').getByRole('button', { name: 'Pause', exact: true }).click();
    await page.locator('.toast.bad').waitFor();
    await look('a message');
    await fits('a message');
    const { link } = await api('POST', 'console/links', undefined, (await key(['read'], LONG)).text);
    await to(`#/enter/${link}`);
    await page.getByRole('button', { name: `Log in as ${LONG}` }).waitFor();
    await look('a question');
    await fits('a question');
    await page.getByRole('button', { name: /^Stay logged in/ }).click();
    await api('DELETE', `v1/keys/${own.id}`);
    await page.getByRole('dialog', { name: 'Log in' }).waitFor({ timeout: 30_000 });
    await look('the login above a page');
    await fits('the login above a page');
    assert.deepEqual(found, []);
    await check(refusal(404), refusal(409), refusal(401));
    await end();
  });
}

test('320 px, and a zoom of 200 %: no page scrolls sideways, and the menu opens', async () => {
  const { page, login, to, check, end } = await open({ width: 320 });
  await login((await key()).text);
  // A window of 1280 px that is zoomed to 200 % has 640 px.
  for (const width of [640, 320]) {
    await page.setViewportSize({ width, height: 430 });
    for (const at of await pages()) {
      await to(at);
      await page.getByRole('heading', { level: 1 }).waitFor();
      await loaded(page);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${at} at ${width} px`);
      if (at.startsWith('#/playground')) assert.ok(await page.getByLabel('Endpoint', { exact: true }).evaluate((e) => e.clientWidth) <= 260, 'the choice of an endpoint is as wide as a name of one');
    }
  }
  await page.getByRole('button', { name: 'Menu' }).click();
  await page.getByRole('link', { name: 'Jobs', exact: true }).click();
  await page.getByRole('heading', { name: 'Jobs' }).waitFor();
  await check();
  await end();
});

test('a long id of an endpoint pushes no column out of a page, and no count out of a phone', async () => {
  await pages();
  await run(LONG, {});
  const { page, login, to, check, end } = await open({ width: 1440 });
  await login((await key()).text);
  for (const [at, table] of [['#/', 'Endpoints'], ['#/jobs', 'Jobs']]) {
    await to(at);
    const name = page.getByTitle(LONG, { exact: true }).first();
    await name.waitFor();
    assert.ok(await name.evaluate((e) => e.scrollWidth > e.clientWidth), `${at}: the id is cut`);
    assert.ok(await page.getByRole('region', { name: table, exact: true }).evaluate((e) => e.scrollWidth <= e.clientWidth), `${at}: the table scrolls`);
  }
  await page.setViewportSize({ width: 360, height: 760 });
  await to('#/');
  const failed = await page.getByRole('columnheader', { name: 'Failed', exact: true }).boundingBox();
  assert.ok(failed && failed.x + failed.width <= 345, 'the share of failures is out of sight');
  await check();
  await end();
});

test('below a prefix of a proxy every page works', async () => {
  const way = await proxy('/a/b');
  const { page, login, to, check, end } = await open({ base: way.base });
  const asked = [];
  page.on('request', (q) => asked.push(new URL(q.url()).pathname));
  await login((await key()).text);
  for (const at of await pages()) {
    await to(at);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await loaded(page);
    assert.equal(await page.getByRole('alert').count(), 0, at);
  }
  await page.getByText('Log out').click();
  await page.getByLabel('API key').waitFor();
  assert.deepEqual(asked.filter((p) => !p.startsWith('/a/b/')), []);
  await check();
  await end();
  way.end();
});

test('the keyboard alone: log in, move, search, open a job, help', async () => {
  const { page, to, check, end } = await open();
  const job = await run('echo', { keyboard: true }, { tags: { by: 'hand' } });
  await to('');
  await page.getByLabel('API key').waitFor();
  await page.keyboard.type((await key()).text);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await page.keyboard.press('g');
  await page.keyboard.press('j');
  await page.getByRole('heading', { name: 'Jobs' }).waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type('by:hand');
  await page.keyboard.press('Enter');
  await page.locator(`a.id[title="${job.id}"]`).waitFor();
  await page.keyboard.press('Escape');
  await page.locator('tbody tr').nth(0).waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.locator('h1').getByText(job.id).waitFor();
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.keyboard.press('Tab');
  assert.notEqual(await page.evaluate(() => getComputedStyle(/** @type {Element} */ (document.activeElement)).outlineStyle), 'none', 'the focus is visible');
  await check();
  await end();
});

test('times are local or UTC by a switch', async () => {
  const { page, login, to, check, end } = await open();
  const job = await run('echo', { time: true });
  const at = (await api('GET', `v2/echo/timeline/${job.id}`)).events[0].at;
  await login((await key()).text);
  await to(`#/jobs/echo/${job.id}`);
  const shown = page.locator('.timeline time').first();
  const berlin = new Intl.DateTimeFormat('en-GB', { timeZone: 'Europe/Berlin', hour: '2-digit', minute: '2-digit', second: '2-digit' }).format(new Date(at));
  await shown.getByText(berlin).waitFor();
  await page.getByRole('button', { name: 'UTC' }).click();
  await shown.getByText(at.slice(11, 23)).waitFor();
  await check();
  await end();
});

/** The files of a page until something is shown, with the question for a session, and their bytes: calls of the API are on their way. */
async function needs(page, to, shown) {
  const all = [];
  page.on('requestfinished', (q) => all.push(q));
  await to('');
  await shown.waitFor();
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0);
  const now = all.filter((q) => !/\/v[12]\//.test(q.url()));
  const bytes = (await Promise.all(now.map(async (q) => (await q.sizes()).responseBodySize))).reduce((a, b) => a + b, 0);
  return { paint, bytes, requests: now.map((q) => new URL(q.url()).pathname.replace(/^.*\/console\//, '')) };
}

test('the host serves the files of the repository', async () => {
  const root = new URL('../../../../host/console/assets/', import.meta.url).pathname;
  for (const f of readdirSync(root, { recursive: true }).map(String).filter((x) => x.endsWith('.js'))) {
    const answer = await fetch(`${HOST}/console/assets/${f}`);
    assert.equal(await answer.text(), readFileSync(join(root, f), 'utf8'), f);
  }
});

test('the login and the overview need few files and few bytes before they are shown', async (t) => {
  const paints = [];
  let first = { bytes: 0, requests: [''] };
  for (let i = 0; i < 7; i++) {
    const { page, to, check, end } = await open();
    const found = first = await needs(page, to, page.getByLabel('API key'));
    paints.push(found.paint);
    await check();
    await end();
  }
  const middle = Math.round(paints.sort((a, b) => a - b)[3]);
  t.diagnostic(`first paint after ${middle} ms (median of 7); ${first.requests.length} requests, ${first.bytes} bytes`);
  // The login waits for no other page and for no chart.
  assert.deepEqual(first.requests.filter((r) => r.startsWith('assets/pages/')), ['assets/pages/login.js']);
  assert.deepEqual(first.requests.filter((r) => r.includes('uplot')), []);
  assert.ok(first.requests.length <= 32, `${first.requests.length} requests`);
  assert.ok(first.bytes > 0 && first.bytes <= 135_000, `${first.bytes} bytes`);
  // The machine that runs the tests does other things too.
  assert.ok(middle > 0 && middle < 5000, `${paints}`);

  // The overview with a session, and without a file in the cache of the browser.
  const before = await open(), { page, context, to, check, end } = await open();
  await before.login((await key()).text);
  await context.addCookies(await before.context.cookies());
  await context.addInitScript((kept) => Object.assign(localStorage, kept), await before.page.evaluate(() => ({ ...localStorage })));
  await before.end();
  const overview = await needs(page, to, page.getByRole('heading', { name: 'Overview' }));
  t.diagnostic(`the overview: ${overview.requests.length} requests, ${overview.bytes} bytes`);
  assert.deepEqual(overview.requests.filter((r) => r.startsWith('assets/pages/')).sort(), ['assets/pages/login.js', 'assets/pages/overview.js']);
  assert.deepEqual(overview.requests.filter((r) => r.includes('uplot')), []);
  assert.ok(overview.requests.length <= 36, `${overview.requests}`);
  assert.ok(overview.bytes > first.bytes && overview.bytes <= 148_000, `${overview.bytes} bytes`);
  await check();
  await end();
});
