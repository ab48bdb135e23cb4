// What one exchange of HTTP holds of the host, and its bodies in pieces: of a request that this
// handler sends, or of one that it answers. Each wait is in the event loop, not in the host.

import { Fields, OutgoingBody, httpErrorCode } from "gwsi:http/types@0.2.0";

import { Source } from "./body.js";
import { atEnd, stopWaiting, whenReady } from "./event-loop.js";

/** Bytes of one read of a body. */
const READ_BYTES = 65536;

/** The host wants children to be dropped before parents. */
export class Exchange {
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

  hold(resource) {
    this.#held.push(resource);
    return resource;
  }

  /** The resource is no longer held here: the host or the caller has it. */
  release(resource) {
    this.#held.splice(this.#held.indexOf(resource), 1);
    return resource;
  }

  /**
   * Writes the content of a body, and its end. The other side may leave before it has read
   * everything, which is no error; resolves to whether it has.
   */
  async write(body, content) {
    const stream = this.hold(body.write());
    try {
      if (content instanceof Uint8Array) await this.#writeAll(stream, content);
      else for (let piece; (piece = await content.read());) await this.#writeAll(stream, piece);
      stream.flush();
      await this.#room(stream);
    } catch (error) {
      content.cancel?.(error);
      if (!error?.payload) throw error;
      error.payload.val?.[Symbol.dispose]();
      return false;
    }
    this.release(stream)[Symbol.dispose]();
    OutgoingBody.finish(this.release(body), null);
    return true;
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
}

/** A body that comes from the host; `failed` makes the error of a code of `wasi:http`. */
export class Incoming extends Source {
  #exchange;
  #stream;
  #failed;
  #isDone = false;

  constructor(exchange, stream, failed) {
    super();
    this.#exchange = exchange;
    this.#stream = stream;
    this.#failed = failed;
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
      const why = tag ? this.#failed(val && httpErrorCode(val)) : error;
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

/** The headers for the host. */
export function fieldsOf(headers) {
  const entries = [...headers].map(([name, value]) => [
    name,
    Uint8Array.from(value, (character) => character.charCodeAt(0)),
  ]);
  try {
    return Fields.fromList(entries);
  } catch (error) {
    throw new TypeError(`a header is not allowed (${error.payload?.tag})`);
  }
}

/** The headers of the host, as pairs of texts. */
export function entriesOf(fields) {
  const entries = fields.entries().map(([name, value]) => [name, String.fromCharCode(...value)]);
  fields[Symbol.dispose]();
  return entries;
}
