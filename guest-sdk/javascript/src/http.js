// One-shot HTTP. A handler can call only the hosts in its endpoint's `allowedHosts`; redirects are
// returned, not followed. A status such as 404 is an answer, not an error.

import { context } from "./context.js";

/** An answer. */
export class Response {
  constructor(status, body, headers) {
    this.status = status;
    this.body = bytes(body);
    this.headers = pairs(headers);
  }

  /** The first header of that name, in any case. */
  header(name) {
    return this.headers.find(([key]) => key.toLowerCase() === name.toLowerCase())?.[1];
  }

  text() {
    return new TextDecoder("utf-8", { fatal: true }).decode(this.body);
  }

  json() {
    return JSON.parse(this.text());
  }
}

/** Why there is no answer. */
export class HttpError extends Error {
  constructor(kind, what, limitBytes) {
    super(
      {
        denied: `HTTP request is not allowed: ${what}`,
        "invalid-request": `HTTP request is malformed: ${what}`,
        timeout: "HTTP request timed out",
        "too-large": `HTTP response exceeds the limit: ${limitBytes} bytes`,
        connect: `HTTP connection failed: ${what}`,
        other: `HTTP request failed: ${what}`,
      }[kind],
    );
    this.name = "HttpError";
    this.kind = kind;
    this.limitBytes = limitBytes;
  }
}

/** Sends one request for the running job and waits for the whole answer. */
export function request(method, url, { headers, body, json, timeout } = {}) {
  headers = pairs(headers);
  // Of these options only `json` has null as a value.
  if (json !== undefined) {
    body = JSON.stringify(json);
    if (!headers.some(([name]) => name.toLowerCase() === "content-type")) {
      headers.push(["content-type", "application/json"]);
    }
  }
  return context().httpSend({ method, url, headers, body: bytes(body), timeout });
}

export const get = (url, options) => request("GET", url, options);
export const post = (url, options) => request("POST", url, options);

/** The bytes of a body, which may be absent. */
function bytes(body) {
  const content = body ?? "";
  return typeof content === "string" ? new TextEncoder().encode(content) : content;
}

/** The pairs of a list, a `Headers`, a `Map` or a plain object; none if it is absent. */
function pairs(headers) {
  headers ??= [];
  const list = headers[Symbol.iterator] ? [...headers] : Object.entries(headers);
  return list.map(([name, value]) => [String(name), String(value)]);
}
