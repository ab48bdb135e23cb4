// Answers a request of `wasi:http/incoming-handler` by a function from `Request` to `Response`.

import { OutgoingResponse, ResponseOutparam } from "gwsi:http/types@0.2.0";

import { FromStream, Request, Response, take } from "./body.js";
import { Exchange, Incoming, entriesOf, fieldsOf } from "./wasi-streams.js";

/** Methods whose requests have no body, by the Fetch standard. */
const WITHOUT_BODY = ["GET", "HEAD"];

/**
 * Answers `request` through `outparam`. `respond` gets a `Request`; it resolves to a `Response`, and
 * never rejects. Resolves when the whole answer is written, or the client has left.
 *
 * `broken` gets the error of a body that fails. The body is left without an end then: the host breaks
 * the connection, so that half an answer does not look complete.
 */
export async function answer(request, outparam, respond, broken) {
  const open = new Exchange();
  open.hold(outparam);
  const response = await respond(requestOf(request));
  const content = contentOf(take(response));
  const headers = entriesOfResponse(response, content);
  const outgoing = new OutgoingResponse(fieldsOf(headers));
  outgoing.setStatusCode(response.status);
  const body = outgoing.body();
  ResponseOutparam.set(open.release(outparam), { tag: "ok", val: outgoing });
  try {
    await open.write(open.hold(body), content);
  } catch (error) {
    broken(error);
    open.end(error);
  }
}

/** The request of the Fetch standard. Its body comes in pieces, as it is read. */
function requestOf(request) {
  // The body outlives none of the answer's resources, and ends before them.
  const open = new Exchange();
  open.hold(request);
  const { tag, val } = request.method();
  const method = tag === "other" ? val : tag.toUpperCase();
  const scheme = request.scheme()?.tag === "HTTPS" ? "https" : "http";
  const url = `${scheme}://${request.authority() ?? "localhost"}${request.pathWithQuery() ?? "/"}`;
  const headers = entriesOf(request.headers());
  if (WITHOUT_BODY.includes(method)) {
    open.end(new TypeError("the request has no body"));
    return new Request(url, { method, headers });
  }
  const stream = open.hold(open.hold(request.consume()).stream());
  const failed = (code) => new TypeError(`the body of the request: ${code?.tag ?? "it broke off"}`);
  return new Request(url, { method, headers, body: new Incoming(open, stream, failed) });
}

function contentOf(content) {
  if (content === undefined) return new Uint8Array();
  return content instanceof ReadableStream ? new FromStream(content) : content;
}

/** The headers of an answer; a body that is there as a whole has its length. */
function entriesOfResponse(response, content) {
  const headers = [...response.headers];
  const isWhole = content instanceof Uint8Array && content.length > 0;
  if (isWhole && !response.headers.has("content-length")) {
    headers.push(["content-length", String(content.length)]);
  }
  return headers;
}
