// What the web platform has and QuickJS lacks, as little of it as handlers need: promises that can
// be driven to their end, timers, random numbers, text encoding. Imported before anything else.

import "./promise.js";
import "./random.js";
import "./text.js";

export { wait } from "./event-loop.js";
