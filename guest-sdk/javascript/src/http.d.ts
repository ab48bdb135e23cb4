/**
 * One-shot HTTP. A handler can call only the hosts in its endpoint's `allowedHosts`; redirects are
 * returned, not followed. A status such as 404 is an answer, not an error.
 */

/** A plain object, or a list of pairs, a `Map` or the global `Headers`. */
export type Headers = Record<string, string> | Iterable<[name: string, value: string]>;

/** Null is the same as no option, except for `json`. */
export interface Options {
  headers?: Headers | null;
  body?: string | Uint8Array | null;
  /** Replaces the body, and sets `content-type`, unless `headers` has one. */
  json?: unknown;
  /**
   * The longest wait for the whole answer, in milliseconds. It is never longer than the
   * time that remains of the attempt, which is also the default.
   */
  timeout?: number | null;
}

export interface Request {
  method: string;
  url: string;
  headers?: [name: string, value: string][];
  body?: Uint8Array;
  timeout?: number | null;
}

export class Response {
  constructor(status: number, body?: string | Uint8Array | null, headers?: Headers | null);
  readonly status: number;
  readonly headers: [name: string, value: string][];
  readonly body: Uint8Array;
  /** The first header of that name, in any case. */
  header(name: string): string | undefined;
  /** The body as UTF-8; a `TypeError` if it is not UTF-8. */
  text(): string;
  /** The body as JSON. */
  json(): any;
}

/**
 * Why there is no answer. `denied`: the endpoint does not allow this host, or its address is not
 * public. `invalid-request`: the method, URL or a header is malformed. `too-large`: the body is
 * larger than `limitBytes`. `connect`: no connection could be made.
 */
export class HttpError extends Error {
  constructor(kind: HttpError["kind"], what?: string, limitBytes?: number);
  readonly kind: "denied" | "invalid-request" | "timeout" | "too-large" | "connect" | "other";
  readonly limitBytes?: number;
}

/** Sends one request for the running job and waits for the whole answer. Throws {@link HttpError}. */
export function request(method: string, url: string, options?: Options): Response;
export function get(url: string, options?: Omit<Options, "body" | "json">): Response;
export function post(url: string, options?: Options): Response;
