// Handlers: the uploaded components, who uses them, and the place to drop a new one. A drop uploads the
// component and, if asked, makes or changes the template and the endpoint of the same name, as
// `gristmill deploy` does.
import { html, useEffect, useRef, useState } from '../lib/html.js';
import { json, list } from '../lib/api.js';
import { put } from '../lib/deploy.js';
import { useLoad } from '../lib/load.js';
import { link, go } from '../lib/router.js';
import { bytes, duration, brief, num } from '../lib/format.js';
import { Head, Table, Time, Trouble, Loading, Button, Field, Facts, Empty } from '../ui/parts.js';
import { Dialog, ask } from '../ui/dialog.js';
import { say } from '../ui/toast.js';

const all = 'includeEndpointBoundTemplates=true';
const names = (h) => h.language?.length ? h.language.map((l) => l.name ?? l).join(', ') : (h.toolchain ?? []).some((t) => /rust/i.test(t.name)) ? 'Rust' : '–';

/** @param {{ file: File, endpoints: any[], templates: any[], onClose: () => void, onDone: () => void }} props */
function Deploy({ file, endpoints, templates, onClose, onDone }) {
  const [name, setName] = useState(file.name.replace(/\.wasm$/, '').toLowerCase().replace(/[^a-z0-9-]+/g, '-').replace(/^-+|-+$/g, '') || 'handler');
  const [tag, setTag] = useState('latest');
  const [deploy, setDeploy] = useState(true);
  const [step, setStep] = useState('');
  const [error, setError] = useState(/** @type {any} */ (null));
  const there = endpoints.find((e) => e.id === name);
  const open = useRef(true);
  useEffect(() => () => { open.current = false; }, []);
  const run = async () => {
    setError(null);
    try {
      const imageName = `${name}:${tag}`;
      await put(name, imageName, file, deploy && { endpoint: there, templates }, setStep);
      say(deploy ? `${name} runs ${imageName}.` : `${imageName} is uploaded.`);
      onDone();
      // The user may be on another page by then.
      if (!open.current) return;
      if (deploy) go(link(['endpoints', name])); else onClose();
    } catch (e) {
      if (open.current) { setError(e); setStep(''); } else say(`${name} is not deployed. ${e.message}`, 'bad');
    }
  };
  return html`<${Dialog} title="Deploy a handler" onClose=${onClose}><p class="faint">${file.name}, ${bytes(file.size)}</p><${Trouble} error=${error}/>
    <form class="form" onSubmit=${(e) => { e.preventDefault(); run(); }}><${Field} label="Name"><input required pattern="[A-Za-z0-9_\\-]+" value=${name} onInput=${(e) => setName(e.target.value)}/></${Field}><${Field} label="Tag"><input required value=${tag} onInput=${(e) => setTag(e.target.value)}/></${Field}>
      <label class="check wide"><input type="checkbox" checked=${deploy} onChange=${(e) => setDeploy(e.target.checked)}/>${there ? html`Change the endpoint ${name} to it` : html`Make an endpoint ${name} for it`}</label>
      <div class="wide actions"><${Button} type="submit" kind="primary" disabled=${!!step || !name}>${deploy ? 'Deploy' : 'Upload'}</${Button}><span class="faint" role="status">${step}</span></div></form></${Dialog}>`;
}

