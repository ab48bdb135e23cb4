// The echo handler as a service of Restate. Usage: restate-service.js PORT

import { createServer } from 'node:http2';
import * as restate from '@restatedev/restate-sdk';

// The SDK is written for Node 22; this is all that Node 20 lacks for it.
Promise.withResolvers ??= () => {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
};

const echo = restate.service({ name: 'echo', handlers: { echo: async (_, input) => input } });
const handler = restate.createEndpointHandler({ services: [echo] });
createServer(handler).listen(Number(process.argv[2]), '127.0.0.1', () => console.log('ready'));
