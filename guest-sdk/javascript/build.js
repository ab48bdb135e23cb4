#!/usr/bin/env node
// Builds the WebAssembly component of a project: `gristmill-sdk build [PROJECT] [-o FILE]`.
//
// esbuild bundles the handler's module, TypeScript included, with its imports from `node_modules`;
// the engine's toolchain compiles the bundle to a component. With QuickJS a build takes 2 seconds,
// and the component has 1.9 MB. With StarlingMonkey, the engine of Firefox, it takes some 10
// seconds and has 12 MB, and offers the web platform: `fetch`, `URL`, streams, `Intl`.

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
import { basename, dirname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { TraceMap, eachMapping } from "@jridgewell/trace-mapping";

const SDK = dirname(fileURLToPath(import.meta.url));
const ENTRIES = ["handler.ts", "handler.js", "handler.mjs"];

const ENGINES = {
  quickjs: {
    wait: 'import { wait } from "gristmill-sdk/src/quickjs/globals.js";',
    esbuild: {
      target: "es2023",
      // QuickJS runs no promise after an export has returned: see src/quickjs/globals.js.
      supported: { "async-await": false, "async-generator": false, "for-await": false },
    },
    async componentize({ source, witPath, world }) {
      const { componentize } = await import("componentize-qjs");
      return componentize({ jsSource: await readFile(source, "utf8"), witPath, world, sync: true });
    },
  },
  starlingmonkey: {
    wait: "const wait = (promise) => promise;",
    esbuild: { target: "es2023" },
    async componentize({ source, witPath, world, project }) {
      const { componentize } = await import(findStarlingMonkey(project));
      return componentize({ sourcePath: source, witPath, worldName: world });
    },
  },
};

/** Builds `output` from the handler in `project`; returns its size in bytes. */
export async function build({ project, output, entry, engine = "quickjs", minify = false }) {
  const handler = findHandler(project, entry);
  const { wait, esbuild, componentize } = ENGINES[engine];
  const temp = await mkdtemp(join(tmpdir(), "gristmill-"));
  try {
    const source = join(temp, "bundle.js");
    // A module's exports are known only after bundling.
    const exported = await bundle({ entryPoints: [handler], write: false, ...esbuild });
    const hasInit = exported.includes("init");
    await bundle({
      stdin: {
        contents: entryPoint(handler, wait, hasInit),
        resolveDir: project,
        sourcefile: "entry.js",
      },
      outfile: source,
      sourcemap: "external",
      minify,
      keepNames: minify,
      ...esbuild,
    });
    await appendLines(source, project);
    await mkdir(join(temp, "wit/deps/gristmill-handler"), { recursive: true });
    await copyFile(join(SDK, "wit/guest.wit"), join(temp, "wit/guest.wit"));
    await copyFile(contract(), join(temp, "wit/deps/gristmill-handler/handler.wit"));
    const world = hasInit ? "handler-with-init" : "handler";
    const { component } = await componentize({
      source,
      witPath: join(temp, "wit"),
      world,
      project,
    });
    await writeFile(output, component);
    return component.length;
  } finally {
    await rm(temp, { recursive: true });
  }
}

function findHandler(project, entry) {
  const candidates = entry ? [entry] : ENTRIES.flatMap((name) => [name, join("src", name)]);
  const found = candidates.map((name) => resolve(project, name)).find(existsSync);
  if (!found) throw new Error(`${project} has no ${candidates.join(", ")}`);
  return found;
}

/** Bundles, and returns the names that the bundle exports. */
async function bundle(options) {
  const esbuild = await import("esbuild");
  const { metafile } = await esbuild.build({
    bundle: true,
    format: "esm",
    platform: "neutral",
    mainFields: ["module", "main"],
    conditions: ["worker", "browser", "import"],
    external: ["gristmill:*", "wasi:*"],
    // The handler and the component must use the same copy of the SDK.
    alias: { "gristmill-sdk/src": join(SDK, "src"), "gristmill-sdk": join(SDK, "src/index.js") },
    define: { "process.env.NODE_ENV": '"production"' },
    metafile: true,
    outdir: options.outfile ? undefined : "out",
    logLevel: "warning",
    ...options,
  });
  return Object.values(metafile.outputs).find((file) => file.entryPoint)?.exports ?? [];
}

function entryPoint(handler, wait, hasInit) {
  return [
    wait,
    'import { component } from "gristmill-sdk/src/component.js";',
    `import * as handler from ${JSON.stringify(handler)};`,
    `export const { run${hasInit ? ", lifecycle" : ""} } = component(handler, wait);`,
  ].join("\n");
}

/** Appends, for src/stack.js, the source of each line of the bundle, except the SDK's lines. */
async function appendLines(source, project) {
  const files = [];
  const lines = [];
  eachMapping(new TraceMap(await readFile(`${source}.map`, "utf8")), (mapping) => {
    if (mapping.source === null || lines[mapping.generatedLine]) return;
    const path = resolve(dirname(source), mapping.source);
    if (path.startsWith(SDK + sep) || path.includes(`${sep}promise-polyfill${sep}`)) return;
    const file = relative(project, path);
    if (!files.includes(file)) files.push(file);
    lines[mapping.generatedLine] = [files.indexOf(file), mapping.originalLine];
  });
  const places = JSON.stringify({ files, lines: Array.from(lines, (line) => line ?? 0) });
  // As text, which is rarely parsed, and needs a tenth of the memory in the snapshot.
  await appendFile(source, `\nglobalThis.gristmillBundle = ${JSON.stringify(places)};\n`);
}

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
  console.error(`${output}: ${(bytes / 1e6).toFixed(1)} MB`);
}

try {
  await main();
} catch (error) {
  console.error(`error: ${error.message}`);
  process.exit(error.code?.startsWith?.("ERR_PARSE_ARGS") ? 2 : 1);
}
