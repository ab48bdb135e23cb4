// The files of a network volume. The directory and the page of its list are parts of the address. Names are shown as
// text, with signs for control characters and marks of direction, and are used as they are.
import { html, useEffect, useRef, useState } from '../lib/html.js';
import { call, json, seg, url } from '../lib/api.js';
import { useLoad } from '../lib/load.js';
import { link, go } from '../lib/router.js';
import { bytes, brief } from '../lib/format.js';
import { quote, visible } from '../lib/text.js';
import { Head, Table, Time, Trouble, Loading, Button, Field, Empty, Copy } from './parts.js';
import { Icon } from './icons.js';
import { Dialog, ask } from './dialog.js';
import { say } from './toast.js';
import { Uploads, directory, dropped, fileAt, send } from './uploads.js';

/** Entries of a page: a table of this length is drawn without a pause. */
const PAGE = 200;
/** An argument for a shell, in quotes if it needs them. @param {string} text */
const quoted = (text) => /^[\w@%+=:,./-]+$/.test(text) ? text : quote(text);

/** This dialog makes no call: a directory is made with the first file in it. @param {{ to: (names: string[]) => string, onClose: () => void }} props */
function NewDirectory({ to, onClose }) {
  const [name, setName] = useState('');
  const names = name.split('/').filter(Boolean);
  const wrong = names.some((n) => n === '.' || n === '..') ? 'A directory cannot have the name . or ..' : undefined;
  const open = (e) => { e.preventDefault(); if (names.length && !wrong) { onClose(); go(to(names)); } };
  return html`<${Dialog} title="New directory" onClose=${onClose}><form class="form" onSubmit=${open}><${Field} wide label="Name" hint="The directory is made with the first file that is uploaded to it." error=${wrong}><input required autocomplete="off" spellcheck=${false} value=${name} onInput=${(e) => setName(e.target.value)}/></${Field}><div class="wide actions"><${Button} type="submit" kind="primary" disabled=${!names.length || !!wrong}>Open it</${Button}><${Button} onClick=${onClose}>Not now</${Button}></div></form></${Dialog}>`;
}

