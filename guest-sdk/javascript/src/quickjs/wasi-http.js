// One HTTP exchange through `wasi:http`, with bodies in pieces. Any number of exchanges are under
// way at once: each waits in the event loop, not in the host.

import { handle } from "gwsi:http/outgoing-handler@0.2.0";
import { Fields, OutgoingBody, OutgoingRequest, httpErrorCode } from "gwsi:http/types@0.2.0";

import { Source } from "./body.js";
import { atEnd, stopWaiting, whenReady } from "./event-loop.js";

/** Bytes of one read of a body. */
const READ_BYTES = 65536;

/** The methods that have a case of their own. */
const METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];

/** Messages for the errors of the host that have a cause an author can act on. */
const REASONS = {
  "HTTP-request-denied": "the endpoint does not allow this host: allow it with --allow-host, or in `[network] allow` of gristmill.toml",
  "destination-IP-prohibited": "the host has an address that is not public: `!private` at the end of its entry in the list of allowed hosts permits it, and for owners other than the operator `serve --handler-allow` too",
  "connection-limit-reached": "the job has too many open requests",
  "connection-refused": "cannot connect",
  "connection-terminated": "the connection was closed",
  "connection-timeout": "there was no answer in time",
  "connection-read-timeout": "the rest of the answer did not come in time",
  "HTTP-request-URI-invalid": "the URL is malformed",
  "HTTP-response-timeout": "there was no answer in time",
  "HTTP-request-body-size": "the body of the request is too large",
  "HTTP-response-body-size": "the body of the answer is too large",
};

/**
 * Sends `{ method, url, headers, content }`; the content is bytes, a `Source` or undefined. Resolves
 * to `{ status, headers, source }` once the head of the answer is there; `source` is its body. An
 * abort of `signal` ends the exchange at any time.
 */
