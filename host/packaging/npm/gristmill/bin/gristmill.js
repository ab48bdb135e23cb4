#!/usr/bin/env node
// Runs the program of this machine's processor, which is in a package of its own.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const name = `gristmill-${process.platform}-${process.arch}`;

function program() {
  try {
    return require.resolve(`${name}/gristmill`);
  } catch {
    console.error(
      `error: the package ${name} is not installed. Gristmill runs on Linux with an x86-64 or ARM64 processor; ` +
        "there, install it without --omit=optional.",
    );
    process.exit(1);
  }
}

const file = program();
const words = process.argv.slice(2);
if (process.execve) {
  // Node 22.15 and later: the program takes the place of this process, so that it gets all signals.
  process.execve(file, [file, ...words], process.env);
}
const child = spawn(file, words, { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  // A terminal sends SIGINT to both processes.
  process.on(signal, () => signal === "SIGINT" && process.stdin.isTTY || child.kill(signal));
}
child.on("error", (error) => {
  console.error(`error: cannot run ${file}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
