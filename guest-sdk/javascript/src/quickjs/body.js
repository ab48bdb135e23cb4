// The bodies of requests and responses: `Request` and `Response` of the Fetch standard, without
// `blob()` and `formData()`.

import "./events.js";
import "./streams.js";
import "./text.js";
import "./url.js";

import { AS_BODY, toBytes } from "./bytes.js";
import { Headers } from "./headers.js";

const METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const REDIRECTS = ["follow", "error", "manual"];
export const REDIRECT_STATUS = [301, 302, 303, 307, 308];
const STATUS_WITHOUT_BODY = [101, 103, 204, 205, 304];

/** The content of a body whose bytes come from elsewhere, piece by piece. */
export class Source {
  /** Resolves to the next bytes; to undefined at the end. */
  async read() {
    return undefined;
  }

  /** The rest is not needed. */
  cancel() {}
}

/** Takes the content of a body for one use: bytes, a stream, a `Source`, or undefined. */
export let take;
/** The content for a second body with the same bytes. */
let copy;
/** Sets the properties of an answer that its constructor does not take. */
export let describeResponse;

/** A body, which is read once. Its content is bytes, a `ReadableStream` or a `Source`. */
class Body {
  #content;
  #used = false;

  constructor(content) {
    this.#content = content;
  }