export async function exchange(request, signal) {
  signal.throwIfAborted();
  const open = new Exchange();
  const abort = () => open.end(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  open.onEnd(() => signal.removeEventListener("abort", abort));
  try {
    return await open.send(request);
  } catch (error) {
    open.end(error);
    throw error;
  }
}

/** What one exchange holds of the host. The host wants children to be dropped before parents. */
class Exchange {
  /** The waits, by pollable: the function that rejects each. */
  #waits = new Map();
  /** By age; dropped youngest first. */
  #held = [];
  #onEnd = [];
  /** An array with the reason, once the exchange is over. */
  #over;

  constructor() {
    this.onEnd(atEnd(() => this.end(new Error("the job has ended"))));
  }

  onEnd(work) {
    this.#onEnd.push(work);
  }

  /** Ends the exchange, and returns everything to the host. Waits are rejected with `reason`. */
  end(reason) {
    if (this.#over) return;
    this.#over = [reason];
    for (const [pollable, reject] of this.#waits) {
      stopWaiting(pollable);
      reject(reason);
    }
    this.#waits.clear();
    while (this.#held.length) this.#held.pop()[Symbol.dispose]();
    for (const work of this.#onEnd) work();
  }

  checkOpen() {
    if (this.#over) throw this.#over[0];
  }

  /** Waits for the host; the pollable is dropped. */
  until(pollable) {
    return new Promise((resolve, reject) => {
      this.#waits.set(pollable, reject);
      whenReady(pollable, () => {
        this.#waits.delete(pollable);
        resolve();
      });
    });
  }

  #hold(resource) {
    this.#held.push(resource);
    return resource;
  }

  /** The resource is no longer held here: the host or the caller has it. */
  #release(resource) {
    this.#held.splice(this.#held.indexOf(resource), 1);
    return resource;
  }

  async send({ method, url, headers, content }) {
    const request = this.#hold(new OutgoingRequest(fieldsOf(headers)));
    try {
      request.setMethod(methodOf(method));
      request.setScheme({ tag: url.protocol === "https:" ? "HTTPS" : "HTTP" });
      request.setAuthority(url.host);
      request.setPathWithQuery(url.pathname + url.search);
    } catch {
      throw new TypeError(`fetch failed: the host does not accept ${method} ${url}`);
    }
    const body = content === undefined ? undefined : this.#hold(request.body());
    let future;
    try {
      future = this.#hold(handle(this.#release(request), null));
    } catch (error) {
      throw failed(error.payload, url);
    }
    // The answer may begin before the request's body has ended.
    if (body) this.#write(body, content).catch((error) => this.end(error));
    while (true) {
      const answer = future.get();
      if (answer) {
        if (answer.tag !== "ok" || answer.val.tag !== "ok") throw failed(answer.val?.val, url);
        return this.#receive(this.#hold(answer.val.val), url);
      }
      await this.until(future.subscribe());
      this.checkOpen();
    }
  }

  async #write(body, content) {
    const stream = this.#hold(body.write());
    try {
      if (content instanceof Uint8Array) await this.#writeAll(stream, content);
      else for (let piece; (piece = await content.read());) await this.#writeAll(stream, piece);
      stream.flush();
      await this.#room(stream);
    } catch (error) {
      content.cancel?.(error);
      if (!error?.payload) throw error;
      error.payload.val?.[Symbol.dispose]();
      // A server may answer without having read everything: then the answer alone counts.
      return;
    }
    this.#release(stream)[Symbol.dispose]();
    OutgoingBody.finish(this.#release(body), null);
  }

  async #writeAll(stream, bytes) {
    for (let at = 0; at < bytes.length;) {
      const room = await this.#room(stream);
      stream.write(bytes.subarray(at, at + room));
      at += room;
    }
  }

  /** Waits until the stream takes at least one byte; resolves to their number. */
  async #room(stream) {
    while (true) {
      this.checkOpen();
      const room = Number(stream.checkWrite());
      if (room > 0) return room;
      await this.until(stream.subscribe());
    }
  }

  #receive(response, url) {
    const fields = response.headers();
    const headers = fields.entries().map(([name, value]) => [name, String.fromCharCode(...value)]);
    fields[Symbol.dispose]();
    const status = response.status();
    const body = this.#hold(response.consume());
    return { status, headers, source: new Answer(this, this.#hold(body.stream()), url) };
  }
}

/** The body of an answer. */
class Answer extends Source {
  #exchange;
  #stream;
  #url;
  #isDone = false;

  constructor(exchange, stream, url) {
    super();
    this.#exchange = exchange;
    this.#stream = stream;
    this.#url = url;
  }

  async read() {
    while (!this.#isDone) {
      this.#exchange.checkOpen();
      const bytes = this.#readNow();
      if (bytes?.length) return bytes;
      if (bytes) await this.#exchange.until(this.#stream.subscribe());
    }
    return undefined;
  }

  /** The bytes that are there; undefined at the end. */
  #readNow() {
    try {
      const bytes = this.#stream.read(READ_BYTES);
      return bytes instanceof Uint8Array ? bytes : Uint8Array.from(bytes);
    } catch (error) {
      const { tag, val } = error.payload ?? {};
      if (tag === "closed") {
        this.cancel();
        return undefined;
      }
      const why = tag ? failed(val && httpErrorCode(val), this.#url) : error;
      val?.[Symbol.dispose]();
      this.#exchange.end(why);
      throw why;
    }
  }

  cancel() {
    this.#isDone = true;
    this.#exchange.end(new TypeError("the body was cancelled"));
  }
}

function fieldsOf(headers) {
  const entries = [...headers].map(([name, value]) => [
    name,
    Uint8Array.from(value, (character) => character.charCodeAt(0)),
  ]);
  try {
    return Fields.fromList(entries);
  } catch (error) {
    throw new TypeError(`fetch failed: a header is not allowed (${error.payload?.tag})`);
  }
}

function methodOf(method) {
  return METHODS.includes(method) ? { tag: method.toLowerCase() } : { tag: "other", val: method };
}

/** The error of an exchange; `code` is that of `wasi:http`, if there is one. */
function failed(code, url) {
  const text = typeof code?.val === "string" ? code.val : undefined;
  const reason = REASONS[code?.tag] ?? text ?? code?.tag ?? "the exchange was broken off";
  const error = new TypeError(`fetch failed: ${url.host}: ${reason}`);
  if (code) error.code = code.tag;
  return error;
}
