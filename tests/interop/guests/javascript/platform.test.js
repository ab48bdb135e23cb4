// The web platform on QuickJS: jobs of a real component in a real host.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";

import { GRISTMILL, GRISTMILL_BUILT, deploy, job, listen, logs, run } from "./host.js";

const ENDPOINT = "javascript-platform-test";

let upstream;
/** What the upstream does for a path, beside its echo. */
let routes = {};

before(async () => {
  upstream = await listen(
    createServer(async (request, response) => {
      const route = routes[request.url.split("?")[0]];
      if (route) return route(request, response);
      const pieces = [];
      try {
        for await (const piece of request) pieces.push(piece);
      } catch {
        return; // the handler did not send all of it
      }
      response.setHeader("content-type", "application/json");
      response.setHeader("x-mill", ["stone", "water"]);
      response.setHeader("set-cookie", ["a=1", "b=2"]);
      const { method, url, headers } = request;
      response.end(
        JSON.stringify({ method, url, headers, body: Buffer.concat(pieces).toString() }),
      );
    }),
  );
  const file = `${GRISTMILL_BUILT}/javascript-platform.wasm`;
  const options = ["--allow-host", upstream.address, "--scratch-gb", "1"];
  await deploy(ENDPOINT, file, ...options);
  await deploy(`${ENDPOINT}-reused`, file, ...options, "--workers-max", "1", "--reuse", "100");
  await deploy(`${ENDPOINT}-small`, file, "--memory-mib", "32");
});
after(() => upstream.close());

const at = (path) => `http://${upstream.address}${path}`;

async function output(op, input = {}, endpoint = ENDPOINT) {
  const done = await job(endpoint, { op, ...input });
  assert.equal(done.status, "COMPLETED", JSON.stringify(done));
  return done.output;
}

test("fetch sends a request and reads its answer", async () => {
  const init = { method: "post", headers: { "X-Mill": "grün" }, body: '{"a":"é"}' };
  const answer = await output("fetch", { url: at("/a?b=c#d"), init });
  assert.deepEqual([answer.status, answer.ok, answer.url], [200, true, at("/a?b=c")]);
  assert.deepEqual([answer.redirected, answer.bodyUsed], [false, true]);
  const echo = JSON.parse(answer.body);
  assert.deepEqual([echo.method, echo.url, echo.body], ["POST", "/a?b=c", '{"a":"é"}']);
  assert.equal(echo.headers["x-mill"], "grün");
  assert.equal(echo.headers["content-type"], "text/plain;charset=UTF-8");
  assert.equal(echo.headers["content-length"], "10");
  const headers = answer.headers.filter(([name]) => ["x-mill", "set-cookie"].includes(name));
  assert.deepEqual(headers, [
    ["set-cookie", "a=1"],
    ["set-cookie", "b=2"],
    ["x-mill", "stone, water"],
  ]);
});

test("a request of `http` with null as its timeout has none", async () => {
  routes = {};
  assert.equal(await output("simple", { url: at("/a"), options: { timeout: null } }), 200);
});

test("bodies of every kind arrive", async () => {
  const sent = await output("bodies", { url: at("/b") });
  assert.equal(sent.text.body, "é");
  assert.equal(sent.form.body, "a=1+2");
  assert.equal(
    sent.form.headers["content-type"],
    "application/x-www-form-urlencoded;charset=UTF-8",
  );
  assert.deepEqual([sent.bytes.body, sent.buffer.body], ["AB", "C"]);
  assert.equal(sent.bytes.headers["content-type"], undefined);
  assert.deepEqual([sent.blob.body, sent.blob.headers["content-type"]], ["aB", "text/x"]);
  assert.deepEqual([sent.request.body, sent.request.headers["x-mill"]], ["r", "1"]);
});

test("a form arrives with its texts and files", async () => {
  routes = {
    // Node's own parser reads it.
    "/form": async (request, response) => {
      const pieces = [];
      for await (const piece of request) pieces.push(piece);
      const headers = { "content-type": request.headers["content-type"] };
      const form = await new Response(Buffer.concat(pieces), { headers }).formData();
      const entries = [];
      for (const [name, value] of form) {
        const isText = typeof value === "string";
        const bytes = isText ? value : [...new Uint8Array(await value.arrayBuffer())];
        entries.push([name, bytes, value.name, value.type]);
      }
      response.end(JSON.stringify(entries));
    },
  };
  assert.deepEqual(await output("form", { url: at("/form") }), [
    ["mills", 5, 1, false],
    [
      ["text", 'é\r\n"', null, null],
      ['na"me', [...Buffer.from("bytes")], "x\r\n.txt", "text/plain"],
      ["file", [0, 255], "y.bin", "application/octet-stream"],
    ],
  ]);
});

