// Deploys a component, as `gristmill deploy` does: uploads it under an image name, and makes or changes the
// template and the endpoint of the same name.
import { json, seg } from './api.js';

/**
 * @param {string} name @param {string} imageName @param {Blob} file
 * @param {false | { endpoint?: any, templates: any[] }} known what is there already; false uploads only
 * @param {(step: string) => void} [onStep]
 */
export async function put(name, imageName, file, known, onStep = () => {}) {
  onStep('Uploading and compiling …');
  await json(`v1/handlers/${imageName}`, { method: 'PUT', raw: file, type: 'application/wasm' });
  if (!known) return;
  onStep('Setting the template …');
  const templateId = known.endpoint?.templateId ?? name;
  if (known.templates.some((t) => t.id === templateId)) await json(`v1/templates/${seg(templateId)}`, { method: 'PATCH', body: { imageName } });
  else await json('v1/templates', { method: 'POST', body: { id: templateId, name, imageName, category: 'CPU', isServerless: true } });
  onStep('Setting the endpoint …');
  if (!known.endpoint) await json('v1/endpoints', { method: 'POST', body: { id: name, name, templateId } });
}
