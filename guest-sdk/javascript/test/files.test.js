// Files without a host: paths that no directory has.

import assert from "node:assert/strict";
import { register } from "node:module";
import { test } from "node:test";

const host =
  "data:text/javascript,export const getDirectories = () => [], filesystemErrorCode = undefined;";
const hooks = `export const resolve = (name, context, next) =>
  name.startsWith("gwsi:") ? { url: "${host}", shortCircuit: true } : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
const { appendFile } = await import("../src/files/files.js");

test("a path that no directory has is refused with the remedy", () => {
  const scratch = /^ENOENT: .*--scratch-gb, open "/;
  for (const [path, message] of [
    ["/tmp/x", scratch],
    ["/var/../tmp", scratch],
    ["/tmpx", /^ENOENT: no volume is mounted there, open "\/tmpx"/],
    ["tmp/x", /^ENOENT: the path must be absolute, open "tmp\/x"/],
  ]) {
    assert.throws(() => appendFile(path, "a"), { code: "ENOENT", path, message });
  }
});
