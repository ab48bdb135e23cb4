/**
 * The globals of a handler beside those of ECMAScript, exactly as QuickJS has them in a component.
 * The `tsconfig.json` of a project names this file instead of `lib: ["dom"]` and `@types/node`, which
 * promise much more. A test compares it with a real component.
 */

// Timers and the event loop.

declare function setTimeout(
  callback: (...args: any[]) => void,
  delay?: number | string,
  ...args: any[]
): number;
declare function setInterval(
  callback: (...args: any[]) => void,
  delay?: number | string,
  ...args: any[]
): number;
declare function clearTimeout(timer: number | undefined): void;
declare function clearInterval(timer: number | undefined): void;
declare function queueMicrotask(callback: () => void): void;

/** Milliseconds, with fractions. */
declare const performance: { now(): number; readonly timeOrigin: number };

/** The endpoint's environment; it is empty while the component is built. */
declare const process: { env: Record<string, string | undefined> };

// Logging.

/** Writes to the job's log. */
declare const console: {
  assert(condition?: unknown, ...values: unknown[]): void;
  /** Does nothing. */
  clear(): void;
  count(label?: string): void;
  countReset(label?: string): void;
  debug(...values: unknown[]): void;
  dir(value: unknown): void;
  dirxml(...values: unknown[]): void;
  error(...values: unknown[]): void;
  group(...values: unknown[]): void;
  groupCollapsed(...values: unknown[]): void;
  groupEnd(): void;
  info(...values: unknown[]): void;
  log(...values: unknown[]): void;
  table(rows: unknown, columns?: string[]): void;
  time(label?: string): void;
  timeEnd(label?: string): void;
  timeLog(label?: string, ...values: unknown[]): void;
  trace(...values: unknown[]): void;
  warn(...values: unknown[]): void;
};

// Text and bytes.

declare function atob(data: string): string;
declare function btoa(data: string): string;

/** UTF-8. */
declare class TextEncoder {
  get encoding(): "utf-8";
  encode(text?: string): Uint8Array<ArrayBuffer>;
  encodeInto(text: string, target: Uint8Array): { read: number; written: number };
}

/** UTF-8 alone; any other label is a `RangeError`. */
declare class TextDecoder {
  constructor(label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean });
  get encoding(): "utf-8";
  get fatal(): boolean;
  get ignoreBOM(): boolean;
  decode(input?: BufferSource, options?: { stream?: boolean }): string;
}

type BufferSource = ArrayBuffer | ArrayBufferView;

/** Copies a value; a function or a symbol in it is a `DataCloneError`. */
declare function structuredClone<T>(value: T, options?: { transfer?: ArrayBuffer[] }): T;

// Random numbers and digests.

declare const crypto: {
  /** At most 65536 bytes. */
  getRandomValues<T extends Exclude<ArrayBufferView, DataView | Float32Array | Float64Array>>(
    array: T,
  ): T;
  randomUUID(): `${string}-${string}-${string}-${string}-${string}`;
  readonly subtle: {
    digest(algorithm: Digest | { name: Digest }, data: BufferSource): Promise<ArrayBuffer>;
  };
};
type Digest = "SHA-1" | "SHA-256" | "SHA-384" | "SHA-512";

// Errors and events.

declare class DOMException extends Error {
  constructor(message?: string, name?: string);
  readonly code: number;
  static readonly INDEX_SIZE_ERR: 1;
  static readonly ABORT_ERR: 20;
  static readonly TIMEOUT_ERR: 23;
  static readonly DATA_CLONE_ERR: 25;
}

/** There is no tree of targets: events do not bubble. */
declare class Event {
  constructor(type: string, options?: { cancelable?: boolean });
  readonly type: string;
  readonly cancelable: boolean;
  readonly timeStamp: number;
  readonly target: EventTarget | null;
  readonly currentTarget: EventTarget | null;
  get defaultPrevented(): boolean;
  preventDefault(): void;
  stopPropagation(): void;
  stopImmediatePropagation(): void;
}

