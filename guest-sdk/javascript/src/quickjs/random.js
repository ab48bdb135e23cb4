// Random numbers. QuickJS's own seed is part of the snapshot, so every instance would draw the same
// numbers.

import { getRandomBytes } from "wasi:random/random@0.2.0";

/** Most bytes of one call of `getRandomValues`, as everywhere. */
const RANDOM_BYTES_MAX = 65536;

const Integers = [
  Int8Array,
  Uint8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  BigInt64Array,
  BigUint64Array,
];

globalThis.crypto = {
  getRandomValues(array) {
    if (!Integers.some((Kind) => array instanceof Kind)) {
      throw new DOMException("expected a typed array of integers", "TypeMismatchError");
    }
    if (array.byteLength > RANDOM_BYTES_MAX) {
      throw new DOMException(
        `expected at most ${RANDOM_BYTES_MAX} bytes, got ${array.byteLength}`,
        "QuotaExceededError",
      );
    }
    const bytes = getRandomBytes(array.byteLength);
    new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(bytes);
    return array;
  },
  randomUUID() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
  },
};

// xorshift128+, as the engines have it; the seed is drawn by the first call of each job.
let state;

/** Draws the next seed anew: the seed of a call during the build is in all instances. */
export function forgetSeed() {
  state = undefined;
}

const MASK = (1n << 64n) - 1n;
Math.random = () => {
  state ??= crypto.getRandomValues(new BigUint64Array(2));
  let [a, b] = state;
  a ^= (a << 23n) & MASK;
  a ^= (a >> 17n) ^ b ^ (b >> 26n);
  state[0] = b;
  state[1] = a;
  return Number(((a + b) & MASK) >> 11n) / 2 ** 53;
};