/** @param {{ volume: string, names: string[], after: string }} props */
export function Files({ volume, names, after }) {
  const at = names.join('/');
  const about = useLoad((s) => json(`v1/networkvolumes/${seg(volume)}`, { signal: s }), [volume], { keep: true });
  const { data, error, reload } = useLoad((s) => directory(volume, names, { limit: PAGE, cursor: after }, s).then((d) => ({ ...d, at })), [volume, at, after]);
  const [over, setOver] = useState(false);
  const [making, setMaking] = useState(false);
  const chooser = useRef(/** @type {HTMLInputElement | null} */ (null));
  const latest = useRef({ at, reload });
  latest.current = { at, reload };
  const first = useRef(true);
  // The frame does the same for another directory, but another page of a list has the same path.
  useEffect(() => { if (first.current) first.current = false; else top(); }, [after]);
  const top = () => { scrollTo(0, 0); /** @type {HTMLElement | null} */ (document.querySelector('main h1'))?.focus({ preventScroll: true }); };
  const to = (path, values) => link(['volumes', volume, ...path], values);
  // Uploads may end after the user has opened another directory.
  const add = (files) => send(volume, files, () => { if (latest.current.at === at) latest.current.reload(); });
  const choose = (list) => add([...list].map((file) => ({ file, path: [...names, file.name] })));
  const drop = (e) => {
    e.preventDefault();
    setOver(false);
    dropped(e.dataTransfer, names).then(add).catch((x) => say(x.message, 'bad'));
  };
  const drag = (e) => { if (!e.dataTransfer.types.includes('Files')) return; e.preventDefault(); setOver(true); };
  const leave = (e) => { if (!e.currentTarget.contains(e.relatedTarget)) setOver(false); };
  const download = async (name) => {
    const path = fileAt(volume, [...names, name]);
    const stop = new AbortController();
    // This call shows a refusal of the host in its own words. The browser then reads the file to the disk itself;
    // without TLS it sends no proof that the call is this page's own, so the page has to read it.
    const answer = await call(path, { signal: stop.signal });
    const a = document.createElement('a');
    if (isSecureContext) { stop.abort(); a.href = url(path).href; } else a.href = URL.createObjectURL(await answer.blob());
    a.download = name;
    a.click();
    if (!isSecureContext) setTimeout(() => URL.revokeObjectURL(a.href), 60000);
  };
  const remove = async (f) => {
    const all = f.type === 'directory';
    if (!await ask(`Delete ${visible(f.name)}?`, all ? 'The directory is deleted with all files in it. Handlers that use them get errors.' : 'Handlers that have the file open continue with it; for others it does not exist any more.', 'Delete it')) return;
    await call(`${fileAt(volume, [...names, f.name])}${all ? '?recursive=true' : ''}`, { method: 'DELETE' });
    say(`${f.name} is deleted.`);
    if (latest.current.at !== at) return;
    await latest.current.reload();
    top();
  };
  const name = about.data?.name ?? volume;
  // As the command `gristmill volumes` takes it.
  const place = at ? `${volume}:${at}` : volume;
  const missing = error?.status === 404 && about.data;
  // A command with signs in place of characters would not work, so such a directory is left out.
  const target = quoted(`${volume}:${at && at === visible(at) ? `${at}/` : ''}`);
  const empty = missing || data && !data.items.length && !after;
  const trouble = about.error ?? (missing ? undefined : error);
  const retry = () => Promise.all([about.reload(), reload()]);
  return html`<${Head} title=${visible(names.length ? names[names.length - 1] : name)} crumbs=${[['Volumes', '#/volumes'], ...[name, ...names].slice(0, -1).map((n, i) => [n, to(names.slice(0, i))])].map(([n, l]) => [visible(n), l])} sub=${html`<span class="actions"><span class="mono path">${visible(place)}</span><${Copy} text=${place}/>${!names.length && about.data && html`<span>${about.data.size} GB</span>`}</span>`}>
      ${!trouble && html`<${Button} onClick=${() => setMaking(true)}>New directory …</${Button}><${Button} kind="primary" onClick=${() => chooser.current?.click()}>Upload …</${Button}><input ref=${chooser} class="off-screen" type="file" multiple aria-label="Files to upload" tabindex="-1" onChange=${(e) => { choose(e.target.files).catch((x) => say(x.message, 'bad')); e.target.value = ''; }}/>`}</${Head}>
    <${Trouble} error=${trouble} retry=${retry}/><${Uploads} volume=${volume}/>
    ${!trouble && html`<section class=${`panel files ${over ? 'over' : ''}`} aria-label="Files" onDragOver=${drag} onDragLeave=${leave} onDrop=${drop}>${empty ? html`<${Empty} title=${missing ? 'No such directory yet' : names.length ? 'This directory is empty' : 'This volume is empty'} command=${`gristmill volumes cp model.bin ${target}`}>${missing ? 'It is made with the first file that is uploaded to it. ' : ''}Drop files or directories here, or copy them from a shell.</${Empty}>`
      : !data || data.at !== at ? html`<${Loading}/>` : html`<${Table} label="Files and directories" class="files" head=${['Name', ['Size', 'n'], 'Modified', [html`<span class="off-screen">Actions</span>`, 'n']]}>${data.items.map((f) => {
        const text = visible(f.name);
        return html`<tr key=${f.name}><td><${Icon} name=${f.type === 'directory' ? 'directory' : 'file'}/>${f.type === 'directory' ? html`<a class="path" href=${to([...names, f.name])}>${text}</a>` : html`<span class="path">${text}</span>`}</td><td class="n">${f.type === 'file' ? bytes(f.size) : html`<span class="faint">${f.type}</span>`}</td><td><${Time} at=${f.modifiedAt} show=${brief}/></td>
          <td class="n">${f.type === 'file' && html`<${Button} small data-open aria-label=${`Download ${text}`} onClick=${() => download(f.name)}><${Icon} name="download"/><span>Download</span></${Button}> `}<${Button} small kind="danger" aria-label=${`Delete ${text}`} onClick=${() => remove(f)}><${Icon} name="bin"/><span>Delete</span></${Button}></td></tr>`;
      })}</${Table}><div class="bar"><span class="faint">Drop files or directories here to upload them.</span><span class="grow"></span>${after && html`<a class="button small" href=${to(names)}>First page</a>`}${data.next && html`<a class="button small" href=${to(names, { after: data.next })}>Next page</a>`}</div>`}</section>`}
    ${making && html`<${NewDirectory} to=${(more) => to([...names, ...more])} onClose=${() => setMaking(false)}/>`}`;
}
