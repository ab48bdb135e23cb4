// `fetch`, over `wasi:http`, with `Headers`, `Request` and `Response`.
//
// Each request, also one that follows a redirect, is checked by the host against `allowedHosts`.

import { FromStream, REDIRECT_STATUS, Request, Response, describeResponse, take } from "./body.js";
import { Headers } from "./headers.js";
import { exchange } from "./wasi-http.js";

/** Redirects that one call follows, as everywhere. */
const REDIRECTS_MAX = 20;

/** Headers that only the server may see that the author meant. */
const SECRET_HEADERS = ["authorization", "cookie", "proxy-authorization"];

/** Headers that describe a body. */
const BODY_HEADERS = ["content-encoding", "content-language", "content-length", "content-type"];

async function fetch(input, init) {
  // The call is no longer on the stack when the host answers.
  const { stack } = new Error();
  try {
    return await send(input, init);
  } catch (error) {
    if (error instanceof TypeError) error.stack = stack;
    throw error;
  }
}

async function send(input, init) {
  const request = new Request(input, init);
  const { signal, redirect } = request;
  const headers = new Headers(request.headers);
  let url = new URL(request.url);
  let method = request.method;
  let content = take(request);
  for (let redirects = 0; ; redirects += 1) {
    if (url.protocol !== "http:" && url.protocol !== "https:") {
      throw new TypeError(`fetch failed: ${url.protocol} is not http: or https:`);
    }
    const {
      status,
      headers: answered,
      source,
    } = await exchange(
      { method, url, headers: withLength(headers, content, method), content: asContent(content) },
      signal,
    );
    const location = answered.find(([name]) => name.toLowerCase() === "location")?.[1];
    const next = REDIRECT_STATUS.includes(status) && location;
    if (!next || redirect === "manual") {
      return respond(method, url, status, answered, source, redirects > 0);
    }
    source.cancel();
    if (redirect === "error") throw new TypeError(`fetch failed: ${url.host} redirects`);
    if (redirects === REDIRECTS_MAX) {
      throw new TypeError(`fetch failed: more than ${REDIRECTS_MAX} redirects`);
    }
    const before = url;
    url = redirected(location, before);
    if (url.origin !== before.origin) for (const name of SECRET_HEADERS) headers.delete(name);
    if (changesMethod(status, method)) {
      method = "GET";
      content = undefined;
      for (const name of BODY_HEADERS) headers.delete(name);
    } else if (content !== undefined && !(content instanceof Uint8Array)) {
      throw new TypeError("fetch failed: a redirect, but the body is a stream, which is sent once");
    }
  }
}

function withLength(headers, content, method) {
  const all = new Headers(headers);
  const bytes = content instanceof Uint8Array ? content.length : content === undefined ? 0 : -1;
  const hasLength = bytes > 0 || (bytes === 0 && (method === "POST" || method === "PUT"));
  if (hasLength) all.set("content-length", bytes);
  if (!all.has("accept")) all.set("accept", "*/*");
  return all;
}

function asContent(content) {
  return content instanceof ReadableStream ? new FromStream(content) : content;
}

function respond(method, url, status, headers, source, redirected) {
  const isEmpty = method === "HEAD" || [204, 205, 304].includes(status);
  if (isEmpty) source.cancel();
  const response = new Response(isEmpty ? null : source, {
    status: Math.max(status, 200),
    headers,
  });
  describeResponse(response, { url: url.href.replace(/#.*$/, ""), redirected, type: "basic" });
  return response;
}

function redirected(location, base) {
  try {
    return new URL(location, base);
  } catch {
    throw new TypeError(`fetch failed: a redirect to ${JSON.stringify(location)}, which is no URL`);
  }
}

function changesMethod(status, method) {
  return (
    ((status === 301 || status === 302) && method === "POST") ||
    (status === 303 && method !== "GET" && method !== "HEAD")
  );
}

Object.assign(globalThis, { Headers, Request, Response, fetch });
