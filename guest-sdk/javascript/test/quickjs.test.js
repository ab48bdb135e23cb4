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

test("text in pieces is the same as in one piece", () => {
  const samples = [
    new node.TextEncoder().encode("\ufeffGrüße € 😀\ufeff"),
    Uint8Array.of(0x41, 0xf0, 0x9f, 0x98),
    Uint8Array.of(0xe2, 0x82, 0x41, 0xf0, 0x80, 0xff, 0xc3),
    Uint8Array.of(0xed, 0xa0, 0x80, 0xc0, 0x80, 0xf4, 0x90),
    Uint8Array.of(0xef, 0xbb, 0xbf, 0xef, 0xbb, 0xbf),
  ];
  for (const bytes of samples)
    for (let first = 0; first <= bytes.length; first++)
      for (let second = first; second <= bytes.length; second++) {
        const [theirs, own] = [new node.TextDecoder(), new ours.TextDecoder()].map((decoder) => [
          decoder.decode(bytes.subarray(0, first), { stream: true }),
          decoder.decode(bytes.subarray(first, second), { stream: true }),
          decoder.decode(bytes.subarray(second)),
          decoder.decode(Uint8Array.of(0xef, 0xbb, 0xbf, 0x42)),
        ]);
        assert.deepEqual(own, theirs, `${bytes} at ${first}, ${second}`);
      }
});

test("a text is encoded into a buffer as far as there is room", () => {
  for (const room of [0, 1, 2, 3, 4, 5, 6, 7, 12]) {
    const [theirs, own] = [new node.TextEncoder(), new ours.TextEncoder()].map((encoder) => {
      const target = new Uint8Array(room);
      return [encoder.encodeInto("aé€😀", target), target];
    });
    assert.deepEqual(own, theirs);
  }
});
