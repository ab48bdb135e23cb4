// `crypto.subtle.digest`, of @noble/hashes.

import "./promise.js";
import "./random.js";

import { sha1 } from "@noble/hashes/legacy.js";
import { sha256, sha384, sha512 } from "@noble/hashes/sha2.js";

const HASHES = { "SHA-1": sha1, "SHA-256": sha256, "SHA-384": sha384, "SHA-512": sha512 };

globalThis.crypto.subtle = {
  async digest(algorithm, data) {
    const name = String(algorithm?.name ?? algorithm).toUpperCase();
    const hash = HASHES[name];
    if (!hash) {
      const known = Object.keys(HASHES).join(", ");
      throw new DOMException(`${name} is not one of ${known}`, "NotSupportedError");
    }
    if (!ArrayBuffer.isView(data) && !(data instanceof ArrayBuffer)) {
      throw new TypeError("digest needs an ArrayBuffer or a typed array");
    }
    const bytes = ArrayBuffer.isView(data)
      ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
      : new Uint8Array(data);
    return hash(bytes).slice().buffer;
  },
};