/** @param {{ path: string[] }} props */
export function Page({ path: [, one] }) {
  const { data, error, reload } = useLoad(async (s) => {
    const [handlers, templates, endpoints] = await Promise.all([list('v1/handlers', s), list(`v1/templates?${all}`, s), list('v1/endpoints', s)]);
    return { handlers, templates, endpoints };
  }, [], { keep: true });
  const [file, setFile] = useState(/** @type {File | null} */ (null));
  const [over, setOver] = useState(false);
  const chooser = useRef(/** @type {HTMLInputElement | null} */ (null));
  const take = (f) => {
    if (!f) return;
    if (f.size > 64 * 1048576) { say('A component may have 64 MB at most.', 'bad'); return; }
    setFile(f);
  };
  const users = (h) => (data?.endpoints ?? []).filter((e) => data?.templates.find((t) => t.id === e.templateId)?.imageName === h.image);
  const remove = async (h) => {
    if (!await ask(`Remove ${h.image}?`, 'Templates that name it then refer to nothing. The host refuses this while an endpoint runs it.', 'Remove it')) return;
    await json(`v1/handlers/${h.image}`, { method: 'DELETE' });
    await reload();
    go('#/handlers');
  };
  const h = one && data?.handlers.find((x) => x.image === one);
  return html`<${Head} title=${one ?? 'Handlers'} crumbs=${one ? [['Handlers', '#/handlers']] : undefined} sub=${one ? undefined : 'Compiled WebAssembly components. Endpoints run them by name and tag.'}>${h && html`<${Button} kind="danger" onClick=${() => remove(h)}>Remove …</${Button}>`}</${Head}>
    <${Trouble} error=${error} retry=${reload}/>
    ${one ? !data ? html`<${Loading}/>` : !h ? html`<${Empty} title="No such handler">It was removed, or never uploaded here.</${Empty}>` : html`<section class="panel"><div class="body"><${Facts} pairs=${[['Size', bytes(h.sizeInBytes)], ['Uploaded', html`<${Time} at=${h.updatedAt} show=${brief}/>`], ['Compiled in', duration(h.compileMs)], ['Language', names(h)], ['Used by', users(h).length ? users(h).map((e) => html`<a key=${e.id} href=${link(['endpoints', e.id])}>${e.id}</a> `) : 'no endpoint'], ['SHA-256', html`<span class="mono hash">${h.sha256}</span>`]]}/></div></section>
      <div class="two">${[['Imports', h.imports], ['Exports', h.exports], ['Toolchain', (h.toolchain ?? []).map((t) => `${t.name} ${t.version}`)]].map(([t, l]) => html`<section class="panel" key=${t}><header><h2>${t}</h2><span class="faint">${num(l.length)}</span></header><div class="body bars">${l.map((x, i) => html`<code key=${i}>${x}</code>`)}</div></section>`)}</div>`
    : html`<div class=${`drop ${over ? 'over' : ''}`} onDragOver=${(e) => { e.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${(e) => { e.preventDefault(); setOver(false); take(e.dataTransfer.files[0]); }}><b>Drop a component here to deploy it</b><span>A <code>.wasm</code> file as <code>gristmill build</code> writes it, 64 MB at most.</span><${Button} onClick=${() => chooser.current?.click()}>Choose a file …</${Button}><input ref=${chooser} class="off-screen" type="file" accept=".wasm,application/wasm" aria-label="Component to deploy" tabindex="-1" onChange=${(e) => { take(e.target.files[0]); e.target.value = ''; }}/></div>
      <section class="panel">${!data ? html`<${Loading}/>` : !data.handlers.length ? html`<${Empty} title="No handler yet" command=${'gristmill new count --lang rust\ngristmill build count && gristmill deploy count'}>Drop one above, or deploy a project from a shell.</${Empty}>` : html`<${Table} label="Handlers" head=${['Image', 'Used by', 'Language', ['Size', 'n'], ['Compiled in', 'n'], 'Digest', 'Uploaded']}>${data.handlers.map((x) => html`<tr key=${x.image}><td><a class="endpoint-name" href=${link(['handlers', x.image])}>${x.name}<span class="faint">:${x.tag}</span></a></td><td>${users(x).length ? users(x).map((e) => html`<a key=${e.id} href=${link(['endpoints', e.id])}>${e.id}</a> `) : html`<span class="faint">–</span>`}</td><td>${names(x)}</td><td class="n">${bytes(x.sizeInBytes)}</td><td class="n">${duration(x.compileMs)}</td><td class="mono">${x.sha256.slice(0, 12)}</td><td><${Time} at=${x.updatedAt} show=${brief}/></td></tr>`)}</${Table}>`}</section>`}
    ${file && html`<${Deploy} file=${file} endpoints=${data?.endpoints ?? []} templates=${data?.templates ?? []} onClose=${() => setFile(null)} onDone=${() => { reload(); }}/>`}`;
}