  get body() {
    if (this.#content === undefined) return null;
    if (!(this.#content instanceof ReadableStream)) this.#content = streamOf(this.#content);
    return this.#content;
  }

  get bodyUsed() {
    return this.#used || disturbed.has(this.#content);
  }

  async bytes() {
    return this.#read();
  }

  async arrayBuffer() {
    return (await this.#read()).slice().buffer;
  }

  async text() {
    return new TextDecoder().decode(await this.#read());
  }

  async json() {
    return JSON.parse(await this.text());
  }

  async #read() {
    const content = take(this);
    if (content === undefined) return new Uint8Array();
    if (content instanceof Uint8Array) return content;
    return joined(content instanceof Source ? content : new FromStream(content));
  }

  #checkUnused() {
    if (this.bodyUsed) throw new TypeError("the body was read already");
    if (this.#content?.locked) throw new TypeError("the body has a reader already");
  }

  static {
    take = (body) => {
      body.#checkUnused();
      body.#used = body.#content !== undefined;
      return body.#content;
    };
    copy = (body) => {
      body.#checkUnused();
      if (body.#content === undefined || body.#content instanceof Uint8Array) return body.#content;
      const [first, second] = body.body.tee();
      body.#content = first;
      return second;
    };
  }
}

/** The streams that bodies made and something has read from. */
const disturbed = new WeakSet();

function streamOf(content) {
  const stream = new ReadableStream(
    {
      type: "bytes",
      async pull(controller) {
        disturbed.add(stream);
        const isWhole = content instanceof Uint8Array;
        const bytes = isWhole ? content : await content.read();
        if (bytes?.length) controller.enqueue(bytes.slice());
        if (isWhole || !bytes) {
          controller.close();
          controller.byobRequest?.respond(0);
        }
      },
      cancel(reason) {
        disturbed.add(stream);
        content.cancel?.(reason);
      },
    },
    { highWaterMark: 0 },
  );
  return stream;
}

/** The pieces of an author's stream. */
export class FromStream extends Source {
  #reader;

  constructor(stream) {
    super();
    this.#reader = stream.getReader();
  }

  async read() {
    const { done, value } = await this.#reader.read();
    return done ? undefined : toBytes(value);
  }

  cancel(reason) {
    // A stream that has failed rejects; its error is known already.
    this.#reader.cancel(reason).catch(() => {});
  }
}

async function joined(source) {
  const pieces = [];
  let length = 0;
  for (let piece; (piece = await source.read());) {
    pieces.push(piece);
    length += piece.length;
  }
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

/** What an author gave as a body: its content, and the type that it has by itself. */
function extract(init) {
  if (init === undefined || init === null) return {};
  if (init instanceof Source) return { content: init };
  if (init instanceof ReadableStream) {
    if (init.locked) throw new TypeError("the stream has a reader already");
    return { content: init };
  }
  if (init instanceof URLSearchParams) {
    return {
      content: new TextEncoder().encode(init.toString()),
      type: "application/x-www-form-urlencoded;charset=UTF-8",
    };
  }
  if (ArrayBuffer.isView(init) || init instanceof ArrayBuffer) {
    return { content: toBytes(init).slice() };
  }
  if (typeof init[AS_BODY] === "function") return init[AS_BODY]();
  if (typeof init[Symbol.asyncIterator] === "function") {
    return { content: ReadableStream.from(init) };
  }
  return { content: new TextEncoder().encode(String(init)), type: "text/plain;charset=UTF-8" };
}

export class Request extends Body {
  #method;
  #url;
  #headers;
  #signal;
  #redirect;

  constructor(input, init = {}) {
    const base = input instanceof Request ? input : undefined;
    const method = checkedMethod(init.method ?? base?.method ?? "GET");
    const { content, type } =
      init.body === undefined || init.body === null ? {} : extract(init.body);
    if (content && (method === "GET" || method === "HEAD")) {
      throw new TypeError(`a request with the method ${method} has no body`);
    }
    super(content ?? (base && take(base)));
    this.#method = method;
    this.#url = base ? base.url : checkedUrl(input);
    this.#headers = new Headers(init.headers ?? base?.headers);
    if (type && !this.#headers.has("content-type")) this.#headers.set("content-type", type);
    this.#signal = init.signal ?? base?.signal ?? new AbortController().signal;
    this.#redirect = init.redirect ?? base?.redirect ?? "follow";
    if (!REDIRECTS.includes(this.#redirect)) {
      throw new TypeError(`redirect: ${this.#redirect} is not one of ${REDIRECTS.join(", ")}`);
    }
  }

  get method() {
    return this.#method;
  }

  get url() {
    return this.#url;
  }

  get headers() {
    return this.#headers;
  }

  get signal() {
    return this.#signal;
  }

  get redirect() {
    return this.#redirect;
  }

  clone() {
    const { method, headers, signal, redirect } = this;
    return new Request(this.url, { method, headers, signal, redirect, body: copy(this) });
  }

  get [Symbol.toStringTag]() {
    return "Request";
  }
}

export class Response extends Body {
  #status;
  #statusText;
  #headers;
  #url = "";
  #redirected = false;
  #type = "default";

  constructor(body, { status = 200, statusText = "", headers } = {}) {
    const { content, type } = extract(body);
    if (!Number.isInteger(status) || status < 200 || status > 599) {
      throw new RangeError(`status: expected a number from 200 to 599, got ${status}`);
    }
    if (content && STATUS_WITHOUT_BODY.includes(status)) {
      throw new TypeError(`a response with the status ${status} has no body`);
    }
    super(content);
    this.#status = status;
    this.#statusText = String(statusText);
    this.#headers = new Headers(headers);
    if (type && !this.#headers.has("content-type")) this.#headers.set("content-type", type);
  }

  get status() {
    return this.#status;
  }

  get ok() {
    return this.#status >= 200 && this.#status < 300;
  }

  get statusText() {
    return this.#statusText;
  }

  get headers() {
    return this.#headers;
  }

  get url() {
    return this.#url;
  }

  get redirected() {
    return this.#redirected;
  }

  get type() {
    return this.#type;
  }

  clone() {
    const { status, statusText, headers, url, redirected } = this;
    const second = new Response(copy(this), { status, statusText, headers });
    describeResponse(second, { url, redirected, type: this.type });
    return second;
  }

  static json(data, init = {}) {
    const response = new Response(JSON.stringify(data), init);
    if (!new Headers(init.headers).has("content-type")) {
      response.headers.set("content-type", "application/json");
    }
    return response;
  }

  static redirect(url, status = 302) {
    if (!REDIRECT_STATUS.includes(status)) {
      throw new RangeError(`status: ${status} is not one of ${REDIRECT_STATUS.join(", ")}`);
    }
    return new Response(null, { status, headers: { location: checkedUrl(url) } });
  }

  static {
    describeResponse = (response, { url, redirected, type }) => {
      response.#url = url;
      response.#redirected = redirected;
      response.#type = type;
    };
  }

  get [Symbol.toStringTag]() {
    return "Response";
  }
}

function checkedMethod(method) {
  const text = String(method);
  if (!TOKEN.test(text)) throw new TypeError(`${JSON.stringify(text)} is not a method`);
  const upper = text.toUpperCase();
  if (["CONNECT", "TRACE", "TRACK"].includes(upper)) {
    throw new TypeError(`the method ${upper} is not allowed`);
  }
  return METHODS.includes(upper) ? upper : text;
}

function checkedUrl(input) {
  let url;
  try {
    url = new URL(String(input));
  } catch {
    throw new TypeError(`${JSON.stringify(String(input))} is not an absolute URL`);
  }
  if (url.username || url.password) {
    throw new TypeError("a URL with a user or a password: set the header authorization instead");
  }
  return url.href;
}
