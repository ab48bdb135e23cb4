// Lets Node run TypeScript handlers in tests: `node --import gristmill-sdk/typescript --test`. Types
// are stripped as the build does it, with esbuild, and not checked.

import { register } from "node:module";

register("./typescript-hooks.js", import.meta.url);
