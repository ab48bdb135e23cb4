// The files of the console: their size, the hashes of vendored ones, and no inline code.
import test from 'node:test';
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { brotliCompressSync } from 'node:zlib';
import { join } from 'node:path';

const root = new URL('../../../host/console/assets/', import.meta.url).pathname;
const files = readdirSync(root, { recursive: true }).map(String).filter((f) => statSync(join(root, f)).isFile());
const served = files.filter((f) => !f.endsWith('.md') && !f.endsWith('.txt'));

test('all files together have at most 135 KB compressed', () => {
  const total = served.reduce((n, f) => n + brotliCompressSync(readFileSync(join(root, f))).length, 0);
  console.log(`# ${total} bytes in ${served.length} files`);
  assert.ok(total <= 135_000, `${total} bytes`);
});

test('vendored files have the hashes of VENDORED.md', () => {
  const rows = readFileSync(join(root, 'vendor/VENDORED.md'), 'utf8').matchAll(/^\| `([^`]+)` .*`([0-9a-f]{64})` \|$/gm);
  const known = new Map([...rows].map((m) => [m[1], m[2]]));
  const there = files.filter((f) => /^vendor\/.*\.(js|css)$/.test(f)).map((f) => f.slice(7));
  assert.deepEqual([...known.keys()].sort(), there.sort());
  for (const [f, hash] of known) assert.equal(createHash('sha256').update(readFileSync(join(root, 'vendor', f))).digest('hex'), hash, f);
});

test('the page has no inline code and no absolute address', () => {
  const page = readFileSync(join(root, 'index.html'), 'utf8');
  assert.doesNotMatch(page, /<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=/);
  assert.doesNotMatch(page, /(src|href)="(\/|https?:)/);
});

test('no module puts text of others into HTML or runs it', () => {
  for (const f of files.filter((x) => x.endsWith('.js') && !x.startsWith('vendor/'))) {
    const text = readFileSync(join(root, f), 'utf8');
    assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|dangerouslySet/, f);
    assert.match(text, /^\/\//, `${f} begins with what it promises`);
  }
});
