// The files of a volume: a directory has an address, files are uploaded, replaced after a question, downloaded and
// deleted, a long list has pages, names of any kind are text, and refusals are the host's own sentences.
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { open, close, key, api, until, loaded, HOST } from './page.js';

after(close);
const volume = (name) => api('POST', 'v1/networkvolumes', { name, size: 1 });
const at = (v, ...names) => `${HOST}/v1/networkvolumes/${v.id}/files/${names.map(encodeURIComponent).join('/')}`;
const headers = { Authorization: `Bearer ${process.env.GRISTMILL_ADMIN_KEY}` };
const put = async (v, text, ...names) => { const a = await fetch(at(v, ...names), { method: 'PUT', headers, body: text }); assert.equal(a.status, 204, await a.text()); };
const read = async (v, ...names) => { const a = await fetch(at(v, ...names), { headers }); return a.ok ? a.text() : a.status; };
const names = async (v, path = '') => (await api('GET', `v1/networkvolumes/${v.id}/files?path=${encodeURIComponent(path)}`)).map((f) => f.name);
const file = (name, text) => ({ name, mimeType: 'text/plain', buffer: Buffer.from(text) });
/** Drops files or directories of this machine on the list, as a file manager does. */
async function drop(page, files) {
  const box = await page.locator('section.files').boundingBox(), browser = await page.context().newCDPSession(page);
  const data = { items: [], files, dragOperationsMask: 1 };
  for (const type of ['dragEnter', 'dragOver', 'drop']) await browser.send('Input.dispatchDragEvent', { type, x: box.x + 40, y: box.y + 40, data });
}

test('a directory of a volume has an address, and files in it are uploaded, replaced, downloaded and deleted', async () => {
  const v = await volume('granary');
  const { page, login, to, errors, check, end } = await open();
  await login((await key()).text);
  const row = (text) => page.locator('tbody tr', { hasText: text }), dialog = page.getByRole('dialog'), chooser = page.getByLabel('Files to upload');
  await to('#/volumes');
  await page.getByRole('main').getByRole('link', { name: 'granary' }).click();
  await page.getByRole('heading', { name: 'granary' }).waitFor();
  await page.getByText('This volume is empty').waitFor();
  await page.getByText(`gristmill volumes cp model.bin ${v.id}:`, { exact: true }).waitFor();

  // A new directory exists with its first file.
  await page.getByRole('button', { name: 'New directory …' }).click();
  await dialog.getByLabel('Name').fill('models/small');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'small' }).waitFor();
  await page.getByText('No such directory yet').waitFor();
  await page.getByText(`gristmill volumes cp model.bin ${v.id}:models/small/`, { exact: true }).waitFor();
  assert.deepEqual(errors.splice(0).filter((e) => !/404/.test(e)), []);
  await chooser.setInputFiles([file('rye.txt', 'rye'), file('oat.txt', 'oat flour')]);
  await row('rye.txt').getByText('3 B').waitFor();
  await row('oat.txt').getByText('9 B').waitFor();
  await page.getByText('2 files are uploaded.').waitFor();
  assert.equal(await read(v, 'models', 'small', 'rye.txt'), 'rye');

  // The address is enough for a reload, and the way back is that of the browser.
  await page.reload();
  await row('rye.txt').waitFor();
  await page.getByRole('navigation', { name: 'Path' }).getByRole('link', { name: 'models' }).click();
  await row('small').getByText('directory').waitFor();
  await until('the heading has the focus', () => page.evaluate(() => document.activeElement?.tagName === 'H1'));
  await page.goBack();
  await row('rye.txt').waitFor();

  // A file that exists is replaced after a question only.
  const local = mkdtempSync(join(tmpdir(), 'files-')), files = ['rye.txt', 'bran.txt', 'sacks'].map((n) => join(local, n));
  mkdirSync(join(local, 'sacks/old'), { recursive: true });
  for (const [name, text] of [['rye.txt', 'rye again'], ['bran.txt', 'bran'], ['sacks/old/jute 1', 'jute']]) writeFileSync(join(local, name), text);
  await drop(page, files);
  await dialog.getByText('models/small/rye.txt').waitFor();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  assert.deepEqual(await names(v, 'models/small'), ['oat.txt', 'rye.txt'], 'nothing was uploaded');
  assert.equal(await read(v, 'models', 'small', 'rye.txt'), 'rye');
  await drop(page, files);
  await dialog.getByRole('button', { name: 'Replace it' }).click();
  await row('bran.txt').waitFor();
  await until('it is replaced', async () => await read(v, 'models', 'small', 'rye.txt') === 'rye again');
  await row('sacks').getByText('directory').waitFor();
  await until('a directory is uploaded too', async () => await read(v, 'models', 'small', 'sacks', 'old', 'jute 1') === 'jute');
  await page.getByText('3 files are uploaded.').waitFor();
  rmSync(local, { recursive: true });

  const saved = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download rye.txt' }).click();
  assert.equal((await saved).suggestedFilename(), 'rye.txt');
  assert.equal(readFileSync(await (await saved).path(), 'utf8'), 'rye again');

  await page.getByRole('button', { name: 'Delete rye.txt' }).click();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  assert.equal(await read(v, 'models', 'small', 'rye.txt'), 'rye again');
  await page.getByRole('button', { name: 'Delete rye.txt' }).click();
  await dialog.getByRole('button', { name: 'Delete it' }).click();
  await row('rye.txt').waitFor({ state: 'detached' });
  assert.equal(await read(v, 'models', 'small', 'rye.txt'), 404);
  await page.getByRole('navigation', { name: 'Path' }).getByRole('link', { name: 'granary' }).click();
  await page.getByRole('button', { name: 'Delete models' }).click();
  await dialog.getByText('with all files in it').waitFor();
  await dialog.getByRole('button', { name: 'Delete it' }).click();
  await page.getByText('This volume is empty').waitFor();
  assert.deepEqual(await names(v), []);
  // The browser notes each directory that does not exist yet.
  assert.deepEqual(errors.splice(0).filter((e) => !/404/.test(e)), []);
  await check();
  await end();
});

