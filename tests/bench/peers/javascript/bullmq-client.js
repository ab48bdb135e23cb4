// Submits to BullMQ and waits for each result.

import { Queue, QueueEvents } from 'bullmq';
import { keepBusy, redis } from './closed-loop.js';

const connection = { host: '127.0.0.1', port: redis, maxRetriesPerRequest: null };
const queue = new Queue('echo', { connection });
// From the first event on: none that comes before the first read is missed.
const events = new QueueEvents('echo', { connection, lastEventId: '0-0' });
// Every job in flight listens for its end.
queue.setMaxListeners(0);
events.setMaxListeners(0);
await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);
await keepBusy(async (input) => (await queue.add('echo', input)).waitUntilFinished(events, 60_000));
await Promise.all([queue.close(), events.close()]);
