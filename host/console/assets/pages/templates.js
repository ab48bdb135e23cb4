// Templates by category, each with its readme and what it runs, a way to make an endpoint of it, and a form for a
// new one.
import { html, useState } from '../lib/html.js';
import { json, list, seg, query as queryOf } from '../lib/api.js';
import { argsFault, argsOf, argsText, envFault, envOf, envText } from '../lib/env.js';
import { useLoad } from '../lib/load.js';
import { link, go } from '../lib/router.js';
import { shortImage } from '../lib/format.js';
import { visible } from '../lib/text.js';
import { Head, Trouble, Loading, Button, Facts, Empty, Field, Copy } from '../ui/parts.js';
import { Dialog, ask } from '../ui/dialog.js';
import { Markdown } from '../ui/markdown.js';
import { say } from '../ui/toast.js';

const every = { includeEndpointBoundTemplates: true, includePublicTemplates: true, includePlatformTemplates: true };
const first = (t) => (t.readme ?? '').split('\n').find((l) => l.trim() && !l.startsWith('#'))?.replace(/[\x60*]/g, '') ?? '';

function Create({ template, onClose }) {
  const [id, setId] = useState(template.name.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, ''));
  const make = async () => { await json('v1/endpoints', { method: 'POST', body: { id, name: id, templateId: template.id } }); say(`${id} is ready for jobs.`); go(link(['endpoints', id])); };
  return html`<${Dialog} title=${`An endpoint of ${template.name}`} onClose=${onClose}><${Field} label="Id" hint="A part of the address of its jobs"><input value=${id} onInput=${(e) => setId(e.target.value)}/></${Field}><footer><${Button} onClick=${onClose}>Not now</${Button}><${Button} kind="primary" disabled=${!id} onClick=${make}>Make the endpoint</${Button}></footer></${Dialog}>`;
}
/**
 * Changes a template, or makes one. A change has only the fields that differ from those at the opening: a field that
 * another client changes meanwhile stays, and an image is fetched only where it was changed.
 * @param {{ template?: any, onClose: () => void, onDone: () => Promise<void> }} props
 */
function Edit({ template, onClose, onDone }) {
  const [was] = useState({ name: template?.name ?? '', imageName: template?.imageName ?? '', readme: template?.readme ?? '', env: envText(template?.env), args: argsText(template?.dockerStartCmd), auth: template?.containerRegistryAuthId ?? '' });
  const auths = useLoad((s) => list('v1/containerregistryauth', s), []);
  const [t, set] = useState(was);
  const on = (n) => (e) => set({ ...t, [n]: e.target.value });
  const fault = envFault(t.env) ?? argsFault(t.args);
  const save = async () => {
    const all = { imageName: t.imageName, readme: t.readme, env: envOf(t.env), dockerStartCmd: argsOf(t.args), ...(t.auth || template ? { containerRegistryAuthId: t.auth } : {}) };
    const made = template ? undefined : await json('v1/templates', { method: 'POST', body: { ...all, name: t.name, category: 'CPU', isServerless: true } });
    if (!made) {
      const is = { imageName: t.imageName !== was.imageName, readme: t.readme !== was.readme, env: t.env !== was.env, dockerStartCmd: t.args !== was.args, containerRegistryAuthId: t.auth !== was.auth };
      const body = Object.fromEntries(Object.entries(all).filter(([n]) => is[n]));
      if (!Object.keys(body).length) { onClose(); return; }
      await json(`v1/templates/${seg(template.id)}`, { method: 'PATCH', body });
    }
    say(made ? 'The template is made.' : 'Saved. Its endpoints run it from their next job on.');
    await onDone();
    onClose();
    if (made) go(link(['templates', made.id]));
  };
  return html`<${Dialog} wide title=${template ? `Change ${template.name}` : 'New template'} onClose=${onClose}>${!template && html`<${Field} label="Name"><input value=${t.name} onInput=${on('name')}/></${Field}>`}<${Field} label="Image" hint="a handler of this host, such as count:latest, or an image of a registry"><input value=${t.imageName} onInput=${on('imageName')}/></${Field}>${(t.imageName.includes('/') || t.auth) && html`<${Field} label="Credential" hint=${html`for private images; <a href="#/registries">Registries</a> has them. Each is sent to its own registry only.`}><select value=${t.auth} onChange=${on('auth')}><option value="">none</option>${(auths.data ?? []).map((a) => html`<option key=${a.id} value=${a.id}>${visible(a.name)} (${visible(a.registry)})</option>`)}</select></${Field}>`}<${Field} label="Environment" hint="one NAME=value a line; a value with line breaks as a JSON string"><textarea rows="3" value=${t.env} onInput=${on('env')}></textarea></${Field}><${Field} label="Arguments" hint="one a line; an empty one, or one with line breaks, as a JSON string"><textarea rows="2" value=${t.args} onInput=${on('args')}></textarea></${Field}><${Field} label="Readme"><textarea rows="10" value=${t.readme} onInput=${on('readme')}></textarea></${Field}>${fault && html`<p class="wrong" role="alert">${fault}</p>`}<footer><${Button} onClick=${onClose}>Not now</${Button}><${Button} kind="primary" disabled=${!!fault || !t.imageName || !template && !t.name} onClick=${save}>${template ? 'Save' : 'Make the template'}</${Button}></footer></${Dialog}>`;
}

