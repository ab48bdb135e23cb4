// A page for a list of simple objects: a table, a form that makes or changes one, and a button that removes one.
// The pages Volumes, Registries and Keys are three uses of it.
import { html, useState } from '../lib/html.js';
import { json, list, seg } from '../lib/api.js';
import { useLoad } from '../lib/load.js';
import { Head, Table, Trouble, Loading, Button, Empty } from './parts.js';
import { Dialog, ask } from './dialog.js';
import { say } from './toast.js';

/**
 * @typedef {{ title: string, sub: string, one: string, path: string, empty: { title: string, text: string, command: string },
 *   head: any[], row: (item: any) => any, form: (value: any, set: (name: string) => (e: any) => void) => any, first: any,
 *   body: (value: any, before: any) => any, change?: (item: any) => any, removal: (item: any) => string, remove?: string, made?: (answer: any) => any }} Kind
 * `change`: the form's value for an object that can be changed, or a promise of it. `body`: what is sent for a form's
 * value that was `before`; a string is sent as it is.
 * @param {{ kind: Kind }} props
 */
export function Collection({ kind }) {
  const { data, error, reload } = useLoad((s) => list(kind.path, s), [kind.path], { keep: true });
  const [value, setValue] = useState(/** @type {any} */ (null));
  const [changed, setChanged] = useState(/** @type {any} */ (null));
  const [before, setBefore] = useState(/** @type {any} */ (null));
  const [made, setMade] = useState(/** @type {any} */ (null));
  const [wrong, setWrong] = useState(/** @type {any} */ (null));
  const set = (name) => (e) => setValue((v) => ({ ...v, [name]: e.target.type === 'checkbox' ? e.target.checked : e.target.value }));
  const [busy, setBusy] = useState(false);
  const make = async () => {
    setWrong(null);
    setBusy(true);
    try {
      const body = kind.body(value, before);
      const sent = typeof body === 'string' ? { raw: body } : { body };
      const answer = await (changed ? json(`${kind.path}/${seg(changed.id)}`, { method: 'PATCH', ...sent }) : json(kind.path, { method: 'POST', ...sent }));
      setValue(null);
      if (kind.made) setMade(kind.made(answer)); else say(`${kind.one} is ${changed ? 'changed' : 'made'}.`);
      await reload();
    } catch (e) { setWrong(e); } finally { setBusy(false); }
  };
  const open = (first, item) => { setValue(first); setBefore(first); setChanged(item); setMade(null); setWrong(null); };
  const remove = async (item) => {
    const verb = kind.remove ?? 'Delete';
    if (!await ask(`${verb} ${item.name}?`, kind.removal(item), `${verb} it`)) return;
    await json(`${kind.path}/${seg(item.id)}`, { method: 'DELETE' });
    await reload();
  };
  return html`<${Head} title=${kind.title} sub=${kind.sub}><${Button} kind="primary" onClick=${() => open(kind.first, null)}>New ${kind.one.toLowerCase()} …</${Button}></${Head}><${Trouble} error=${error} retry=${reload}/>${made}
    <section class="panel">${!data ? error ? null : html`<${Loading}/>` : !data.length ? html`<${Empty} title=${kind.empty.title} command=${kind.empty.command}>${kind.empty.text}</${Empty}>` : html`<${Table} label=${kind.title} head=${[...kind.head, ['', 'n']]}>${data.map((x) => html`<tr key=${x.id}>${kind.row(x)}<td class="n">${kind.change && html`<${Button} small aria-label=${`Change ${x.name}`} onClick=${async () => open(await kind.change?.(x), x)}>Change</${Button}> `}<${Button} small kind="danger" aria-label=${`${kind.remove ?? 'Delete'} ${x.name}`} onClick=${() => remove(x)}>${kind.remove ?? 'Delete'}</${Button}></td></tr>`)}</${Table}>`}</section>
    ${value && html`<${Dialog} title=${changed ? `Change ${changed.name}` : `New ${kind.one.toLowerCase()}`} onClose=${() => setValue(null)}><${Trouble} error=${wrong}/><form class="form" onSubmit=${(e) => { e.preventDefault(); if (!busy) make(); }}>${kind.form(value, set)}<div class="wide actions"><${Button} type="submit" kind="primary" disabled=${busy}>${changed ? 'Save' : 'Make it'}</${Button}><${Button} onClick=${() => setValue(null)}>Not now</${Button}></div></form></${Dialog}>`}`;
}
