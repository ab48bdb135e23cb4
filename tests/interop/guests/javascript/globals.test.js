// The type declarations and a component: whatever is declared is there, and whatever the SDK adds is
// declared.

import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { before, test } from "node:test";
import { fileURLToPath } from "node:url";

import ts from "typescript";

import { GRISTMILL_BUILT, deploy, job } from "./host.js";

const HERE = dirname(fileURLToPath(import.meta.url));
const ENDPOINT = "javascript-globals-test";

/** Declared by TypeScript for ES2023, whose files cannot be had without them, and not in QuickJS. */
const NOT_THERE = new Set(["Atomics", "Intl"]);
const isLegacy = (name, member) =>
  name === "RegExp" && /^(\$.|input|last(Match|Paren)|(left|right)Context)$/.test(member);

/** In a component, and not for authors: the parts of its toolchain and of the SDK. */
const INTERNAL = new Set(["__core-js_shared__", "__cqjs", "gristmillBundle", "wit"]);

/** In QuickJS beside ES2023: what is older, and what is newer. */
const OTHER_EDITIONS = new Set([
  ...["escape", "unescape"],
  ...["AsyncDisposableStack", "DisposableStack", "Float16Array", "Iterator", "SuppressedError"],
  ...["InternalError", "globalThis", "undefined"],
]);

/** Members that objects have by the language, or that no code has used for ten years. */
const isCommon = (member) =>
  ["constructor", "prototype", "length", "name", "toString", "message"].includes(member) ||
  /^[A-Z_]+$/.test(member) ||
  // A mark of core-js.
  member === "sham";

/** By name: the members of each global value that is declared, and whether the SDK declares it. */
function declared() {
  const path = join(HERE, "tsconfig.json");
  const { config } = ts.readConfigFile(path, ts.sys.readFile);
  const { options, fileNames } = ts.parseJsonConfigFileContent(config, ts.sys, HERE, {}, path);
  const program = ts.createProgram(fileNames, options);
  const checker = program.getTypeChecker();
  const file = program.getSourceFile(join(HERE, "types.ts"));
  const namesOf = (type) =>
    type
      .getProperties()
      .filter(({ name, flags }) => !name.startsWith("__@") && !(flags & ts.SymbolFlags.Optional))
      .map(({ name }) => name);
  const globals = new Map();
  const modules = new Map();
  for (const symbol of checker.getSymbolsInScope(file, ts.SymbolFlags.Value)) {
    const source = symbol.declarations?.[0]?.getSourceFile();
    if (!source || source === file) continue;
    const isOwn = source.fileName.endsWith("/globals.d.ts");
    if (symbol.name.startsWith('"')) {
      if (isOwn) modules.set(symbol.name.slice(1, -1), [...symbol.exports.keys()]);
      continue;
    }
    const type = checker.getTypeOfSymbolAtLocation(symbol, file);
    const prototype = type.getProperty("prototype");
    const inner = prototype ? namesOf(checker.getTypeOfSymbolAtLocation(prototype, file)) : [];
    globals.set(symbol.name, { isOwn, members: [...namesOf(type), ...inner] });
  }
  return { globals, modules };
}

let types;
let real;

before(async () => {
  await deploy(ENDPOINT, `${GRISTMILL_BUILT}/javascript-platform.wasm`);
  types = declared();
  const wanted = Object.fromEntries(
    [...types.globals].map(([name, { members }]) => [name, members]),
  );
  const done = await job(ENDPOINT, { op: "names", wanted });
  assert.equal(done.status, "COMPLETED", JSON.stringify(done));
  real = done.output;
});

test("the declarations are read", () => {
  // Otherwise the other tests would compare nothing.
  for (const name of ["fetch", "URL", "console", "Array"]) assert.ok(types.globals.has(name), name);
  assert.ok(types.globals.get("Headers").members.includes("getSetCookie"));
  assert.deepEqual([...types.modules.keys()].sort(), ["node:fs", "node:fs/promises"]);
});

test("every declared global is there, with its members", () => {
  const missing = [];
  for (const [name, { isThere, missing: members }] of Object.entries(real.roots)) {
    if (NOT_THERE.has(name)) continue;
    if (!isThere) missing.push(name);
    for (const member of members) if (!isLegacy(name, member)) missing.push(`${name}.${member}`);
  }
  assert.deepEqual(missing, []);
});

test("everything that the SDK adds is declared", () => {
  const extra = real.globals.filter(
    (name) => !types.globals.has(name) && !INTERNAL.has(name) && !OTHER_EDITIONS.has(name),
  );
  for (const [name, { isOwn, members }] of types.globals) {
    if (!isOwn) continue;
    for (const member of real.roots[name].own) {
      if (!members.includes(member) && !isCommon(member)) extra.push(`${name}.${member}`);
    }
  }
  assert.deepEqual(extra, []);
});

test("the functions for files are those that are declared", () => {
  for (const [name, exports] of types.modules) {
    const interfaces = ["Dirent", "Stats"];
    const values = exports.filter((name) => !interfaces.includes(name));
    assert.deepEqual(real.modules[name].sort(), values.sort(), name);
  }
});
