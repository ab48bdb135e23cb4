// Work that looks like that of a real host, for screenshots and for looking at the console by hand: several
// endpoints, and jobs that complete, fail, wait, run long and stream, with tags and log lines.
import { readFileSync } from 'node:fs';
import { deflateSync, crc32 } from 'node:zlib';
import { api, component, run, upload } from './browser/page.js';

/** The endpoints: their handlers, and their settings. @type {[string, string, any][]} */
const ENDPOINTS = [
  ['thumbnails', 'thumbnail', { workersMax: 8 }], ['word-count', 'word_count', {}], ['chat', 'chat', { workersMax: 4 }], ['invoices', 'playground', { workersMax: 6 }],
  ['orders-sync', 'playground', { workersMax: 2 }], ['speech', 'token_stream', { workersMax: 4 }], ['nightly-report', 'playground', { workersMax: 1, executionTimeoutMs: 3_600_000 }],
];
const TEXTS = ['to be or not to be', 'the mill grinds slowly but it grinds fine', 'all that glitters is not gold', 'a rolling stone gathers no moss'];
const SHOPS = ['berlin', 'lisbon', 'osaka', 'tromso'];
const REFUSALS = ['the ledger refused the booking: account 4711 is closed', 'no answer of tax.example within 2 s', 'row 218: the amount is not a number'];
const pick = (list, n) => list[n % list.length];

/** A picture of some colours as PNG in base64. @param {number} side @param {number} n */
function picture(side, n) {
  const rows = Buffer.alloc(side * (side * 3 + 1));
  for (let y = 0; y < side; y++) for (let x = 0; x < side; x++) rows.set([(x * 255 / side) ^ n, (y * 255 / side) | 0, (n * 37) & 255], y * (side * 3 + 1) + 1 + x * 3);
  const part = (kind, data) => {
    const body = Buffer.concat([Buffer.from(kind), data]);
    const [size, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    size.writeUInt32BE(data.length);
    sum.writeUInt32BE(/** @type {any} */ (crc32)(body));
    return Buffer.concat([size, body, sum]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(side, 0);
  head.writeUInt32BE(side, 4);
  head.set([8, 2], 8);
  return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), part('IHDR', head), part('IDAT', deflateSync(rows)), part('IEND', Buffer.alloc(0))]).toString('base64');
}

/** Makes the endpoints that are missing. */
export async function deploy() {
  const known = new Set((await api('GET', 'v1/endpoints')).map((e) => e.id));
  for (const [id, handler, settings] of ENDPOINTS) {
    if (known.has(id)) continue;
    await upload(`${id}:1.4.0`, component(handler));
    await api('POST', 'v1/templates', { id, name: id, imageName: `${id}:1.4.0`, category: 'CPU', isServerless: true, readme: `# ${id}\n\nRuns the sample handler \`${handler}\`.\n` });
    await api('POST', 'v1/endpoints', { id, name: id, templateId: id, ...settings });
  }
  if (known.size === 0) await api('POST', 'v1/networkvolumes', { name: 'models', size: 20 });
}
/** A second release of one of them, with other settings. */
export async function release() {
  await api('PATCH', 'v1/endpoints/invoices', { memoryMib: 384, executionTimeoutMs: 120_000, allowedHosts: ['tax.example', 'ledger.example:8443'], env: { LEDGER_REGION: 'eu', TAX_TABLE: '2026' } });
  // A custom section of the component changes its hash and nothing else.
  await upload('invoices:1.5.0', Buffer.concat([readFileSync(component('playground')), Buffer.from([0, 2, 1, 120])]));
  await api('PATCH', 'v1/templates/invoices', { imageName: 'invoices:1.5.0' });
}

/** Submits jobs for some seconds, some each second. @param {number} seconds */
export async function work(seconds) {
  const end = Date.now() + seconds * 1000;
  for (let n = 0; Date.now() < end; n++) {
    const shop = { shop: pick(SHOPS, n), release: '1.4.0' };
    const wave = 2 + Math.round(2 * Math.sin(n / 9));
    const jobs = [run('word-count', { text: pick(TEXTS, n) }, { tags: { shop: shop.shop } }), run('invoices', { op: 'sleep', ms: 40 + n * 37 % 400, value: { invoice: 90210 + n, total: '118.40' } }, { tags: { ...shop, invoice: String(90210 + n) } })];
    for (let i = 0; i < wave; i++) jobs.push(run('thumbnails', { image: picture(96, n + i), max_width: 64, max_height: 64 }, { tags: { shop: pick(SHOPS, n + i) } }));
    if (n % 7 === 3) jobs.push(run('invoices', { op: 'fail', message: pick(REFUSALS, n) }, { tags: shop }));
    if (n % 5 === 0) jobs.push(run('speech', { prompt: TEXTS.join('. '), delay_ms: 120 }), run('orders-sync', { op: 'log', message: `synchronised ${n * 3} orders of ${shop.shop}` }));
    if (n % 3 === 0) jobs.push(run('orders-sync', { op: 'sleep', ms: 2600, value: { from: pick(SHOPS, n) } }, { tags: shop }));
    if (n % 40 === 0) jobs.push(run('nightly-report', { op: 'progress', steps: 60, delay_ms: 700 }, { tags: { kind: 'monthly' } }));
    if (n === 12) jobs.push(run('nightly-report', { op: 'trap' }));
    await Promise.all(jobs);
    await new Promise((f) => setTimeout(f, 1000));
  }
}