test("redirects are followed as the standard says", async () => {
  routes = {
    "/303": (_request, response) => response.writeHead(303, { location: "/landed" }).end(),
    "/307": (_request, response) => response.writeHead(307, { location: "landed" }).end(),
    "/loop": (_request, response) => response.writeHead(302, { location: "/loop" }).end(),
  };
  const init = { method: "POST", body: "grain", headers: { authorization: "secret" } };
  const seen = async (path, more) => {
    const answer = await output("fetch", { url: at(path), init: { ...init, ...more } });
    return { ...answer, echo: answer.body && JSON.parse(answer.body) };
  };
  const see = await seen("/303");
  assert.deepEqual([see.redirected, see.url], [true, at("/landed")]);
  assert.deepEqual([see.echo.method, see.echo.body], ["GET", ""]);
  assert.equal(see.echo.headers["content-type"], undefined);
  // The same server: it gets the secret again.
  assert.equal(see.echo.headers.authorization, "secret");
  const again = await seen("/307");
  assert.deepEqual([again.echo.method, again.echo.body], ["POST", "grain"]);
  assert.equal((await seen("/303", { redirect: "manual" })).status, 303);
  const failed = (path, redirect) => output("failing", { url: at(path), init: { redirect } });
  assert.match((await failed("/loop")).message, /more than 20 redirects/);
  assert.match((await failed("/303", "error")).message, /redirects/);
});

test("a redirect to another server does not carry secrets", async () => {
  const other = await listen(
    createServer((request, response) => response.end(JSON.stringify(request.headers))),
  );
  try {
    await deploy(
      ENDPOINT,
      `${GRISTMILL_BUILT}/javascript-platform.wasm`,
      "--allow-host",
      upstream.address,
      "--allow-host",
      other.address,
    );
    routes = {
      "/away": (_request, response) =>
        response.writeHead(302, { location: `http://${other.address}/` }).end(),
    };
    const headers = { authorization: "secret", cookie: "a=1", "x-mill": "stone" };
    const answer = await output("fetch", { url: at("/away"), init: { headers } });
    const seen = JSON.parse(answer.body);
    assert.deepEqual(
      [seen.authorization, seen.cookie, seen["x-mill"]],
      [undefined, undefined, "stone"],
    );
  } finally {
    await other.close();
    await deploy(
      ENDPOINT,
      `${GRISTMILL_BUILT}/javascript-platform.wasm`,
      "--allow-host",
      upstream.address,
    );
  }
});

test("pieces of an answer come when they are sent", async () => {
  let chunks = 0;
  routes = {
    // Each piece is sent after the client of the job has seen the one before.
    "/pieces": async (_request, response) => {
      response.write("grü\n");
      while (chunks < 1) await new Promise((resolve) => setTimeout(resolve, 10));
      response.end("ne mühle");
    },
  };
  const { GRISTMILL_URL, GRISTMILL_API_KEY } = process.env;
  const headers = {
    authorization: `Bearer ${GRISTMILL_API_KEY}`,
    "content-type": "application/json",
  };
  const base = `${GRISTMILL_URL}/v2/${ENDPOINT}`;
  const body = JSON.stringify({ input: { op: "pieces", url: at("/pieces") } });
  const { id } = await (await fetch(`${base}/run`, { method: "POST", headers, body })).json();
  const outputs = [];
  for (let tries = 0; tries < 1000; tries++) {
    const { stream, status } = await (
      await fetch(`${base}/stream/${id}`, { headers })
    )
      .json()
      .then((answer) => (Array.isArray(answer) ? { stream: answer } : answer));
    for (const chunk of stream ?? []) outputs.push(chunk.output);
    chunks = outputs.length;
    if (outputs.join("").endsWith("mühle") || status === "FAILED") break;
  }
  assert.equal(outputs.join(""), "grü\nne mühle");
  assert.equal(outputs[0], "grü\n");
});

