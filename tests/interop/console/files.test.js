// The files of the console: their size, the hashes of vendored ones, and no inline code.
import test from 'node:test';
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { brotliCompressSync } from 'node:zlib';
import { join } from 'node:path';
import { served as withoutComments } from './served.js';

const root = new URL('../../../host/console/assets/', import.meta.url).pathname;
const files = readdirSync(root, { recursive: true }).map(String).filter((f) => statSync(join(root, f)).isFile());
const served = files.filter((f) => !f.endsWith('.md') && !f.endsWith('.txt'));

test('all files together have at most 120 KB compressed', () => {
  const total = served.reduce((n, f) => n + brotliCompressSync(f.endsWith('.js') ? withoutComments(f, readFileSync(join(root, f), 'utf8')) : readFileSync(join(root, f))).length, 0);
  console.log(`# ${total} bytes in ${served.length} files`);
  assert.ok(total <= 120_000, `${total} bytes`);
});

test('a line that is not served is a comment and no part of a text', () => {
  for (const f of files.filter((x) => x.endsWith('.js') && !x.startsWith('vendor/'))) {
    const text = readFileSync(join(root, f), 'utf8'), lines = withoutComments(f, text).split('\n');
    let open = 0;
    text.split('\n').forEach((line, i) => {
      // Within a text of several lines the number of its marks before this line is odd.
      assert.ok(line === lines[i] || open % 2 === 0, `${f}:${i + 1}`);
      open += lines[i].match(/(?<!\\)`/g)?.length ?? 0;
    });
    assert.equal(open % 2, 0, f);
  }
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
