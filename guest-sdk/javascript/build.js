#!/usr/bin/env node
// Builds the WebAssembly component of a project: `gristmill-sdk build [PROJECT] [-o FILE]`.
//
// esbuild bundles the handler's module, TypeScript included, with its imports from `node_modules`;
// the engine's toolchain compiles the bundle to a component. With QuickJS a build takes 2 seconds,
// and the component has 1.9 MB and more for the parts of the web platform that the handler uses.
// With StarlingMonkey, the engine of Firefox, it takes some 10 seconds and has 12 MB.

import {
  appendFile,
  copyFile,
  mkdir,
  mkdtemp,
  readFile,
  rm,
  stat,
  writeFile,
} from "node:fs/promises";
import { existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { bundleErrors } from "./src/build/hints.js";
import { linesOf } from "./src/build/lines.js";
import { candidates, injected, partsOf, platformSource } from "./src/build/platform.js";
import { NO_HANDLER } from "./src/handler.js";
import { ANSWERS_NO_REQUEST, ANSWERS_REQUESTS } from "./src/server.js";
import { BUNDLE, PLATFORM, readable } from "./src/stack.js";

const SDK = dirname(fileURLToPath(import.meta.url));
const ENTRIES = ["handler.ts", "handler.js", "handler.mjs"];

/** The names of the host's interfaces for an engine that needs no `withWasi`. */
const realNames = {
  name: "names",
  setup({ onResolve }) {
    onResolve({ filter: /^gwsi:/ }, ({ path }) => ({
      path: path.replace("gwsi:", "wasi:"),
      external: true,
    }));
  },
};

const ENGINES = {
  quickjs: {
    settle: [
      'import { wait } from "gristmill-platform";',
      "const settle = (work, lower, stuck, abandoned) => {",
      "  try {",
      "    return wait(work, stuck, abandoned);",
      "  } catch (error) {",
      "    throw lower(error);",
      "  }",
      "};",
    ],
    hasPlatform: true,
    esbuild: {
      target: "es2023",
      define: { SIZES_ARE_BIGINTS: "false" },
      // QuickJS runs no promise after an export has returned: see src/quickjs/event-loop.js.
      supported: { "async-await": false, "async-generator": false, "for-await": false },
    },
    async componentize({ source, witPath, world }) {
      const { componentize } = await import("componentize-qjs");
      const { component } = await componentize({
        jsSource: await readFile(source, "utf8"),
        jsPath: source,
        moduleRoot: dirname(source),
        witPath,
        world,
        sync: true,
      });
      return { component: withWasi(component) };
    },
  },
  starlingmonkey: {
    settle: [
      'import { isLeft } from "gristmill-sdk/src/starlingmonkey/leftovers.js";',
      "const settle = async (work, lower, _stuck, abandoned) => {",
      "  try {",
      "    return await work();",
      "  } catch (error) {",
      "    throw lower(error);",
      "  } finally {",
      "    if (isLeft()) abandoned();",
      "  }",
      "};",
    ],
    hasPlatform: false,
    esbuild: { target: "es2023", define: { SIZES_ARE_BIGINTS: "true" }, plugins: [realNames] },
    async componentize({ source, witPath, world, project }) {
      const { componentize } = await import(findStarlingMonkey(project));
      return componentize({ sourcePath: source, witPath, worldName: world });
    },
  },
};

/** Builds `output` from the handler in `project`; returns its size in bytes. */
export async function build({ project, output, entry, engine = "quickjs", minify = false }) {
  const handler = findHandler(project, entry);
  const { esbuild } = ENGINES[engine];
  // Its exports, and the globals that it uses, are known only after bundling.
  const scanned = await scan({ project, handler, esbuild });
  const compiled = async (isServer) =>
    compile({ project, handler, engine, minify, isServer, ...scanned });
  let component;
  try {
    component = await compiled(scanned.isLikelyServer);
  } catch (error) {
    // What the module exports is known only when it has run.
    const isOther = [ANSWERS_REQUESTS, ANSWERS_NO_REQUEST].some((why) => error.message.includes(why));
    if (!isOther) throw error;
    component = await compiled(!scanned.isLikelyServer);
  }
  await writeFile(output, component);
  return component.length;
}

/** The component of a handler of jobs, or of one of requests. */
async function compile({ project, handler, engine, minify, isServer, exports, parts, hasFiles }) {
  const { settle, hasPlatform, esbuild, componentize } = ENGINES[engine];
  if (isServer && !hasPlatform) {
    throw new Error("this engine builds handlers of jobs alone: for HTTP, leave --engine out");
  }
  const temp = await mkdtemp(join(tmpdir(), "gristmill-"));
  try {
    const source = join(temp, BUNDLE);
    const hasInit = exports.includes("init");
    if (isServer && !parts.includes("fetch.js")) parts = [...parts, "fetch.js"];
    if (hasPlatform) {
      await bundle(project, {
        stdin: { contents: platformSource(parts, isServer), resolveDir: SDK, sourcefile: "platform.js" },
        outfile: join(temp, PLATFORM),
        // Nobody reads the stacks of this file. `URL` and others need the names of their classes.
        minify: true,
        keepNames: true,
        ...esbuild,
        plugins: [promises],
      });
      await mendGenerators(join(temp, PLATFORM), esbuild, true);
    }
    await bundle(project, {
      stdin: {
        contents: entryPoint(handler, settle, isServer, hasInit),
        resolveDir: project,
        sourcefile: join(SDK, "entry.js"),
      },
      outfile: source,
      sourcemap: "external",
      minify,
      keepNames: minify,
      ...esbuild,
    });
    if (hasPlatform) await mendGenerators(source, esbuild, minify);
    const places = await linesOf(source, project, SDK);
    // As text, which is rarely parsed, and needs a tenth of the memory in the snapshot.
    const table = JSON.stringify(JSON.stringify(places));
    await appendFile(source, `\nglobalThis.gristmillBundle = ${table};\n`);
    const worlds = [
      worldOf(isServer, hasInit),
      hasPlatform ? "quickjs" : "system",
      ...(parts.includes("fetch.js") ? ["web"] : []),
      ...(hasFiles ? ["files"] : []),
    ];
    await writeWit(join(temp, "wit"), worlds, hasPlatform);
    const built = { source, witPath: join(temp, "wit"), world: "component", project };
    return await withoutReads(built, componentize, places);
  } finally {
    await rm(temp, { recursive: true });
  }
}

/** What a handler exports, and what it needs of the platform. */
async function scan({ project, handler, esbuild }) {
  const { metafile, outputFiles } = await bundle(project, {
    entryPoints: [handler],
    write: false,
    ...esbuild,
    // The SDK mentions more than a handler needs.
    alias: FILES,
    external: [...EXTERNAL, "gristmill-sdk"],
    inject: injected,
    plugins: [globals],
  });
  const [output] = Object.values(metafile.outputs).filter((file) => file.entryPoint);
  const inputs = Object.keys(output.inputs);
  const free = new Set(candidates.filter((name) => inputs.includes(`gristmill-global:${name}`)));
  return {
    exports: output.exports,
    isLikelyServer:
      output.exports.includes("fetch") || inputs.some((path) => path.includes("node_modules/hono/")),
    parts: partsOf(outputFiles[0].text, free),
    hasFiles: inputs.some((path) => path.endsWith("src/files/files.js")),
  };
}

/** Lets esbuild find the free identifiers: it includes an injected module only if its name is one. */
const globals = {
  name: "globals",
  setup({ onResolve, onLoad }) {
    const namespace = "gristmill-global";
    onResolve({ filter: /^gristmill-global:/ }, ({ path }) => ({
      path: path.slice(namespace.length + 1),
      namespace,
    }));
    onLoad({ filter: /./, namespace }, ({ path }) => ({
      contents: `let injected; export { injected as ${path} };`,
    }));
  },
};

/**
 * The component, after a warning for each line of the project that reads `process.env` while it is
 * built. The module runs in the engine, whose only way out is an error: a module that has read throws
 * the list at its end, and is built again without that.
 */
async function withoutReads(built, componentize, places) {
  const text = await readFile(built.source, "utf8");
  const run = async (end) => {
    await writeFile(built.source, text + end);
    return (await componentize(built)).component;
  };
  try {
    return await run(REPORT_READS + FORGET_READS);
  } catch (error) {
    const [, list] = READS.exec(error.message) ?? [];
    if (!list) throw new Error(evaluationError(error.message, places));
    for (const warning of new Set(JSON.parse(decodeURIComponent(list)).map(readWarning(places)))) {
      if (warning) console.error(`warning: ${warning}`);
    }
  }
  try {
    return await run(FORGET_READS);
  } catch (error) {
    throw new Error(evaluationError(error.message, places));
  }
}

const REPORT_READS = `
if (gristmillReads.length) {
  throw new Error("gristmill reads " + encodeURIComponent(JSON.stringify(gristmillReads)) + "|");
}
`;
const FORGET_READS = "\ndelete globalThis.gristmillReads;\n";
const READS = /gristmill reads ([^\s|]+)\|/;

/** The sentence about a read, unless a package makes it: its author knows what it needs. */
function readWarning(places) {
  return ([name, stack]) => {
    // `at read (handler.ts:3)` of QuickJS, or `read@handler.ts:3` of StarlingMonkey.
    const [frame] = readable(stack, places).trim().split("\n");
    const place = frame.replace(/^[^@(]*[@(]/, "").replace(/\)$/, "");
    if (!place || place.includes("node_modules/")) return undefined;
    return (
      `${place} reads process.env.${name} when the component is built, where no variable is set, and jobs get ` +
      "this result whatever their endpoint sets: read it in the handler, or in an exported function init"
    );
  };
}

/** Why the module did not run during the build, with the lines of the project. */
function evaluationError(message, places) {
  const text = message.replace(/^(?:: )?(?:Failed to [^:]*: )+/, "");
  const [first, ...stack] = text.trimEnd().split("\n");
  if (first.includes(NO_HANDLER)) return NO_HANDLER;
  const isStack = stack.some((line) => /^\s+at /.test(line));
  if (!isStack) return message;
  const frames = readable(stack.join("\n"), places);
  // The toolchain writes `Error` for errors of every kind.
  const what = first.replace(/^Error: /, "");
  return `the handler's module fails while the component is built: ${what}${frames && `\n${frames}`}`;
}

/** The WIT files of a component whose world includes these worlds; `hasStubs` is for `withWasi`. */
async function writeWit(directory, worlds, hasStubs) {
  await mkdir(join(directory, "deps/gristmill-handler"), { recursive: true });
  await copyFile(contract(), join(directory, "deps/gristmill-handler/handler.wit"));
  const includes = worlds.map((world) => `  include ${world};\n`).join("");
  const text = await readFile(join(SDK, "wit/guest.wit"), "utf8");
  const imports = hasStubs ? text : text.replaceAll("gwsi:", "wasi:");
  await writeFile(join(directory, "guest.wit"), `${imports}\nworld component {\n${includes}}\n`);
}

function findHandler(project, entry) {
  const candidates = entry ? [entry] : ENTRIES.flatMap((name) => [name, join("src", name)]);
  const found = candidates.map((name) => resolve(project, name)).find(existsSync);
  if (!found) throw new Error(`${project} has no ${candidates.join(", ")}`);
  return found;
}

const EXTERNAL = ["gristmill:*", "wasi:*", "gwsi:*"];

/** The modules of Node that the SDK has for the sandbox. */
const FILES = Object.fromEntries(
  [
    ["fs", "fs.js"],
    ["fs/promises", "promises.js"],
  ].flatMap(([name, file]) =>
    [name, `node:${name}`].map((specifier) => [specifier, join(SDK, "src/files", file)]),
  ),
);

/** Bundles; prints warnings, and throws one error with a line for each of esbuild's errors. */
async function bundle(project, options) {
  const esbuild = await import("esbuild");
  let result;
  try {
    result = await esbuild.build({
      bundle: true,
      format: "esm",
      platform: "neutral",
      mainFields: ["module", "main"],
      conditions: ["worker", "browser", "import"],
      external: EXTERNAL,
      // The handler and the component must use the same copy of the SDK.
      alias: {
        ...FILES,
        "gristmill-sdk/src": join(SDK, "src"),
        "gristmill-sdk": join(SDK, "src/index.js"),
      },
      plugins: [platform],
      metafile: true,
      outdir: options.outfile ? undefined : "out",
      logLevel: "silent",
      absWorkingDir: project,
      ...options,
      define: { ...options.define, "process.env.NODE_ENV": '"production"' },
    });
  } catch (error) {
    if (!error.errors) throw error;
    throw new Error(bundleErrors(error.errors).join("\n"));
  }
  // The first bundle, which is only scanned, has the same warnings.
  if (options.outfile) {
    for (const line of bundleErrors(result.warnings)) console.error(`warning: ${line}`);
  }
  return result;
}

/** The platform is a file of its own: it is minified, and none of its lines are the author's. */
const platform = {
  name: "platform",
  setup({ onResolve }) {
    onResolve({ filter: /^gristmill-platform$/ }, () => ({
      path: `./${PLATFORM}`,
      external: true,
    }));
  },
};

/** The part of esbuild's helper for async generators that goes on after an `await`, also minified. */
const RESUME =
  /([\w$]+) ?\? ?([\w$]+)\(([\w$]+) ?=== ?"return" ?\? ?\3 ?: ?"next", ?([\w$]+)\[1\]/g;

/**
 * Makes the `finally` of an async generator run to its end when the generator is told to return.
 *
 * esbuild's helper resumes the generator after each `await` with `return` again, which ends the
 * `finally` at its first `await`. Only the result of a `yield*`, which `[1]` marks, is a return.
 */
async function mendGenerators(path, { target, supported }, minify = false) {
  const esbuild = await import("esbuild");
  const sample = await esbuild.transform("async function* f() {}", { target, supported, minify });
  if (sample.code.search(RESUME) < 0) {
    throw new Error(`esbuild ${esbuild.version} is not the expected version`);
  }
  const code = await readFile(path, "utf8");
  const mended = code.replace(
    RESUME,
    (_whole, isAwait, resume, kind, value) =>
      `${isAwait}?${resume}(${kind}==="return"&&${value}[1]?${kind}:"next",${value}[1]`,
  );
  if (mended !== code) await writeFile(path, mended);
}

/**
 * Makes promise-polyfill call `then` of a subclass that has its own, as the language says: it would
 * take the state of the object instead. Clients of web APIs, such as OpenAI's, have such promises.
 */
const promises = {
  name: "promises",
  setup({ onLoad }) {
    onLoad({ filter: /promise-polyfill\/src\/index\.js$/ }, async ({ path }) => {
      const source = await readFile(path, "utf8");
      const own = "if (newValue instanceof Promise) {";
      if (!source.includes(own)) throw new Error(`${path} is not the expected version`);
      const contents = source.replace(
        own,
        "if (newValue instanceof Promise && then === Promise.prototype.then) {",
      );
      return { contents };
    });
  },
};

function worldOf(isServer, hasInit) {
  const world = `${isServer ? "server" : "handler"}${hasInit ? "-with-init" : ""}`;
  return isServer ? world : `gristmill:handler/${world}@0.1.0`;
}

function entryPoint(handler, settle, isServer, hasInit) {
  const lifecycle = hasInit ? ", lifecycle" : "";
  return [
    ...settle,
    'import { component, server } from "gristmill-sdk/src/component.js";',
    ...(isServer ? ['import { answer } from "gristmill-platform";'] : []),
    `import * as handler from ${JSON.stringify(handler)};`,
    isServer
      ? `export const { incomingHandler${lifecycle} } = server(handler, settle, answer);`
      : `export const { run${lifecycle} } = component(handler, settle);`,
  ].join("\n");
}

/**
 * The component with the real names of its imports.
 *
 * componentize-qjs runs the module with stubs for interfaces that it does not have, such as
 * `wasi:http`. The resources that `wasi:http` takes from `wasi:io` are then others than those of the
 * real `wasi:io`, and the module does not start. So wit/guest.wit has another name of the same length
 * for these interfaces, which makes all of them stubs.
 */
function withWasi(component) {
  const bytes = Buffer.from(component);
  for (const { index } of bytes.toString("latin1").matchAll(STUBS)) {
    bytes.write("wasi", index, "latin1");
  }
  return bytes;
}

const STUBS = /gwsi(?=:(clocks|filesystem|http|io)\/[a-z-]+@0\.2\.0)/g;

/** The toolchain of StarlingMonkey. It is large, so each project decides whether to install it. */
function findStarlingMonkey(project) {
  for (let directory = project; ; directory = dirname(directory)) {
    const path = join(
      directory,
      "node_modules/@bytecodealliance/componentize-js/src/componentize.js",
    );
    if (existsSync(path)) return path;
    if (directory === dirname(directory)) {
      throw new Error(
        "this engine needs: npm install --save-dev @bytecodealliance/componentize-js@0.23.0 @bytecodealliance/preview2-shim@0.25.0",
      );
    }
  }
}

/** The directory of the WIT files: in this package, or at the root of the repository that it is part of. */
function contract() {
  const path = ["wit/handler.wit", "../../wit/handler.wit"]
    .map((path) => join(SDK, path))
    .find(existsSync);
  if (!path) throw new Error("wit/handler.wit is missing: reinstall the package gristmill-sdk");
  return path;
}

const USAGE = `Makes a WebAssembly component of a handler.

Usage: gristmill-sdk build [PROJECT] [OPTIONS]

  PROJECT               the directory with handler.ts, handler.js or handler.mjs, there or in src; default: here
  -o, --output FILE     default: PROJECT/PROJECT.wasm
  -e, --entry FILE      the handler's module, if it has another name
      --engine ENGINE   quickjs (default) or starlingmonkey
      --minify          make the component smaller and its stacks unreadable`;

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      output: { type: "string", short: "o" },
      entry: { type: "string", short: "e" },
      engine: { type: "string", default: "quickjs" },
      minify: { type: "boolean" },
      help: { type: "boolean", short: "h" },
    },
  });
  if (values.help) return console.log(USAGE);
  const [command, directory = ".", ...rest] = positionals;
  if (command !== "build" || rest.length || !ENGINES[values.engine]) {
    console.error(USAGE);
    process.exit(2);
  }
  const project = resolve(directory);
  if (!(await stat(project).catch(() => undefined))?.isDirectory()) {
    throw new Error(`${project} is not a directory`);
  }
  const output = resolve(values.output ?? join(project, `${basename(project)}.wasm`));
  const bytes = await build({ ...values, project, output });
  console.error(`${output}: ${(bytes / 2 ** 20).toFixed(1)} MiB`);
}

try {
  await main();
} catch (error) {
  console.error(`error: ${error.message}`);
  process.exit(error.code?.startsWith?.("ERR_PARSE_ARGS") ? 2 : 1);
}