test("a request's body is sent in pieces", async () => {
  let first;
  const arrived = new Promise((resolve) => (first = resolve));
  routes = {
    "/upload": async (request, response) => {
      const pieces = [];
      for await (const piece of request) {
        pieces.push(piece.toString());
        first();
      }
      response.end(JSON.stringify([request.headers["transfer-encoding"], pieces.join("|")]));
    },
    // The handler asks after each piece; it goes on once the first one has arrived.
    "/next": async (_request, response) => {
      await arrived;
      response.end();
    },
  };
  const got = await output("upload", { url: at("/upload"), next: at("/next") });
  assert.deepEqual(JSON.parse(got), ["chunked", "slow |mills"]);
});

test("a body that cannot be sent says why", async () => {
  routes = {};
  const done = await job(ENDPOINT, { op: "unsendable", url: at("/a") });
  const [large, broken, text] = done.output;
  assert.match(large, /body size exceeds limit: 16777216 bytes/);
  assert.equal(broken, "no grain");
  assert.match(text, /must have pieces of type Uint8Array/);
  assert.deepEqual(await logs(ENDPOINT, done), []);
});

test("requests are under way at the same time", async () => {
  const waiting = [];
  routes = {
    // None is answered before all are there.
    "/together": (_request, response) => {
      waiting.push(response);
      if (waiting.length === 5) for (const [index, one] of waiting.entries()) one.end(`${index}`);
    },
  };
  const got = await output("together", { url: at("/together"), count: 5 });
  assert.deepEqual(got.sort(), ["0", "1", "2", "3", "4"]);
});

test("signals end a request and the reading of an answer", async () => {
  routes = {
    "/never": () => {},
    "/half": (_request, response) => response.write("half"),
  };
  const { name } = await output("timeout", { url: at("/never") });
  assert.equal(name, "TimeoutError");
  const [first, second] = await output("abort", { url: at("/half") });
  assert.deepEqual([first, second.name], ["half", "AbortError"]);
});

test("failures say why", async () => {
  const refused = await listen(createServer());
  await refused.close();
  const message = async (url, init) => (await output("failing", { url, init })).message;
  assert.match(await message("http://example.com/"), /example\.com: the endpoint does not allow/);
  assert.match(await message("ftp://example.com/"), /ftp: is not http/);
  assert.match(await message("mill"), /"mill" is not an absolute URL/);
  assert.match(await message(at("/"), { redirect: "x" }), /not one of follow, error, manual/);
  routes = { "/broken": (request) => request.socket.destroy() };
  assert.match(await message(at("/broken")), /^fetch failed: /);
});

