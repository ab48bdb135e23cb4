// One HTTP request through `wasi:http`. Any number of them are under way at once.

import { handle } from "gwsi:http/outgoing-handler@0.2.0";
import { OutgoingRequest } from "gwsi:http/types@0.2.0";

import { Exchange, Incoming, entriesOf, fieldsOf } from "./wasi-streams.js";

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
  const open = new Outgoing();
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

class Outgoing extends Exchange {
  async send({ method, url, headers, content }) {
    const request = this.hold(new OutgoingRequest(fieldsOf(headers)));
    try {
      request.setMethod(methodOf(method));
      request.setScheme({ tag: url.protocol === "https:" ? "HTTPS" : "HTTP" });
      request.setAuthority(url.host);
      request.setPathWithQuery(url.pathname + url.search);
    } catch {
      throw new TypeError(`fetch failed: the host does not accept ${method} ${url}`);
    }
    const body = content === undefined ? undefined : this.hold(request.body());
    let future;
    try {
      future = this.hold(handle(this.release(request), null));
    } catch (error) {
      throw failed(error.payload, url);
    }
    // The answer may begin before the request's body has ended.
    // A server may leave the rest of it unread: then the answer alone counts.
    if (body) this.write(body, content).catch((error) => this.end(error));
    while (true) {
      const answer = future.get();
      if (answer) {
        if (answer.tag !== "ok" || answer.val.tag !== "ok") throw failed(answer.val?.val, url);
        return this.#receive(this.hold(answer.val.val), url);
      }
      await this.until(future.subscribe());
      this.checkOpen();
    }
  }

  #receive(response, url) {
    const headers = entriesOf(response.headers());
    const status = response.status();
    const body = this.hold(response.consume());
    return { status, headers, source: new Incoming(this, this.hold(body.stream()), (code) => failed(code, url)) };
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
