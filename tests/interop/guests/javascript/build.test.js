// What the build of a component refuses, and what it says.

import assert from "node:assert/strict";
import { copyFile, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";

import { GRISTMILL, SDK, run, withHandler } from "./host.js";

/** The message of a build that fails. */
const refusal = (source, name) =>
  withHandler(
    source,
    ({ code, stderr }) => {
      assert.equal(code, 1, stderr);
      return stderr.trimEnd();
    },
    name,
  );

/** Builds the handler and runs one job with this input; resolves to what `gristmill run` prints. */
const ran = (source, input = {}) =>
  withHandler(source, async ({ code, stderr }, component) => {
    assert.equal(code, 0, stderr);
    return run(GRISTMILL, "run", component, "--input", JSON.stringify(input));
  });

test("a module without a handler is refused", async () => {
  const why =
    "error: there is no handler: export a function as default or as `handler`, or call serve(handler); " +
    "for HTTP, export an application with a function `fetch` as default";
  assert.equal(await refusal("export const a = 1;"), why);
  assert.equal(await refusal("export default { a: 1 };"), why);
});

test("an export named handler is the handler", async () => {
  const { stdout } = await ran("export function handler(job) { return job.input; }", { a: 1 });
  assert.equal(stdout.trim(), '{"a":1}');
});

test("an error while the module loads has the author's line", async () => {
  const typescript =
    "type A = {\n  x: number;\n};\nconst a: A | any = undefined;\na.y;\nexport default () => 1;";
  assert.equal(
    await refusal(typescript, "handler.ts"),
    "error: the handler's module fails while the component is built: cannot read property 'y' of undefined\n    at <anonymous> (handler.ts:5)",
  );
});

test("reads of the environment while the module loads are named", async () => {
  const source = [
    'import { handler } from "gristmill-sdk";',
    "const PORT = process.env.PORT ?? 80;",
    "const read = () => process.env.HOST;",
    "const HOST = read();",
    "const kept = process.env;",
    "export default () => [PORT, HOST ?? null, process.env.PORT, kept.PORT];",
  ].join("\n");
  await withHandler(source, async ({ code, stderr }, component) => {
    assert.equal(code, 0, stderr);
    const warnings = [...stderr.matchAll(/^warning: (\S+ reads \S+) when/gm)];
    assert.deepEqual(
      warnings.map(([, place]) => place),
      ["handler.js:2 reads process.env.PORT", "handler.js:3 reads process.env.HOST"],
    );
    const ran = await run(GRISTMILL, "run", component, "--env", "PORT=90", "--input", "{}");
    assert.equal(ran.stdout.trim(), '[80,null,"90","90"]');
  });
});

test("the template accepts packages whose types mention the DOM", async () => {
  const place = new URL("../../../../host/author/templates/javascript/", import.meta.url).pathname;
  const project = await mkdtemp(join(tmpdir(), "gristmill-test-"));
  const modules = join(project, "node_modules");
  try {
    await mkdir(join(modules, "markdown"), { recursive: true });
    await symlink(dirname(SDK), join(modules, "gristmill-sdk"));
    await copyFile(`${place}tsconfig.json`, join(project, "tsconfig.json"));
    await writeFile(
      join(modules, "markdown/package.json"),
      '{"name":"markdown","version":"1.0.0","types":"index.d.ts"}',
    );
    await writeFile(
      join(modules, "markdown/index.d.ts"),
      "export function convert(html: string | HTMLElement): string;",
    );
    await writeFile(
      join(project, "handler.ts"),
      'import { convert } from "markdown";\nexport default () => convert("<p>");\n',
    );
    const tsc = new URL("node_modules/.bin/tsc", import.meta.url).pathname;
    const { code, stdout } = await run(tsc, "--project", project);
    assert.equal(code, 0, stdout);
  } finally {
    await rm(project, { recursive: true });
  }
});

test("a wrong option `validate` is refused", async () => {
  const source =
    'import { handler } from "gristmill-sdk";\nexport default handler(() => 1, { validate: { parse() {} } });';
  assert.match(await refusal(source), /`validate` is a function .* Standard Schema.*\n.*handler\.js:2/);
});

test("Node's modules are named with what to use instead", async () => {
  const imports = [
    "node:path",
    "crypto",
    "node:stream/web",
    "left-pad",
    "@mill/stone/x",
    "./none.js",
  ];
  const lines = imports.map((name, index) => `import x${index} from "${name}";`);
  const message = await refusal(
    `${lines.join("\n")}\nexport default () => [x0, x1, x2, x3, x4, x5];`,
  );
  assert.deepEqual(message.replace("error: ", "").split("\n"), [
    "handler.js:1: node:path is not available in the sandbox; use the package path-browserify, or join texts with /",
    "handler.js:2: node:crypto is not available in the sandbox; use the global crypto: getRandomValues, randomUUID, subtle.digest",
    "handler.js:3: node:stream/web is not available in the sandbox; use ReadableStream, WritableStream and TransformStream",
    "handler.js:4: the package left-pad is not installed; run: npm install left-pad",
    "handler.js:5: the package @mill/stone/x is not installed; run: npm install @mill/stone",
    'handler.js:6: Could not resolve "./none.js"',
  ]);
});

test("a function of node:fs that is not there is named", async () => {
  const source = 'import { watch } from "node:fs/promises";\nexport default () => watch("/a");';
  assert.match(
    await refusal(source),
    /^error: handler\.js:1: node:fs\/promises has no watch in the sandbox; the README/,
  );
});

test("a handler has only the parts of the platform that it uses", async () => {
  const size = (source) =>
    withHandler(source, async ({ code, stderr }) => {
      assert.equal(code, 0, stderr);
      return Number(/([\d.]+) MiB/.exec(stderr)[1]);
    });
  const small = await size("export default (job) => job.input;");
  // Names that only look like those of globals.
  const local = `
    class Response { fetch() { return "URL"; } }
    export default ({ input: { Headers } }) => [new Response().fetch(), Headers, { Request: 1 }];`;
  assert.equal(await size(local), small);
  const uses = [
    'export default () => fetch("http://a/")',
    'export default () => globalThis.fetch("http://a/")',
    'const { fetch } = globalThis; export default () => fetch("http://a/")',
    'const g = typeof globalThis === "object" ? globalThis : self; export default () => g.fetch("http://a/")',
    'export default () => globalThis["fetch"]("http://a/")',
    'export default () => new Function("return fetch")()("http://a/")',
  ];
  for (const source of uses) {
    const { stderr } = await ran(source);
    assert.match(stderr, /fetch failed: a: the endpoint does not allow this host: .*--allow-host.*gristmill\.toml/, source);
  }
});