test("what a job leaves open does not reach the next job", async () => {
  let arrived = 0;
  let answered = 0;
  let closed = 0;
  routes = {
    "/never": (_request, response) => {
      arrived += 1;
      response.on("close", () => (closed += 1));
    },
    // The handler leaves its job only after the request has arrived.
    "/next": async (_request, response) => {
      while (arrived === answered) await new Promise((resolve) => setTimeout(resolve, 5));
      answered += 1;
      response.end();
    },
  };
  const runs = [];
  for (let i = 0; i < 3; i++) {
    runs.push(
      await output("leave", { url: at("/never"), next: at("/next") }, `${ENDPOINT}-reused`),
    );
  }
  assert.deepEqual(runs, [0, 0, 0]);
  for (let tries = 0; closed < 3 && tries < 500; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.equal(closed, 3);
  const { message } = await output("failing", { url: at("/b") }, `${ENDPOINT}-reused`);
  assert.equal(message, undefined);
});

test("a promise that a job leaves pending does not stay pending in the next job", async () => {
  routes = { "/config": (_request, response) => setTimeout(() => response.end("stone"), 50) };
  const reused = `${ENDPOINT}-reused`;
  assert.equal(await output("memo", { url: at("/config"), waits: false }, reused), null);
  assert.equal(await output("memo", { url: at("/config"), waits: true }, reused), "stone");
});

test("a stream may have more bytes than the memory of an instance", async () => {
  const flood = { chunks: 3000, bytes: 16384 };
  assert.equal(await output("flood", flood, `${ENDPOINT}-small`), flood.chunks);
});

test("responses, URLs, streams, clones and digests are as everywhere", async () => {
  assert.deepEqual(await output("response"), [
    "application/json",
    201,
    { a: 1 },
    '{"a":1}',
    "the body was read already",
    [
      ["a", "1"],
      ["b", "2"],
    ],
    "http://a/b",
  ]);
  assert.deepEqual(await output("url"), [
    "https://example.com/a/b?x=1&y=2&z=%C3%A9%26#h",
    "example.com",
    true,
    ["1", "2"],
  ]);
  assert.deepEqual(await output("streams"), [["A", "B"], "é😀"]);
  assert.deepEqual(await output("clone"), [true, "1970-01-01T00:00:00.000Z", ["x"], 7]);
  for (const algorithm of ["SHA-1", "SHA-256", "SHA-384", "sha-512"]) {
    const theirs = await crypto.subtle.digest(algorithm, new TextEncoder().encode("abc"));
    assert.equal(await output("digest", { algorithm }), Buffer.from(theirs).toString("hex"));
  }
  assert.equal((await output("random")).name, "QuotaExceededError");
});

test("the engine's own promises settle", async () => {
  assert.deepEqual(await output("promises"), [[10, 20], ["a", "b"], 3, "TypeError", ...[1, 2, 3]]);
});

test("a delay may be text, and signals and events come", async () => {
  assert.deepEqual(await output("timers"), ["none", "1", "30"]);
  assert.deepEqual(await output("events"), [["grind"], "TimeoutError", "why"]);
});

test("random numbers of the build are not those of a job", async () => {
  assert.notEqual(await output("seed"), await output("seed"));
});

test("all of console writes to the log", async () => {
  const done = await job(ENDPOINT, { op: "console" });
  assert.equal(done.status, "COMPLETED", JSON.stringify(done));
  const lines = (await logs(ENDPOINT, done)).map(([level, line]) =>
    `${level} ${line}`.replace(/\d+\.\d+ ms/, "N ms").replace(/handler\.js:\d+/, "handler.js:N"),
  );
  assert.deepEqual(lines, [
    'info mill has 3 of 4, 1.5, {"a":1} [1] % rest',
    'info Map {"a" => Set {1}} 10n undefined [function without a name] [undefined] Symbol(s)',
    'info {"name":"mill","self":[circular]}',
    "info    sacks  grain",
    'info 0  2      "rye"',
    "info 1  10",
    "info outer",
    "warn   inner",
    "warn   lines",
    "info default: 1",
    "info default: 2",
    "info x: 1",
    "error assertion failed: broken wheel",
    "info t: N ms so far",
    "info t: N ms",
    "warn timeEnd: there is no timer t",
    "trace Trace: here",
    "trace     at console (handler.js:N)",
    "trace     at <anonymous> (handler.js:N)",
    "error     at console (handler.js:N)",
    "error     at <anonymous> (handler.js:N)",
  ]);
});

test("files of a mounted directory are read and written", async () => {
  await deploy(ENDPOINT, `${GRISTMILL_BUILT}/javascript-platform.wasm`, "--scratch-gb", "1");
  assert.deepEqual(await output("files", { at: "/tmp" }), [
    100_002,
    "éAA",
    ["a", "a/c.txt"],
    ["ENOENT", "ENOENT", "EEXIST", "EISDIR"],
    false,
  ]);
});

test("lines that jobs append at the same time are all in the file", async () => {
  const volume = (await run(GRISTMILL, "volumes", "create", "--size", "1", "lines")).stdout.trim();
  const endpoint = `${ENDPOINT}-append`;
  const component = `${GRISTMILL_BUILT}/javascript-platform.wasm`;
  await deploy(endpoint, component, "--volume", volume, "--workers-max", "2");
  const file = "/workspace/lines.txt";
  const [count, bytes] = [300, 5000];
  const append = (mark) => output("append", { file, mark, count, bytes }, endpoint);
  await Promise.all([append("a"), append("b")]);
  const lines = await output("read", { file }, endpoint);
  const of = (mark) => lines.filter((line) => line === mark.repeat(bytes)).length;
  assert.deepEqual([of("a"), of("b"), lines.length], [count, count, 2 * count + 1]);
});

test("an error at the border to the host is an error of JavaScript", async () => {
  const names = await output("borders");
  const own = ["TypeError", "HttpError", "TypeError", "EmitError", "TypeError", "TypeError"];
  assert.deepEqual(names, [...own, "TypeError", "TypeError", "RangeError"]);
});

test("everything that can be thrown is one readable line", async () => {
  const thrown = async (what) => (await job(ENDPOINT, { op: "throwing", what })).error;
  assert.equal(await thrown("symbol"), "Symbol(s)");
  assert.equal(await thrown("null"), "null");
  assert.equal(await thrown("number"), "Error: 5");
  assert.match(
    await thrown("Buffer"),
    /^ReferenceError: Buffer is not defined \(not available in the sandbox: use Uint8Array/,
  );
  assert.match(
    await thrown("zod"),
    /^ZodError: items\[2\]\.name: expected string; too few; v: no; .*; and 12 more$/,
  );
});
