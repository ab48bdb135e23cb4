// Compares the SDK's parts of the web platform for QuickJS with Node's.

import assert from "node:assert/strict";
import { test } from "node:test";

const node = { TextDecoder, TextEncoder };
await import("../src/quickjs/text.js");
const ours = { TextDecoder: globalThis.TextDecoder, TextEncoder: globalThis.TextEncoder };
Object.assign(globalThis, node);

test("text goes to bytes as everywhere", () => {
  for (const text of ["", "abc", "Grüße € 😀 \0", "\ud800x\udc00", "😀".repeat(5000)]) {
    assert.deepEqual(new ours.TextEncoder().encode(text), new node.TextEncoder().encode(text));
  }
});

test("bytes go to text as everywhere, whatever they are", () => {
  // Every pair of bytes, before and after which something else must survive.
  const interesting = [
    0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed,
    0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff,
  ];
  for (const a of interesting)
    for (const b of interesting)
      for (const c of interesting)
        for (const d of [0x41, 0x80, 0xbf, 0xe0]) {
          const bytes = Uint8Array.of(a, b, c, d, 0x42);
          assert.equal(
            new ours.TextDecoder().decode(bytes),
            new node.TextDecoder().decode(bytes),
            String(bytes),
          );
        }
});

test("fatal, byte order marks and views", () => {
  assert.throws(
    () => new ours.TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.of(0xff)),
    TypeError,
  );
  const marked = Uint8Array.of(0xef, 0xbb, 0xbf, 0x41);
  assert.equal(new ours.TextDecoder().decode(marked), "A");
  assert.equal(new ours.TextDecoder("utf8", { ignoreBOM: true }).decode(marked), "\ufeffA");
  assert.equal(new ours.TextDecoder().decode(marked.subarray(3)), "A");
  assert.equal(new ours.TextDecoder().decode(marked.buffer.slice(3)), "A");
  assert.throws(() => new ours.TextDecoder("latin1"), RangeError);
});