type EventListener = ((event: Event) => void) | { handleEvent(event: Event): void };

declare class EventTarget {
  addEventListener(
    type: string,
    listener: EventListener | null,
    options?: boolean | { once?: boolean; signal?: AbortSignal },
  ): void;
  removeEventListener(type: string, listener: EventListener | null): void;
  dispatchEvent(event: Event): boolean;
}

declare class AbortController {
  get signal(): AbortSignal;
  abort(reason?: unknown): void;
}

declare class AbortSignal extends EventTarget {
  private constructor();
  get aborted(): boolean;
  get reason(): any;
  onabort: ((event: Event) => void) | null;
  throwIfAborted(): void;
  static abort(reason?: unknown): AbortSignal;
  static any(signals: Iterable<AbortSignal>): AbortSignal;
  static timeout(milliseconds: number): AbortSignal;
}

// URLs.

declare class URL {
  constructor(url: string | URL, base?: string | URL);
  hash: string;
  host: string;
  hostname: string;
  href: string;
  readonly origin: string;
  password: string;
  pathname: string;
  port: string;
  protocol: string;
  search: string;
  readonly searchParams: URLSearchParams;
  username: string;
  toJSON(): string;
  toString(): string;
  static canParse(url: string | URL, base?: string | URL): boolean;
  static parse(url: string | URL, base?: string | URL): URL | null;
}

declare class URLSearchParams {
  constructor(init?: string | Iterable<[string, string]> | Record<string, string>);
  readonly size: number;
  append(name: string, value: string): void;
  delete(name: string, value?: string): void;
  entries(): IterableIterator<[string, string]>;
  forEach(
    callback: (value: string, name: string, params: URLSearchParams) => void,
    thisArg?: unknown,
  ): void;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string, value?: string): boolean;
  keys(): IterableIterator<string>;
  set(name: string, value: string): void;
  sort(): void;
  toString(): string;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}

// Streams.

type MaybePromise<T> = T | PromiseLike<T>;

interface QueuingStrategy<T = any> {
  highWaterMark?: number;
  size?(piece: T): number;
}

declare class CountQueuingStrategy {
  constructor(init: { highWaterMark: number });
  readonly highWaterMark: number;
  readonly size: (piece?: any) => 1;
}

declare class ByteLengthQueuingStrategy {
  constructor(init: { highWaterMark: number });
  readonly highWaterMark: number;
  readonly size: (piece: ArrayBufferView) => number;
}

interface ReadableStreamDefaultController<T = any> {
  readonly desiredSize: number | null;
  close(): void;
  enqueue(piece: T): void;
  error(reason?: unknown): void;
}

interface ReadableByteStreamController {
  readonly byobRequest: {
    readonly view: ArrayBufferView | null;
    respond(bytesWritten: number): void;
    respondWithNewView(view: ArrayBufferView): void;
  } | null;
  readonly desiredSize: number | null;
  close(): void;
  enqueue(piece: ArrayBufferView): void;
  error(reason?: unknown): void;
}

interface UnderlyingSource<T = any> {
  type?: undefined;
  start?(controller: ReadableStreamDefaultController<T>): unknown;
  pull?(controller: ReadableStreamDefaultController<T>): MaybePromise<void>;
  cancel?(reason?: unknown): MaybePromise<void>;
}

interface UnderlyingByteSource {
  type: "bytes";
  autoAllocateChunkSize?: number;
  start?(controller: ReadableByteStreamController): unknown;
  pull?(controller: ReadableByteStreamController): MaybePromise<void>;
  cancel?(reason?: unknown): MaybePromise<void>;
}

type ReadResult<T> = { done: false; value: T } | { done: true; value: T | undefined };

interface ReadableStreamDefaultReader<T = any> {
  readonly closed: Promise<void>;
  cancel(reason?: unknown): Promise<void>;
  read(): Promise<ReadResult<T>>;
  releaseLock(): void;
}

