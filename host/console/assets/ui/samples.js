// The samples that the host has: one click deploys one of them, and opens the playground, which runs its first job.
import { html } from '../lib/html.js';
import { call, json, list, seg } from '../lib/api.js';
import { put } from '../lib/deploy.js';
import { useLoad } from '../lib/load.js';
import { link, go } from '../lib/router.js';
import { Button, Trouble } from './parts.js';

let first = { endpoint: '', input: '' };
/** The input of an endpoint's first job, once. @param {string} endpoint */
export function takeFirst(endpoint) {
  const input = endpoint && first.endpoint === endpoint ? first.input : '';
  if (input) first = { endpoint: '', input: '' };
  return input;
}

/** @param {{ name: string, input: string }} sample */
async function deploy({ name, input }) {
  const [file, templates, endpoints] = await Promise.all([
    call(`console/samples/${seg(name)}`).then((r) => r.blob()),
    list('v1/templates?includeEndpointBoundTemplates=true'), list('v1/endpoints')]);
  await put(name, `${name}:latest`, file, { endpoint: endpoints.find((e) => e.id === name), templates });
  first = { endpoint: name, input: JSON.stringify(JSON.parse(input), undefined, 2) };
  go(link(['playground'], { endpoint: name }));
}

export function Samples() {
  const { data, error, reload } = useLoad((s) => json('console/samples', { signal: s }), []);
  return html`<${Trouble} error=${error} retry=${reload}/>${data && html`<div class="samples" role="group" aria-label="Deploy a sample">${data.map((s) => html`<div key=${s.name}><${Button} kind=${s === data[0] ? 'primary' : ''} onClick=${() => deploy(s)}>Deploy “${s.title}”</${Button}><span>${s.about}</span></div>`)}</div>`}`;
}