/** @param {{ path: string[] }} props */
export function Page({ path: [, id] }) {
  const { data, error, reload } = useLoad((s) => list(`v1/templates${queryOf(every)}`, s), [], { keep: true });
  const [dialog, setDialog] = useState('');
  const t = id && data?.find((x) => x.id === id);
  const remove = async () => { if (!await ask(`Delete ${t.name}?`, 'The host refuses this while an endpoint uses it.', 'Delete it')) return; await json(`v1/templates/${seg(id)}`, { method: 'DELETE' }); await reload(); go('#/templates'); };
  if (id) return html`<${Head} title=${t?.name ?? id} crumbs=${[['Templates', '#/templates']]}>${t && html`<${Button} kind="primary" onClick=${() => setDialog('create')}>Make an endpoint …</${Button}><${Button} onClick=${() => setDialog('edit')}>Change …</${Button}><${Button} kind="danger" onClick=${remove}>Delete …</${Button}>`}</${Head}><${Trouble} error=${error} retry=${reload}/>
    ${!data ? html`<${Loading}/>` : !t ? html`<${Empty} title="No such template"/>` : html`<section class="panel"><div class="body"><${Facts} pairs=${[['Image', html`<span class="mono">${t.imageName}</span>`], ['Id', html`<span class="mono">${t.id}</span> <${Copy} text=${t.id}/>`], ['Credential', t.containerRegistryAuthId && html`<span class="mono">${t.containerRegistryAuthId}</span>`], ['Category', t.category], ['Scratch space', t.containerDiskInGb ? `${t.containerDiskInGb} GB` : 'none'], ['Volume at', t.volumeMountPath || '/workspace'], ['Seen by', t.isPlatform ? 'everyone, from the operator' : t.isPublic ? 'everyone' : 'its owner'], ['Environment', Object.keys(t.env ?? {}).length ? Object.entries(t.env).map(([k, v]) => html`<code key=${k}>${k}=${v}</code> `) : 'empty']]}/></div></section>
      <section class="panel"><header><h2>Readme</h2></header><div class="body">${t.readme ? html`<${Markdown} text=${t.readme}/>` : html`<p class="faint">This template has no readme. “Change …” adds one.</p>`}</div></section>
      ${dialog === 'create' && html`<${Create} template=${t} onClose=${() => setDialog('')}/>`}${dialog === 'edit' && html`<${Edit} template=${t} onClose=${() => setDialog('')} onDone=${reload}/>`}`}`;
  const groups = new Map();
  for (const x of data ?? []) { const g = x.isPlatform ? `${x.category} · from the platform` : x.isPublic ? `${x.category} · public` : x.category; groups.set(g, [...(groups.get(g) ?? []), x]); }
  return html`<${Head} title="Templates" sub="A template names a handler with its arguments and environment; endpoints run templates."><${Button} kind="primary" onClick=${() => setDialog('new')}>New template …</${Button}></${Head}><${Trouble} error=${error} retry=${reload}/>
    ${!data ? html`<${Loading}/>` : !data.length ? html`<section class="panel"><${Empty} title="No template yet" command="gristmill deploy count">A deploy makes a template of the same name.</${Empty}></section>` : [...groups].map(([g, l]) => html`<section key=${g}><h2 class="group">${g}</h2><div class="cards">${l.map((x) => html`<a class="card" key=${x.id} href=${link(['templates', x.id])}><b>${x.name}</b><span class="mono faint" title=${x.imageName}>${shortImage(x.imageName)}</span><p>${first(x) || html`<span class="faint">no readme</span>`}</p></a>`)}</div></section>`)}${dialog === 'new' && html`<${Edit} onClose=${() => setDialog('')} onDone=${reload}/>`}`;
}