interface ReadableStreamBYOBReader {
  readonly closed: Promise<void>;
  cancel(reason?: unknown): Promise<void>;
  read<V extends ArrayBufferView>(view: V, options?: { min?: number }): Promise<ReadResult<V>>;
  releaseLock(): void;
}

interface PipeOptions {
  preventAbort?: boolean;
  preventCancel?: boolean;
  preventClose?: boolean;
  signal?: AbortSignal;
}

declare class ReadableStream<T = any> {
  constructor(source?: UnderlyingSource<T>, strategy?: QueuingStrategy<T>);
  constructor(source: UnderlyingByteSource, strategy?: { highWaterMark?: number });
  get locked(): boolean;
  cancel(reason?: unknown): Promise<void>;
  getReader(options: { mode: "byob" }): ReadableStreamBYOBReader;
  getReader(options?: { mode?: undefined }): ReadableStreamDefaultReader<T>;
  pipeThrough<O>(
    transform: { readable: ReadableStream<O>; writable: WritableStream<T> },
    options?: PipeOptions,
  ): ReadableStream<O>;
  pipeTo(target: WritableStream<T>, options?: PipeOptions): Promise<void>;
  tee(): [ReadableStream<T>, ReadableStream<T>];
  values(options?: { preventCancel?: boolean }): AsyncIterableIterator<T>;
  [Symbol.asyncIterator](options?: { preventCancel?: boolean }): AsyncIterableIterator<T>;
  static from<T>(items: Iterable<T | PromiseLike<T>> | AsyncIterable<T>): ReadableStream<T>;
}

interface WritableStreamDefaultController {
  readonly signal: AbortSignal;
  error(reason?: unknown): void;
}

interface UnderlyingSink<T = any> {
  start?(controller: WritableStreamDefaultController): unknown;
  write?(piece: T, controller: WritableStreamDefaultController): MaybePromise<void>;
  close?(): MaybePromise<void>;
  abort?(reason?: unknown): MaybePromise<void>;
}

interface WritableStreamDefaultWriter<T = any> {
  readonly closed: Promise<void>;
  readonly desiredSize: number | null;
  readonly ready: Promise<void>;
  abort(reason?: unknown): Promise<void>;
  close(): Promise<void>;
  releaseLock(): void;
  write(piece?: T): Promise<void>;
}

declare class WritableStream<T = any> {
  constructor(sink?: UnderlyingSink<T>, strategy?: QueuingStrategy<T>);
  get locked(): boolean;
  abort(reason?: unknown): Promise<void>;
  close(): Promise<void>;
  getWriter(): WritableStreamDefaultWriter<T>;
}

interface TransformStreamDefaultController<O = any> {
  readonly desiredSize: number | null;
  enqueue(piece: O): void;
  error(reason?: unknown): void;
  terminate(): void;
}

interface Transformer<I = any, O = any> {
  start?(controller: TransformStreamDefaultController<O>): unknown;
  transform?(piece: I, controller: TransformStreamDefaultController<O>): unknown;
  flush?(controller: TransformStreamDefaultController<O>): unknown;
  cancel?(reason?: unknown): unknown;
}

declare class TransformStream<I = any, O = any> {
  constructor(
    transformer?: Transformer<I, O>,
    writable?: QueuingStrategy<I>,
    readable?: QueuingStrategy<O>,
  );
  get readable(): ReadableStream<O>;
  get writable(): WritableStream<I>;
}

declare class TextDecoderStream {
  constructor(label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean });
  readonly readable: ReadableStream<string>;
  readonly writable: WritableStream<BufferSource>;
}

declare class TextEncoderStream {
  readonly readable: ReadableStream<Uint8Array<ArrayBuffer>>;
  readonly writable: WritableStream<string>;
}

// Forms.

type BlobPart = string | BufferSource | Blob;

