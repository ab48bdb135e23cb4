// Pictures of every page in light and dark, 1280 and 360 px wide, of a host with work on it (sample.js).
// Usage: screenshots.js DIRECTORY [SECONDS]; `run.sh` sets the environment (GRISTMILL_SCREENSHOTS).
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { open, close, key, run, api, loaded, HOST } from './browser/page.js';
import { deploy, release, work } from './sample.js';

const [directory, seconds = '240'] = process.argv.slice(2);
// Names of pages; none: all of them.
const only = process.env.GRISTMILL_SCREENSHOTS_OF?.split(',');
mkdirSync(directory, { recursive: true });
await deploy();
const load = work(Number(seconds) + 100);
await new Promise((f) => setTimeout(f, Number(seconds) * 400));
if (Number(seconds) > 0) await release();
await new Promise((f) => setTimeout(f, Number(seconds) * 600));

const newest = async (q) => (await api('GET', `v1/jobs?limit=1&${q}`)).jobs[0];
const stream = await run('speech', { prompt: 'The water turns the wheel, and the wheel turns the stone. Flour falls into the sack, and the sack goes to the baker, who makes bread of it before the town is awake. '.repeat(4), delay_ms: 150 });
const done = await newest('endpoint=word-count&status=COMPLETED');
const failed = await newest('endpoint=invoices&status=FAILED');
const running = await newest('endpoint=orders-sync&status=IN_PROGRESS') ?? stream;
const pages = {
  overview: '#/', endpoint: '#/endpoints/invoices', 'endpoint-jobs': '#/endpoints/invoices/jobs', 'endpoint-failed': '#/endpoints/invoices/failed', 'endpoint-logs': '#/endpoints/orders-sync/logs', 'endpoint-releases': '#/endpoints/invoices/releases', 'endpoint-webhooks': '#/endpoints/invoices/webhooks', 'endpoint-settings': '#/endpoints/invoices/settings', 'endpoint-usage': '#/endpoints/invoices/usage',
  jobs: '#/jobs', 'jobs-none': '#/jobs?endpoint=chat&status=TIMED_OUT', job: `#/jobs/word-count/${done.id}`, 'job-failed': `#/jobs/invoices/${failed.id}`, 'job-stream': `#/jobs/speech/${stream.id}`, 'job-running': `#/jobs/${running.endpointId ?? 'speech'}/${running.id}`,
  playground: '#/playground?endpoint=word-count', 'playground-stream': '#/playground?endpoint=speech&mode=stream', chat: '#/playground?endpoint=chat&mode=chat', logs: '#/logs?endpoint=orders-sync', 'logs-all': '#/logs', handlers: '#/handlers', handler: '#/handlers/invoices:1.4.0', templates: '#/templates', template: '#/templates/invoices', volumes: '#/volumes', registries: '#/registries', keys: '#/keys', billing: '#/billing', system: '#/system', missing: '#/nothing',
};
for (const [name, dark, width] of [['light', false, 1280], ['dark', true, 1280], ['light-360', false, 360], ['dark-360', true, 360]]) {
  const { page, login, to, end, errors } = await open({ dark: !!dark, width: Number(width) });
  const shoot = (what) => page.screenshot({ path: join(directory, `${what}-${name}.png`) });
  await to('');
  await page.getByLabel('API key').waitFor();
  if (!only || only.includes('login')) await shoot('login');
  await login((await key(['admin'], 'operator')).text);
  for (const [what, at] of Object.entries(pages)) {
    if (only && !only.includes(what)) continue;
    await to(at);
    await page.getByRole('heading', { level: 1 }).or(page.getByRole('heading', { level: 3 })).first().waitFor();
    await loaded(page);
    if (what.startsWith('playground')) {
      await page.getByLabel('Input', { exact: true }).fill(what === 'playground' ? '{\n  "text": "to be or not to be, that is the question",\n  "top": 5\n}' : '{\n  "prompt": "the mill grinds slowly but it grinds fine",\n  "delay_ms": 60\n}');
      await page.getByRole('button', { name: 'Run', exact: true }).click();
      await page.locator('h2', { hasText: 'Answer' }).locator('..').getByText('Completed').waitFor();
    }
    if (what === 'chat') { await page.getByRole('button', { name: 'Send' }).click(); await page.getByText('First chunk after').waitFor(); }
    if (what === 'endpoint-releases') for (const box of await page.getByLabel(/^Compare version/).all()) await box.check();
    // Charts and counts are drawn when their answers are there.
    await page.mouse.move(1, 1);
    await page.waitForTimeout(what === 'overview' || what === 'endpoint' ? 1600 : 500);
    await shoot(what);
  }
  if (errors.length) console.log(name, errors);
  await end();
}
await close();
console.log(`pictures of ${HOST} are in ${directory}`);
void load;
process.exit(0);