test('names of any kind are text, and such files and directories are opened, read and deleted', async () => {
  const v = await volume('<b>chaff</b>');
  const evil = '<img src=x onerror="window.owned=1">', bidi = 'flour\u202Egpj.exe', odd = '50% of #1? a  b&c=d+e', long = 'n'.repeat(255), dotted = '..;%2e%2e\\x';
  for (const name of [evil, bidi, odd, long, dotted]) await put(v, `content of ${name}`, `in ${odd} ${evil.slice(0, 4)}`, name);
  const { page, login, to, check, end } = await open({ width: 320 });
  await login((await key()).text);
  await to(`#/volumes/${v.id}`);
  await page.getByRole('heading', { name: '<b>chaff</b>' }).waitFor();
  await page.locator('tbody a').click();
  await page.getByText('flour⟨U+202E⟩gpj.exe', { exact: true }).waitFor();
  assert.equal(await page.locator('tbody tr').count(), 5);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'no sideways scroll');
  await page.reload();
  await page.getByText(evil, { exact: true }).waitFor();
  for (const name of [evil, odd, long, dotted]) {
    const saved = page.waitForEvent('download');
    await page.getByRole('button', { name: `Download ${name}`, exact: true }).click();
    assert.equal(readFileSync(await (await saved).path(), 'utf8'), `content of ${name}`);
  }
  for (const name of [odd, bidi]) {
    await page.getByRole('button', { name: `Delete ${name.replace('\u202E', '⟨U+202E⟩')}`, exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete it' }).click();
    await until('it is deleted', async () => await read(v, `in ${odd} <img`, name) === 404);
  }
  await page.getByLabel('Files to upload').setInputFiles(file('100 % <i>#?&.txt', 'new'));
  await page.getByText('100 % <i>#?&.txt', { exact: true }).waitFor();
  assert.equal(await read(v, `in ${odd} <img`, '100 % <i>#?&.txt'), 'new');
  assert.equal(await page.evaluate(() => /** @type {any} */ (window).owned), undefined);
  assert.equal(await page.locator('main img, main b, main i').count(), 0);
  assert.ok(!(await page.title()).includes('\u202E'));
  await check();
  await end();
});

test('a long list has pages with addresses, and a file on another page is replaced after a question too', async () => {
  const v = await volume('long');
  // More than the 1,000 entries of the longest page of the API.
  for (let n = 0; n < 1010; n += 10) await Promise.all(Array.from({ length: 10 }, (_, i) => put(v, 'x', `grain-${String(n + i).padStart(4, '0')}`)));
  const { page, login, to, check, end } = await open();
  await login((await key()).text);
  await to(`#/volumes/${v.id}`);
  const first = page.locator('tbody tr').first();
  await first.getByText('grain-0000').waitFor();
  assert.equal(await page.locator('tbody tr').count(), 200);
  await page.getByRole('link', { name: 'Next page' }).click();
  await first.getByText('grain-0200').waitFor();
  await page.reload();
  await first.getByText('grain-0200').waitFor();
  await page.goBack();
  await first.getByText('grain-0000').waitFor();
  await page.getByLabel('Files to upload').setInputFiles([file('grain-1009', 'new'), file('grain-1', 'new'), file('grain-10090', 'new')]);
  const dialog = page.getByRole('dialog');
  await dialog.getByText('grain-1009', { exact: true }).waitFor();
  assert.equal(await dialog.getByRole('listitem').count(), 1);
  await dialog.getByRole('button', { name: 'Replace it' }).click();
  await page.getByText('3 files are uploaded.').waitFor();
  assert.equal(await read(v, 'grain-1009'), 'new');
  await check();
  await end();
});

test('an upload shows how far it is and can be cancelled, and a refusal is the sentence of the host', async () => {
  const v = await volume('slow');
  await api('PATCH', `v1/networkvolumes/${v.id}`, { size: 2 });
  await put(v, 'x', 'directory', 'x');
  const { page, login, to, errors, check, end } = await open();
  await login((await key()).text);
  // A network of 1 MB/s, so that there is something to see.
  const network = await page.context().newCDPSession(page);
  const speed = (uploadThroughput) => network.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput });
  await to(`#/volumes/${v.id}`);
  await page.getByText('directory').first().waitFor();
  await speed(1_000_000);
  const chooser = page.getByLabel('Files to upload');
  await chooser.setInputFiles([{ ...file('large.bin', ''), buffer: Buffer.alloc(20_000_000) }, file('after.txt', 'after')]);
  const upload = page.getByRole('region', { name: 'Upload' });
  await upload.getByText('Uploading 1 of 2: large.bin').waitFor();
  await until('it goes on', async () => { const n = await upload.getByRole('progressbar').evaluate((e) => /** @type {HTMLProgressElement} */ (e).value); return n > 0 && n < 20_000_000; });
  // It goes on while another page is shown.
  await page.getByRole('link', { name: 'Templates' }).click();
  await page.getByRole('heading', { name: 'Templates' }).waitFor();
  await page.goBack();
  await upload.getByRole('button', { name: 'Cancel' }).click();
  await page.getByText('The upload is cancelled').waitFor();
  await upload.waitFor({ state: 'detached' });
  await speed(-1);
  assert.deepEqual(await names(v), ['directory']);
  assert.deepEqual(errors, []);

  await chooser.setInputFiles([file('directory', 'a file'), file('good.txt', 'good')]);
  await page.getByRole('alert').getByText('is a directory').waitFor();
  await page.locator('tbody tr', { hasText: 'good.txt' }).waitFor();
  await page.getByRole('alert').getByRole('button', { name: 'Close' }).click();
  await to(`#/volumes/${v.id}/good.txt`);
  await page.getByRole('alert').getByText('is not a directory').waitFor();
  await to('#/volumes/no-such-volume');
  await page.getByRole('alert').getByText('network volume `no-such-volume` not found').waitFor();
  await to(`#/volumes/${v.id}`);
  await loaded(page);
  await fetch(at(v, 'good.txt'), { method: 'DELETE', headers });
  await page.getByRole('button', { name: 'Download good.txt' }).click();
  await page.locator('.toast.bad').getByText('good.txt').waitFor();
  assert.deepEqual(errors.splice(0).filter((e) => !/40[04]/.test(e)), []);
  await check();
  await end();
});