declare class Blob {
  constructor(parts?: Iterable<BlobPart>, options?: { type?: string });
  get size(): number;
  get type(): string;
  arrayBuffer(): Promise<ArrayBuffer>;
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  slice(start?: number, end?: number, type?: string): Blob;
  stream(): ReadableStream<Uint8Array<ArrayBuffer>>;
  text(): Promise<string>;
}

declare class File extends Blob {
  constructor(
    parts: Iterable<BlobPart>,
    name: string,
    options?: { type?: string; lastModified?: number },
  );
  get lastModified(): number;
  get name(): string;
}

declare class FormData {
  append(name: string, value: string | Blob, filename?: string): void;
  delete(name: string): void;
  entries(): IterableIterator<[string, string | File]>;
  forEach(
    callback: (value: string | File, name: string, form: FormData) => void,
    thisArg?: unknown,
  ): void;
  get(name: string): string | File | null;
  getAll(name: string): (string | File)[];
  has(name: string): boolean;
  keys(): IterableIterator<string>;
  set(name: string, value: string | Blob, filename?: string): void;
  values(): IterableIterator<string | File>;
  [Symbol.iterator](): IterableIterator<[string, string | File]>;
}

// HTTP. There is no `blob()` and no `formData()` of a body.

type HeadersInit = Headers | Iterable<[string, string]> | Record<string, string>;
type BodyInit =
  string | BufferSource | URLSearchParams | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

declare class Headers {
  constructor(init?: HeadersInit);
  append(name: string, value: string): void;
  delete(name: string): void;
  entries(): IterableIterator<[string, string]>;
  forEach(
    callback: (value: string, name: string, headers: Headers) => void,
    thisArg?: unknown,
  ): void;
  get(name: string): string | null;
  getSetCookie(): string[];
  has(name: string): boolean;
  keys(): IterableIterator<string>;
  set(name: string, value: string): void;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}

interface RequestInit {
  body?: BodyInit | null;
  /** Needed by other platforms for a body that is a stream; ignored here. */
  duplex?: "half";
  headers?: HeadersInit;
  method?: string;
  /** Each redirect is checked against `allowedHosts`. */
  redirect?: "follow" | "error" | "manual";
  signal?: AbortSignal | null;
}

declare class Request {
  constructor(input: string | URL | Request, init?: RequestInit);
  get body(): ReadableStream<Uint8Array<ArrayBuffer>> | null;
  get bodyUsed(): boolean;
  get headers(): Headers;
  get method(): string;
  get redirect(): "follow" | "error" | "manual";
  get signal(): AbortSignal;
  get url(): string;
  arrayBuffer(): Promise<ArrayBuffer>;
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  clone(): Request;
  json(): Promise<any>;
  text(): Promise<string>;
}

interface ResponseInit {
  headers?: HeadersInit;
  status?: number;
  statusText?: string;
}

declare class Response {
  constructor(body?: BodyInit | null, init?: ResponseInit);
  get body(): ReadableStream<Uint8Array<ArrayBuffer>> | null;
  get bodyUsed(): boolean;
  get headers(): Headers;
  get ok(): boolean;
  get redirected(): boolean;
  get status(): number;
  get statusText(): string;
  get type(): "basic" | "default";
  get url(): string;
  arrayBuffer(): Promise<ArrayBuffer>;
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  clone(): Response;
  json(): Promise<any>;
  text(): Promise<string>;
  static json(data: unknown, init?: ResponseInit): Response;
  static redirect(url: string | URL, status?: 301 | 302 | 303 | 307 | 308): Response;
}

/** Sends a request to a host of the endpoint's `allowedHosts`. */
declare function fetch(input: string | URL | Request, init?: RequestInit): Promise<Response>;

// Files of a volume and of /tmp. Each call waits for the host, also those that return a promise.

