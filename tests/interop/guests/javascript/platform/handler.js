// The web platform on QuickJS, one `op` for each part.

import * as files from "node:fs/promises";
import * as fs from "node:fs";

import { context, http } from "gristmill-sdk";

const text = (bytes) => new TextDecoder().decode(bytes);
const hex = (buffer) =>
  Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");
const later = (ms, value) => new Promise((resolve) => setTimeout(resolve, ms, value));

/** What an error of `work` looks like to an author. */
async function failing(work) {
  try {
    return { value: await work() };
  } catch (error) {
    return { name: error.name, message: error.message, code: error.code };
  }
}

let order = 0;
let config;

/** A promise with a `then` of its own, as clients of web APIs have it. */
class Late extends Promise {
  constructor(value) {
    super((resolve) => resolve(null));
    this.value = value;
  }

  then(...reactions) {
    return later(1, this.value).then(...reactions);
  }
}

/** Objects with fields of their own. */
const INSTANCES = {
  AbortSignal: () => AbortSignal.abort(),
  AggregateError: () => new AggregateError([]),
  Event: () => new Event("grind"),
  RegExp: () => /x/,
  TextDecoderStream: () => new TextDecoderStream(),
  TextEncoderStream: () => new TextEncoderStream(),
};

const OPS = {
  async fetch({ url, init }) {
    const response = await fetch(url, init);
    const body = await response.text();
    const { status, ok, redirected, bodyUsed } = response;
    const headers = [...response.headers];
    return { status, ok, redirected, bodyUsed, url: response.url, headers, body };
  },

  /** Yields each piece of an answer. */
  async *pieces({ url }) {
    const response = await fetch(url);
    for await (const piece of response.body.pipeThrough(new TextDecoderStream())) yield piece;
  },

  /** Sends a body in pieces, and the next piece only after the answer to the one before. */
  async upload({ url, next }) {
    const pieces = ["slow ", "mills"];
    const body = new ReadableStream({
      async pull(controller) {
        const piece = pieces.shift();
        if (!piece) return controller.close();
        controller.enqueue(new TextEncoder().encode(piece));
        await fetch(next);
      },
    });
    return (await fetch(url, { method: "POST", body, duplex: "half" })).text();
  },

  /** Bodies that cannot be sent. */
  async unsendable({ url }) {
    const broken = () => {
      throw new RangeError("no grain");
    };
    const bodies = [
      new Uint8Array(17 << 20),
      new ReadableStream({ pull: broken }),
      new ReadableStream({ start: (controller) => controller.enqueue("text") }),
    ];
    const failures = [];
    for (const body of bodies) {
      failures.push((await failing(() => fetch(url, { method: "POST", body }))).message);
    }
    return failures;
  },

  /** All at once: each is answered only when all have come. */
  together: ({ url, count }) =>
    Promise.all(Array.from({ length: count }, async () => (await fetch(url)).text())),

  simple: ({ url, options }) => http.get(url, options).status,

  timeout: ({ url }) => failing(() => fetch(url, { signal: AbortSignal.timeout(50) })),

  async abort({ url }) {
    const controller = new AbortController();
    const response = await fetch(url, { signal: controller.signal });
    const reader = response.body.getReader();
    const first = text((await reader.read()).value);
    controller.abort();
    return [first, await failing(() => reader.read())];
  },

  failing: ({ url, init }) => failing(() => fetch(url, init)),

  /** Leaves a request open; the next job of the instance must not see it. */
  async leave({ url, next }) {
    fetch(url);
    await fetch(next);
    setTimeout(() => (order += 1), 1);
    return order;
  },

  /** The module keeps the promise of a request; a job may end before the answer. */
  async memo({ url, waits }) {
    config ??= fetch(url).then((response) => response.text());
    return waits ? config : null;
  },

  /** Streams more than the memory of an instance, without a wait for the host. */
  async *flood({ chunks, bytes }) {
    for (let i = 0; i < chunks; i++) yield "x".repeat(bytes);
    return chunks;
  },

  bodies: async ({ url }) => {
    const send = async (body) =>
      JSON.parse(await (await fetch(url, { method: "PUT", body })).text());
    return {
      text: await send("é"),
      form: await send(new URLSearchParams({ a: "1 2" })),
      bytes: await send(Uint8Array.of(65, 66)),
      buffer: await send(Uint8Array.of(67).buffer),
      blob: await send(new Blob(["a", Uint8Array.of(66)], { type: "text/X" })),
      request: await (
        await fetch(new Request(url, { method: "POST", body: "r", headers: { "x-mill": "1" } }))
      ).json(),
    };
  },

  /** A form, which the upstream reads with a parser that is not ours. */
  async form({ url }) {
    const form = new FormData();
    form.append("text", 'é\n"');
    form.append('na"me', new Blob(["bytes"], { type: "text/plain" }), "x\n.txt");
    form.append("file", new File([Uint8Array.of(0, 255)], "y.bin"));
    form.append("gone", "1");
    form.delete("gone");
    form.set("text", form.get("text"));
    const blob = new Blob(["slow", " mills"]).slice(5);
    const local = [await blob.text(), blob.size, form.getAll("text").length, form.has("gone")];
    return [local, await (await fetch(url, { method: "POST", body: form })).json()];
  },

  async response() {
    const made = Response.json({ a: 1 }, { status: 201 });
    const copy = made.clone();
    return [
      made.headers.get("content-type"),
      copy.status,
      await made.json(),
      text(await copy.bytes()),
      (await failing(() => made.text())).message,
      [...new Headers({ b: "2", A: " 1 " })],
      Response.redirect("http://a/b", 303).headers.get("location"),
    ];
  },

  url: () => {
    const url = new URL("../b?x=1&y=2#h", "https://example.com:443/a/c/d");
    url.searchParams.append("z", "é&");
    return [url.href, url.host, URL.canParse("x:"), new URLSearchParams("a=1&a=2").getAll("a")];
  },

  async streams() {
    const upper = new TransformStream({
      transform: (piece, controller) => controller.enqueue(piece.toUpperCase()),
    });
    const written = [];
    const sink = new WritableStream({ write: (piece) => void written.push(piece) });
    await ReadableStream.from(["a", "b"]).pipeThrough(upper).pipeTo(sink);
    const bytes = ReadableStream.from(["é", "\ud83d", "\ude00"]).pipeThrough(
      new TextEncoderStream(),
    );
    return [written, text(Uint8Array.from((await Array.fromAsync(bytes)).flatMap((b) => [...b])))];
  },

  clone: () => {
    const value = {
      map: new Map([[1, new Date(0)]]),
      set: new Set(["x"]),
      bytes: Uint8Array.of(7),
    };
    value.self = value;
    const copy = structuredClone(value);
    return [
      copy !== value && copy.self === copy,
      copy.map.get(1).toISOString(),
      [...copy.set],
      copy.bytes[0],
    ];
  },

  digest: async ({ algorithm }) =>
    hex(await crypto.subtle.digest(algorithm, new TextEncoder().encode("abc"))),

  random: () => failing(() => crypto.getRandomValues(new Uint8Array(65537))),

  promises: async () => [
    await Array.fromAsync([1, later(1, 2)], (n) => n * 10),
    await Array.fromAsync({ length: 2, 0: "a", 1: later(1, "b") }),
    await Promise.try((n) => n + 1, 2),
    (await failing(() => Promise.try(() => null.x))).name,
    await new Late(1),
    await Promise.resolve(0).then(() => new Late(2)),
    await (async () => new Late(3))(),
  ],

  /** A delay that is text fires in its order, not at once. */
  timers: async () => {
    const fired = [];
    setTimeout(() => fired.push("30"), "30");
    setTimeout(() => fired.push("none"), "none");
    setTimeout(() => fired.push("1"), 1);
    const timer = setInterval(() => fired.push("never"), "5");
    clearInterval(timer);
    await later(60);
    return fired;
  },

  events: async () => {
    const heard = [];
    const target = new EventTarget();
    target.addEventListener("grind", (event) => heard.push(event.type), { once: true });
    target.dispatchEvent(new Event("grind"));
    target.dispatchEvent(new Event("grind"));
    const any = AbortSignal.any([AbortSignal.timeout(1), new AbortController().signal]);
    await new Promise((resolve) => any.addEventListener("abort", resolve));
    return [heard, any.reason.name, AbortSignal.abort("why").reason];
  },

  console: () => {
    console.log(
      "%s has %d of %i, %f, %j %o %%%c",
      "mill",
      "3",
      4.7,
      "1.5",
      { a: 1 },
      [1],
      "x",
      "rest",
    );
    console.log(new Map([["a", new Set([1])]]), 10n, undefined, () => 1, [undefined], Symbol("s"));
    const circular = { name: "mill" };
    circular.self = circular;
    console.dir(circular);
    console.table([{ sacks: 2, grain: "rye" }, { sacks: 10 }]);
    console.group("outer");
    console.warn("inner\nlines");
    console.groupEnd();
    console.count();
    console.count();
    console.countReset();
    console.count("x");
    console.assert(true, "fine");
    console.assert(false, "broken %s", "wheel");
    console.time("t");
    console.timeLog("t", "so far");
    console.timeEnd("t");
    console.timeEnd("t");
    console.trace("here");
    console.error(new Error("boo").stack);
  },

  async files({ at }) {
    const file = `${at}/a/b.txt`;
    await files.mkdir(`${at}/a`, { recursive: true });
    await files.writeFile(file, "é");
    await files.appendFile(file, new Uint8Array(100_000).fill(65));
    const { size } = await files.stat(file);
    const start = (await files.readFile(file, "utf8")).slice(0, 3);
    await files.rename(file, `${at}/a/c.txt`);
    const listed = await files.readdir(at, { recursive: true });
    const errors = [
      await failing(() => files.readFile(file)),
      await failing(() => files.readFile("/etc/passwd")),
      await failing(() => files.writeFile(`${at}/a/c.txt`, "", { flag: "wx" })),
      await failing(() => files.readFile(at)),
    ].map(({ code }) => code);
    await files.rm(`${at}/a`, { recursive: true });
    return [size, start, listed.sort(), errors, fs.existsSync(`${at}/a`)];
  },

  /** Adds lines of the same length to a file. */
  async append({ file, mark, count, bytes }) {
    for (let n = 0; n < count; n++) await files.appendFile(file, `${mark.repeat(bytes)}\n`);
  },

  read: async ({ file }) => (await files.readFile(file, "utf8")).split("\n"),

  /** Errors at the border to the host, of which none may end the instance. */
  borders: async () => {
    const attempts = [
      () => context().log("fatal", "x"),
      () => http.get("http://a/", { timeout: NaN }),
      () => http.post("http://a/", { body: { a: 1 } }),
      () => context().emit(Symbol("x")),
      () => setTimeout("code"),
      () => fetch("http://a b/"),
      () => fetch("http://a/", { headers: { "a b": "c" } }),
      () => fetch("http://a/", { method: "GET", body: "x" }),
      () => new TextDecoder("latin1"),
    ];
    const names = [];
    for (const attempt of attempts) names.push((await failing(attempt)).name);
    return names;
  },

  throwing: ({ what }) => {
    if (what === "symbol") throw Symbol("s");
    if (what === "null") throw null;
    if (what === "number") throw Object.assign(new Error("x"), { message: 5 });
    if (what === "Buffer") return Buffer.from("x");
    const error = Object.assign(new Error("[\n{}\n]"), { name: "ZodError" });
    error.issues = [
      { path: ["items", 2, "name"], message: "expected string" },
      { path: [], message: "too few" },
      ...Array.from({ length: 20 }, () => ({ path: [{ key: "v" }], message: "no" })),
    ];
    throw error;
  },

  /** The names of all globals; for each of `roots`, its own members and those of `wanted` that it lacks. */
  names: ({ wanted }) => ({
    globals: Object.getOwnPropertyNames(globalThis),
    modules: { "node:fs": Object.keys(fs), "node:fs/promises": Object.keys(files) },
    roots: Object.fromEntries(
      Object.entries(wanted).map(([root, members]) => {
        const value = globalThis[root];
        const places = [value, INSTANCES[root]?.(), value?.prototype]
          .filter((place) => place !== undefined && place !== null)
          .map(Object);
        const own = places.flatMap((place) => Object.getOwnPropertyNames(place));
        const missing = members.filter((name) => !places.some((place) => name in place));
        return [root, { isThere: root in globalThis, own, missing }];
      }),
    ),
  }),

  seed: () => Math.random(),
};

// Drawn while the component is built: jobs must not go on from there.
export const drawn = Math.random();

export default async function* handler(job) {
  const { op } = job.input;
  if (["pieces", "flood"].includes(op)) return yield* OPS[op](job.input);
  return OPS[op](job.input);
}
