// Submits to graphile-worker and runs its worker in the same process. The library keeps no results, so the
// task gives its result to the client, before the worker deletes the job.

import { Logger, run } from 'graphile-worker';
import { keepBusy, postgres } from './closed-loop.js';

const waiting = new Map();
const runner = await run({
  connectionString: postgres,
  // As in the library's own test of its speed. Its batches need a version for Node 22.
  concurrency: 24,
  maxPoolSize: 25,
  noHandleSignals: true,
  logger: new Logger(() => () => {}),
  taskList: {
    echo: async ({ number, value }) => {
      waiting.get(number)(value);
      waiting.delete(number);
    },
  },
});
let count = 0;
await keepBusy(async (value) => {
  const number = count++;
  const result = new Promise((resolve) => waiting.set(number, resolve));
  await runner.addJob('echo', { number, value });
  return result;
});
await runner.stop();