declare module "node:fs/promises" {
  export function access(path: string | URL): Promise<void>;
  export function appendFile(
    path: string | URL,
    data: string | ArrayBufferView,
    options?: "utf8" | "utf-8" | { encoding?: "utf8" | "utf-8"; flush?: boolean },
  ): Promise<void>;
  export function copyFile(from: string | URL, to: string | URL): Promise<void>;
  export function mkdir(
    path: string | URL,
    options?: { recursive?: boolean },
  ): Promise<string | undefined>;
  export function readFile(
    path: string | URL,
    options: "utf8" | "utf-8" | { encoding: "utf8" | "utf-8" },
  ): Promise<string>;
  export function readFile(path: string | URL): Promise<Uint8Array<ArrayBuffer>>;
  export function readdir(
    path: string | URL,
    options: { withFileTypes: true; recursive?: boolean },
  ): Promise<import("node:fs").Dirent[]>;
  export function readdir(
    path: string | URL,
    options?: { withFileTypes?: false; recursive?: boolean },
  ): Promise<string[]>;
  export function rename(from: string | URL, to: string | URL): Promise<void>;
  export function rm(
    path: string | URL,
    options?: { recursive?: boolean; force?: boolean },
  ): Promise<void>;
  export function rmdir(path: string | URL): Promise<void>;
  export function stat(path: string | URL): Promise<import("node:fs").Stats>;
  export function unlink(path: string | URL): Promise<void>;
  export function writeFile(
    path: string | URL,
    data: string | ArrayBufferView,
    options?:
      | "utf8"
      | "utf-8"
      | { encoding?: "utf8" | "utf-8"; flag?: "w" | "wx" | "a" | "ax"; flush?: boolean },
  ): Promise<void>;
  const all: Omit<typeof import("node:fs/promises"), "default">;
  export default all;
}

declare module "node:fs" {
  export interface Dirent {
    readonly name: string;
    readonly parentPath: string;
    isFile(): boolean;
    isDirectory(): boolean;
    isSymbolicLink(): boolean;
  }
  export interface Stats {
    readonly size: number;
    readonly atimeMs: number;
    readonly mtimeMs: number;
    readonly atime: Date;
    readonly mtime: Date;
    isFile(): boolean;
    isDirectory(): boolean;
    isSymbolicLink(): boolean;
  }
  export function accessSync(path: string | URL): void;
  export function appendFileSync(
    path: string | URL,
    data: string | ArrayBufferView,
    options?: "utf8" | "utf-8" | { encoding?: "utf8" | "utf-8"; flush?: boolean },
  ): void;
  export function copyFileSync(from: string | URL, to: string | URL): void;
  export function existsSync(path: string | URL): boolean;
  export function mkdirSync(
    path: string | URL,
    options?: { recursive?: boolean },
  ): string | undefined;
  export function readFileSync(
    path: string | URL,
    options: "utf8" | "utf-8" | { encoding: "utf8" | "utf-8" },
  ): string;
  export function readFileSync(path: string | URL): Uint8Array<ArrayBuffer>;
  export function readdirSync(
    path: string | URL,
    options: { withFileTypes: true; recursive?: boolean },
  ): Dirent[];
  export function readdirSync(
    path: string | URL,
    options?: { withFileTypes?: false; recursive?: boolean },
  ): string[];
  export function renameSync(from: string | URL, to: string | URL): void;
  export function rmSync(
    path: string | URL,
    options?: { recursive?: boolean; force?: boolean },
  ): void;
  export function rmdirSync(path: string | URL): void;
  export function statSync(path: string | URL): Stats;
  export function unlinkSync(path: string | URL): void;
  export function writeFileSync(
    path: string | URL,
    data: string | ArrayBufferView,
    options?:
      | "utf8"
      | "utf-8"
      | { encoding?: "utf8" | "utf-8"; flag?: "w" | "wx" | "a" | "ax"; flush?: boolean },
  ): void;
  export const promises: typeof import("node:fs/promises").default;
  const all: Omit<typeof import("node:fs"), "default">;
  export default all;
}
