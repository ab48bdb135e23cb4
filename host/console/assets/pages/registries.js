// Credentials for registries from which templates fetch their images.
import { html } from '../lib/html.js';
import { date } from '../lib/format.js';
import { Field, Time } from '../ui/parts.js';
import { Collection } from '../ui/collection.js';

const kind = {
  title: 'Registries', one: 'Credential', path: 'v1/containerregistryauth', sub: 'Credentials for fetching handlers from registries. Each is sent to its one registry only, and its password is never shown.',
  empty: { title: 'No credential yet', text: 'Public images need none.', command: 'gristmill registry-auths create --name ghcr --registry ghcr.io --username mill' },
  head: ['Name', 'Registry', 'User', 'Created'], first: { name: '', registry: 'docker.io', username: '', password: '' },
  row: (r) => html`<td><b>${r.name}</b></td><td class="mono">${r.registry}</td><td>${r.username}</td><td><${Time} at=${r.createdAt} show=${date}/></td>`,
  form: (v, set) => html`<${Field} label="Name"><input required value=${v.name} onInput=${set('name')}/></${Field}><${Field} label="Registry"><input required value=${v.registry} onInput=${set('registry')}/></${Field}><${Field} label="User"><input required autocomplete="off" value=${v.username} onInput=${set('username')}/></${Field}><${Field} label="Password or token"><input type="password" required autocomplete="new-password" value=${v.password} onInput=${set('password')}/></${Field}>`,
  body: (v) => v, removal: () => 'The host refuses this while a template uses it.',
};
export const Page = () => html`<${Collection} kind=${kind}/>`;
