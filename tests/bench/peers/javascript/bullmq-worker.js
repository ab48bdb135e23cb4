// The worker of BullMQ: runs as many jobs at one time as are in flight.
// Usage: bullmq-worker.js REDIS_PORT CONCURRENCY

import { Worker } from 'bullmq';

const [port, concurrency] = process.argv.slice(2).map(Number);
const worker = new Worker('echo', async (job) => job.data, {
  connection: { host: '127.0.0.1', port, maxRetriesPerRequest: null },
  concurrency,
});
await worker.waitUntilReady();
console.log('ready');
