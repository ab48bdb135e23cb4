// Random numbers. QuickJS's own seed is part of the snapshot, so every instance would draw the same
// numbers.

import { getRandomBytes } from "wasi:random/random@0.2.0";

globalThis.crypto = {
  getRandomValues(array) {
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

// xorshift128+, as the engines have it; the seed is drawn by the first call.
let state;
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
