// The parts of the web platform that the SDK adds to QuickJS, and which of them a handler needs.
//
// A part that a handler does not mention is not in its component: the streams and `URL` are larger
// than most handlers.

/** The globals that the SDK adds, by the module of src/quickjs that defines them. */
const PARTS = {
  "clone.js": ["structuredClone"],
  "digest.js": ["subtle"],
  "events.js": ["AbortController", "AbortSignal", "Event", "EventTarget"],
  "fetch.js": ["Headers", "Request", "Response", "fetch"],
  "forms.js": ["Blob", "File", "FormData"],
  "streams.js": [
    "ByteLengthQueuingStrategy",
    "CountQueuingStrategy",
    "ReadableStream",
    "TextDecoderStream",
    "TextEncoderStream",
    "TransformStream",
    "WritableStream",
  ],
  "url.js": ["URL", "URLSearchParams"],
};

/** A use of the global object as a whole, through which any global can be reached. */
const WHOLE_GLOBAL =
  /\b(globalThis|self|window|global)\b(?!\s*\??\.|\s*:|[\w$])|\beval\b|\bFunction\(/;

/**
 * The modules of src/quickjs that a bundle needs. `free` are its free identifiers, of those that
 * `candidates` lists.
 */
export function partsOf(code, free) {
  const isUsed = (name) => {
    if (free.has(name)) return true;
    const word = `\\b${name}\\b`;
    if (name === "subtle" || WHOLE_GLOBAL.test(code)) return new RegExp(word).test(code);
    return new RegExp(`\\b(globalThis|self|window|global)\\s*\\??\\.\\s*${word}`).test(code);
  };
  return Object.keys(PARTS).filter((part) => PARTS[part].some(isUsed));
}

/** The names that may be free identifiers of a handler. */
export const candidates = Object.values(PARTS).flat();

/** A module for each of them: a bundle into which they are injected has those that it uses. */
export const injected = candidates.map((name) => `gristmill-global:${name}`);

/** The module of the platform for these parts. */
export function platformSource(parts, isServer) {
  return [
    ...["globals.js", ...parts].map((part) => `import "gristmill-sdk/src/quickjs/${part}";`),
    'export { wait } from "gristmill-sdk/src/quickjs/globals.js";',
    ...(isServer ? ['export { answer } from "gristmill-sdk/src/quickjs/server.js";'] : []),
  ].join("\n");
}
