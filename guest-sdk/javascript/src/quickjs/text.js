// `TextEncoder` and `TextDecoder`, for UTF-8.

const REPLACEMENT = 0xfffd;

globalThis.TextEncoder = class TextEncoder {
  encoding = "utf-8";

  encode(text = "") {
    const bytes = new Uint8Array(text.length * 3);
    let length = 0;
    for (const character of text) {
      let code = character.codePointAt(0);
      if (code >= 0xd800 && code <= 0xdfff) code = REPLACEMENT;
      if (code < 0x80) bytes[length++] = code;
      else {
        const tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        bytes[length++] = [0, 0xc0, 0xe0, 0xf0][tail] | (code >> (6 * tail));
        for (let i = tail - 1; i >= 0; i--) bytes[length++] = 0x80 | ((code >> (6 * i)) & 0x3f);
      }
    }
    return bytes.slice(0, length);
  }
};

globalThis.TextDecoder = class TextDecoder {
  encoding = "utf-8";

  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    if (!/^utf-?8$/i.test(label)) throw new RangeError(`only utf-8 is known here, not ${label}`);
    this.fatal = fatal;
    this.ignoreBOM = ignoreBOM;
  }

  decode(input = new Uint8Array(), { stream = false } = {}) {
    if (stream) throw new TypeError("a TextDecoder takes its whole text at once here");
    const bytes = ArrayBuffer.isView(input)
      ? new Uint8Array(input.buffer, input.byteOffset, input.byteLength)
      : new Uint8Array(input);
    const bom = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf && !this.ignoreBOM;
    const codes = [];
    const parts = [];
    for (let i = bom ? 3 : 0; i < bytes.length;) {
      const [code, length] = read(bytes, i);
      if (code === undefined && this.fatal) throw new TypeError("the bytes are not UTF-8");
      codes.push(code ?? REPLACEMENT);
      i += length;
      // A call takes no more arguments than this.
      if (codes.length === 4096) parts.push(String.fromCodePoint(...codes.splice(0)));
    }
    return parts.join("") + String.fromCodePoint(...codes);
  }
};

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
