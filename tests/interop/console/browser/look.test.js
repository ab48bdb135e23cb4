// Every page in both colour schemes and at 320 px: no serious finding of axe, no sideways scroll, no error
// in the console; the same below a prefix, with the keyboard alone, and what the first paint needs.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { open, close, run, key, api, loaded, HOST } from './page.js';
import { proxy } from './proxy.js';

after(close);
const axe = readFileSync(new URL('../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

async function pages() {
  const ok = await run('playground', { op: 'echo', value: { a: [1, { b: null }] } }, { tags: { env: 'prod' } });
  const bad = await run('playground', { op: 'fail', message: 'no more flour' });
  for (const j of [ok, bad]) await api('GET', `v2/playground/status-sync/${j.id}`);
  // A volume with a directory and a file whose name is long, and an endpoint with rate limits of its own.
  const v = (await api('GET', 'v1/networkvolumes')).find((x) => x.name === 'shelf') ?? await api('POST', 'v1/networkvolumes', { name: 'shelf', size: 1 });
  for (const name of ['box/1.txt', 'long-'.repeat(50)]) await fetch(`${HOST}/v1/networkvolumes/${v.id}/files/${name}`, { method: 'PUT', headers: { Authorization: `Bearer ${process.env.GRISTMILL_ADMIN_KEY}` }, body: name });
  if (!(await api('GET', 'v1/endpoints')).some((x) => x.id === 'limited')) {
    await api('POST', 'v1/templates', { id: 'limited', name: 'limited', imageName: 'echo:latest', category: 'CPU', isServerless: true });
    await api('POST', 'v1/endpoints', { id: 'limited', name: 'limited', templateId: 'limited', rateLimits: { 'purge-queue': { callsPer10s: 5 } } });
  }
  const e = '#/endpoints/playground';
  return ['#/', e, `${e}/jobs`, `${e}/failed`, `${e}/logs`, `${e}/releases`, `${e}/webhooks`, `${e}/settings`, `${e}/usage`, '#/jobs', '#/jobs?status=FAILED', `#/jobs/playground/${ok.id}`, `#/jobs/playground/${bad.id}`,
    '#/playground?endpoint=playground', '#/playground?endpoint=chat&mode=chat', '#/logs?endpoint=playground', '#/handlers', '#/handlers/echo:latest', '#/templates', '#/templates/echo', '#/volumes', `#/volumes/${v.id}`, `#/volumes/${v.id}/box`, '#/endpoints/limited/settings', '#/registries', '#/keys', '#/billing', '#/system'];
}

for (const dark of [false, true]) {
  test(`no serious finding of axe in ${dark ? 'dark' : 'light'}`, async () => {
    const { page, login, to, check, end } = await open({ dark });
    const found = [];
    const look = async (at) => {
      await page.evaluate(axe);
      const result = await page.evaluate(() => /** @type {any} */ (window).axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
      for (const v of result.violations) if (['serious', 'critical'].includes(v.impact)) found.push(`${at}: ${v.id} ${v.nodes.slice(0, 2).map((n) => `${n.target} ${n.any[0]?.message ?? ''}`).join(' | ')}`);
    };
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
    }
  }
  await page.getByRole('button', { name: 'Menu' }).click();
  await page.getByRole('link', { name: 'Jobs', exact: true }).click();
  await page.getByRole('heading', { name: 'Jobs' }).waitFor();
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

test('the first view needs few files and few bytes', async (t) => {
  const paints = [], views = [];
  let requests = [], bytes = 0;
  for (let i = 0; i < 7; i++) {
    const { page, to, end } = await open();
    const all = [];
    page.on('requestfinished', (q) => all.push(q));
    await to('');
    await page.getByLabel('API key').waitFor();
    const at = await page.evaluate(() => ({ paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0, view: performance.now() }));
    paints.push(at.paint);
    views.push(at.view);
    requests = all.map((q) => new URL(q.url()).pathname.replace(/^.*\/console\//, ''));
    bytes = (await Promise.all(all.map(async (q) => (await q.sizes()).responseBodySize))).reduce((a, b) => a + b, 0);
    await end();
  }
  const middle = (l) => Math.round(l.sort((a, b) => a - b)[3]);
  t.diagnostic(`first paint after ${middle(paints)} ms, the form after ${middle(views)} ms (medians of 7); ${requests.length} requests, ${bytes} bytes`);
  // The login waits for no other page and for no chart.
  assert.deepEqual(requests.filter((r) => r.startsWith('assets/pages/')), ['assets/pages/login.js']);
  assert.deepEqual(requests.filter((r) => r.includes('uplot')), []);
  assert.ok(requests.length <= 32, `${requests.length} requests`);
  assert.ok(bytes > 0 && bytes <= 120_000, `${bytes} bytes`);
  // The machine that runs the tests does other things too.
  assert.ok(middle(paints) > 0 && middle(paints) < 5000, `${paints}`);
});
