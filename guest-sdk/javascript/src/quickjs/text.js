// `TextEncoder` and `TextDecoder`, for UTF-8.

const REPLACEMENT = 0xfffd;

/** Arguments of one call of `String.fromCharCode`; more overflow the engine's stack. */
const ARGUMENTS_MAX = 4096;

globalThis.TextEncoder = class TextEncoder {
  get encoding() {
    return "utf-8";
  }

  encode(text = "") {
    const latin = toLatin(String(text));
    const bytes = new Uint8Array(latin.length);
    for (let i = 0; i < latin.length; i++) bytes[i] = latin.charCodeAt(i);
    return bytes;
  }

  encodeInto(text, target) {
    let read = 0;
    let written = 0;
    for (const character of String(text)) {
      const bytes = this.encode(character);
      if (written + bytes.length > target.length) break;
      target.set(bytes, written);
      written += bytes.length;
      read += character.length;
    }
    return { read, written };
  }
};

/** A text with one character for each byte of its UTF-8. The engine's own functions are fast. */
function toLatin(text) {
  return /[^\0-\x7f]/.test(text) ? unescape(encodeURIComponent(text.toWellFormed())) : text;
}

globalThis.TextDecoder = class TextDecoder {
  #fatal;
  #ignoreBOM;
  /** The bytes of a character that the last piece of a stream has begun. */
  #rest = new Uint8Array();
  #begun = false;

  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    if (!/^\s*(unicode-1-1-)?utf-?8\s*$/i.test(label)) {
      throw new RangeError(`only utf-8 is available in the sandbox, not ${label}`);
    }
    this.#fatal = Boolean(fatal);
    this.#ignoreBOM = Boolean(ignoreBOM);
  }

  get encoding() {
    return "utf-8";
  }

  get fatal() {
    return this.#fatal;
  }

  get ignoreBOM() {
    return this.#ignoreBOM;
  }

  decode(input = new Uint8Array(), { stream = false } = {}) {
    let bytes = ArrayBuffer.isView(input)
      ? new Uint8Array(input.buffer, input.byteOffset, input.byteLength)
      : new Uint8Array(input);
    if (this.#rest.length) {
      const joined = new Uint8Array(this.#rest.length + bytes.length);
      joined.set(this.#rest);
      joined.set(bytes, this.#rest.length);
      bytes = joined;
    }
    const end = stream ? bytes.length - unfinished(bytes) : bytes.length;
    this.#rest = bytes.slice(end);
    let text;
    try {
      text = toText(bytes.subarray(0, end), this.#fatal);
    } catch (error) {
      this.#rest = new Uint8Array();
      this.#begun = false;
      throw error;
    }
    if (!this.#begun && !this.#ignoreBOM && text.startsWith("\ufeff")) text = text.slice(1);
    this.#begun = stream && (this.#begun || text.length > 0 || end > 0);
    return text;
  }
};

/** How many bytes at the end begin a character that further bytes may complete. */
function unfinished(bytes) {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const start = bytes.length - back;
    if (bytes[start] < 0x80) return 0;
    if (bytes[start] < 0xc0) continue;
    // Without a code, `read` returns the number of bytes to replace: all of them may still be valid.
    const [code, length] = read(bytes, start);
    const expected = bytes[start] >= 0xf0 ? 4 : bytes[start] >= 0xe0 ? 3 : 2;
    return code === undefined && length === back && back < expected && isLead(bytes[start])
      ? back
      : 0;
  }
  return 0;
}

const isLead = (byte) => byte >= 0xc2 && byte <= 0xf4;

function toText(bytes, fatal) {
  let latin = "";
  for (let i = 0; i < bytes.length; i += ARGUMENTS_MAX) {
    latin += String.fromCharCode.apply(null, bytes.subarray(i, i + ARGUMENTS_MAX));
  }
  if (!/[^\0-\x7f]/.test(latin)) return latin;
  try {
    // The engine's own functions are fast, and refuse everything that is not UTF-8.
    return decodeURIComponent(escape(latin));
  } catch {
    if (fatal) throw new TypeError("the bytes are not UTF-8");
    return replacing(bytes);
  }
}

/** The text with a replacement for each sequence that is not UTF-8. */
function replacing(bytes) {
  const codes = [];
  const parts = [];
  for (let i = 0; i < bytes.length;) {
    const [code, length] = read(bytes, i);
    codes.push(code ?? REPLACEMENT);
    i += length;
    if (codes.length === ARGUMENTS_MAX) parts.push(String.fromCodePoint(...codes.splice(0)));
  }
  return parts.join("") + String.fromCodePoint(...codes);
}

/** The code at `start` and its length; without a code, the number of bytes to replace. */
function read(bytes, start) {
  const first = bytes[start];
  if (first < 0x80) return [first, 1];
  const tail = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  if (first < 0xc2 || first > 0xf4) return [undefined, 1];
  let code = first & (0x3f >> tail);
  for (let i = 1; i <= tail; i++) {
    const byte = bytes[start + i];
    // The second byte alone shows overlong forms, surrogates, and codes beyond Unicode.
    const [low, high] =
      i > 1
        ? [0x80, 0xbf]
        : first === 0xe0
          ? [0xa0, 0xbf]
          : first === 0xed
            ? [0x80, 0x9f]
            : first === 0xf0
              ? [0x90, 0xbf]
              : first === 0xf4
                ? [0x80, 0x8f]
                : [0x80, 0xbf];
    if (!(byte >= low && byte <= high)) return [undefined, i];
    code = (code << 6) | (byte & 0x3f);
  }
  return [code, tail + 1];
}
