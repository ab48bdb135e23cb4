// The main calls, by the types that openapi-typescript generates. Arguments: URL, key, image of an echo.
import createClient from 'openapi-fetch';
import type { paths } from './api.js';

const [baseUrl, key, image] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });

function found<T>({ data, error }: { data?: T; error?: unknown }): T {
  if (data === undefined) throw new Error(JSON.stringify(error));
  return data;
}

const template = found(await client.POST('/v1/templates', { body: { name: 'generated-c', imageName: image } }));
const endpoint = found(await client.POST('/v1/endpoints', { body: { templateId: template.id } }));
const path = { endpoint: endpoint.id };
const job = found(await client.POST('/v2/{endpoint}/runsync', { params: { path }, body: { input: { grain: ['rye', 2] } } }));
if (job.status !== 'COMPLETED' || JSON.stringify(job.output) !== '{"grain":["rye",2]}') throw new Error(JSON.stringify(job));
await client.DELETE('/v1/endpoints/{id}', { params: { path: { id: endpoint.id } } });
await client.DELETE('/v1/templates/{templateId}', { params: { path: { templateId: template.id } } });
console.log('1 passed');
