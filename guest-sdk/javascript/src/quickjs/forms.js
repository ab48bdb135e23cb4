// `Blob`, `File` and `FormData`. A form that is a body is sent as `multipart/form-data`.

import "./random.js";
import "./streams.js";
import "./text.js";

import { AS_BODY, toBytes } from "./bytes.js";

class Blob {
  #bytes;
  #type;

  constructor(parts = [], { type = "" } = {}) {
    this.#bytes = joined([...parts].map(partBytes));
    this.#type = /[^\x20-\x7e]/.test(type) ? "" : String(type).toLowerCase();
  }

  get size() {
    return this.#bytes.length;
  }

  get type() {
    return this.#type;
  }

  async arrayBuffer() {
    return this.#bytes.slice().buffer;
  }

  async bytes() {
    return this.#bytes.slice();
  }

  async text() {
    return new TextDecoder().decode(this.#bytes);
  }

  slice(start, end, type) {
    return new Blob([this.#bytes.slice(start, end)], { type });
  }

  stream() {
    const bytes = this.#bytes.slice();
    return new ReadableStream({
      start(controller) {
        if (bytes.length) controller.enqueue(bytes);
        controller.close();
      },
    });
  }

  [AS_BODY]() {
    return { content: this.#bytes, type: this.#type || undefined };
  }
}

function partBytes(part) {
  if (part instanceof Blob) return part[AS_BODY]().content;
  if (ArrayBuffer.isView(part) || part instanceof ArrayBuffer) return toBytes(part);
  return new TextEncoder().encode(String(part));
}

function joined(pieces) {
  const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

class File extends Blob {
  #name;
  #lastModified;

  constructor(parts, name, options = {}) {
    super(parts, options);
    this.#name = String(name);
    this.#lastModified = Number(options.lastModified ?? Date.now());
  }

  get name() {
    return this.#name;
  }

  get lastModified() {
    return this.#lastModified;
  }
}

class FormData {
  #entries = [];

  append(name, value, filename) {
    this.#entries.push(entry(name, value, filename));
  }

  delete(name) {
    this.#entries = this.#entries.filter(([key]) => key !== String(name));
  }

  get(name) {
    return this.getAll(name)[0] ?? null;
  }

  getAll(name) {
    return this.#entries.filter(([key]) => key === String(name)).map(([, value]) => value);
  }

  has(name) {
    return this.#entries.some(([key]) => key === String(name));
  }

  set(name, value, filename) {
    const index = this.#entries.findIndex(([key]) => key === String(name));
    if (index < 0) return this.append(name, value, filename);
    const rest = this.#entries.slice(index + 1).filter(([key]) => key !== String(name));
    this.#entries = [...this.#entries.slice(0, index), entry(name, value, filename), ...rest];
  }

  forEach(callback, thisArg) {
    for (const [name, value] of this) callback.call(thisArg, value, name, this);
  }

  *entries() {
    for (const [name, value] of this.#entries) yield [name, value];
  }

  *keys() {
    for (const [name] of this.#entries) yield name;
  }

  *values() {
    for (const [, value] of this.#entries) yield value;
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  get [Symbol.toStringTag]() {
    return "FormData";
  }

  [AS_BODY]() {
    const boundary = `gristmill-${crypto.randomUUID()}`;
    const parts = this.#entries.flatMap(([name, value]) => {
      const start = `--${boundary}\r\ncontent-disposition: form-data; name="${quoted(name)}"`;
      if (typeof value === "string") return [`${start}\r\n\r\n${lines(value)}\r\n`];
      const type = value.type || "application/octet-stream";
      const head = `${start}; filename="${quoted(value.name)}"\r\ncontent-type: ${type}\r\n\r\n`;
      return [head, value, "\r\n"];
    });
    const content = joined([...parts, `--${boundary}--\r\n`].map(partBytes));
    return { content, type: `multipart/form-data; boundary=${boundary}` };
  }
}

function entry(name, value, filename) {
  if (!(value instanceof Blob)) return [String(name), String(value)];
  const isNamed = value instanceof File && filename === undefined;
  return [String(name), isNamed ? value : new File([value], filename ?? "blob", value)];
}

/** The line breaks of a text, as a form has them. */
const lines = (text) => text.replace(/\r?\n|\r/g, "\r\n");

const quoted = (name) => lines(name).replace(/\r\n/g, "%0D%0A").replace(/"/g, "%22");

Object.assign(globalThis, { Blob, File, FormData });
