// Submits to pg-boss and runs its jobs in the same process. The client gets the result after the job was
// completed. The jobs are fetched in a loop: `work` looks for new ones every half second at most.

import { setTimeout as sleep } from 'node:timers/promises';
import PgBoss from 'pg-boss';
import { inFlight, keepBusy, postgres } from './closed-loop.js';

const boss = new PgBoss({ connectionString: postgres, max: 20 });
boss.on('error', (error) => {
  throw error;
});
await boss.start();
await boss.createQueue('echo');
const waiting = new Map();
let isOver = false;
let count = 0;

async function work() {
  while (!isOver) {
    const jobs = await boss.fetch('echo', { batchSize: inFlight });
    if (!jobs.length) {
      await sleep(2);
      continue;
    }
    await Promise.all(
      jobs.map(async ({ id, data: { number, value } }) => {
        await boss.complete('echo', id, { value });
        waiting.get(number)(value);
        waiting.delete(number);
      }),
    );
  }
}

const working = work();
await keepBusy(async (value) => {
  const number = count++;
  const result = new Promise((resolve) => waiting.set(number, resolve));
  await boss.send('echo', { number, value });
  return result;
});
isOver = true;
await working;
await boss.stop({ graceful: false });
