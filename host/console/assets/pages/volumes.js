// Network volumes: persistent directories that endpoints share. Without an id in the address the page is their list,
// with one it is the files of that volume.
import { html } from '../lib/html.js';
import { Field, Copy } from '../ui/parts.js';
import { Collection } from '../ui/collection.js';
import { Files } from '../ui/files.js';
import { link } from '../lib/router.js';
import { visible } from '../lib/text.js';

const kind = {
  title: 'Volumes', one: 'Volume', path: 'v1/networkvolumes', sub: 'Persistent directories for handlers. An endpoint names one in its settings; files stay across jobs, deploys and restarts.',
  empty: { title: 'No volume yet', text: 'A volume keeps files that later jobs need, such as models.', command: 'gristmill volumes create models --size 20' },
  head: ['Name', 'Id', ['Size', 'n']], first: { name: '', size: '10' },
  row: (v) => html`<td><a class="endpoint-name" href=${link(['volumes', v.id])}>${visible(v.name)}</a></td><td><span class="mono">${v.id}</span> <${Copy} text=${v.id}/></td><td class="n">${v.size} GB</td>`,
  form: (v, set) => html`<${Field} label="Name"><input required value=${v.name} onInput=${set('name')}/></${Field}><${Field} label="Size (GB)" hint="1 to 4,000; it can only grow later"><input type="number" min="1" max="4000" required value=${v.size} onInput=${set('size')}/></${Field}>`,
  body: (v) => ({ name: v.name, size: Number(v.size) }), change: (v) => ({ name: v.name, size: String(v.size) }), removal: () => 'All its files are deleted. The host refuses this while an endpoint uses it.',
};

/** @param {{ path: string[], query: URLSearchParams }} props */
export const Page = ({ path: [, id, ...names], query }) => id ? html`<${Files} key=${id} volume=${id} names=${names} after=${query.get('after') ?? ''}/>` : html`<${Collection} kind=${kind}/>`;
