// Submits to BullMQ, waits for each result, and prints one JSON object, as `load --url` does: a job
// counts when it was begun in the measured time, which follows the warm-up.

import { deepStrictEqual } from 'node:assert';
import { parseArgs } from 'node:util';
import { Queue, QueueEvents } from 'bullmq';

const text = { type: 'string' };
const { values } = parseArgs({
  options: { redis: text, body: text, connections: text, 'warm-up': text, seconds: text },
});
const input = JSON.parse(values.body);
const seconds = Number(values.seconds);
const connection = { host: '127.0.0.1', port: Number(values.redis), maxRetriesPerRequest: null };
const queue = new Queue('echo', { connection });
// From the first event on: none that comes before the first read is missed.
const events = new QueueEvents('echo', { connection, lastEventId: '0-0' });
// Every job in flight listens for its end.
queue.setMaxListeners(0);
events.setMaxListeners(0);
await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);

const warm = performance.now() + Number(values['warm-up']) * 1000;
const end = warm + seconds * 1000;
const latencies = [];

async function keepBusy() {
  for (;;) {
    const begun = performance.now();
    if (begun >= end) return;
    const job = await queue.add('echo', input);
    deepStrictEqual(await job.waitUntilFinished(events, 60_000), input);
    if (begun >= warm) latencies.push(performance.now() - begun);
  }
}

await Promise.all(Array.from({ length: Number(values.connections) }, keepBusy));
latencies.sort((a, b) => a - b);
const quantile = (part) => latencies[Math.floor(part * (latencies.length - 1))];
console.log(
  JSON.stringify({
    jobsPerS: latencies.length / seconds,
    p50Ms: quantile(0.5),
    p99Ms: quantile(0.99),
  }),
);
await Promise.all([queue.close(), events.close()]);
