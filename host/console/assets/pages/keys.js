// API keys. The text of a new key is shown once, here, and nowhere else.
import { html } from '../lib/html.js';
import { date } from '../lib/format.js';
import { session } from '../lib/session.js';
import { Field, Time, Copy } from '../ui/parts.js';
import { Collection } from '../ui/collection.js';

const SCOPES = [['submit', 'submit jobs, and read'], ['read', 'read jobs'], ['manage', 'deploy and change'], ['metrics', 'read metrics'], ['admin', 'everything']];
const kind = {
  title: 'Keys', one: 'Key', path: 'v1/keys', remove: 'Revoke', sub: 'A key has an owner and scopes. The host keeps only a hash of it.',
  empty: { title: 'No key', text: '', command: 'gristmill keys create --name shop --scope submit' },
  head: ['Name', 'Id', 'Owner', 'Scopes', 'Endpoints', 'Created', 'Expires'], first: { name: '', owner: '', endpoints: '', days: '', submit: true },
  row: (k) => html`<td><b>${k.name}</b>${k.id === session.value?.key.id && html` <span class="tag">this session</span>`}</td><td class="mono">${k.id}</td><td>${k.owner}</td><td>${k.scopes.map((s) => html`<span class="tag" key=${s}>${s}</span> `)}</td><td>${k.endpoints?.length ? k.endpoints.join(', ') : html`<span class="faint">all</span>`}</td><td><${Time} at=${k.createdAt} show=${date}/></td><td>${k.expiresAt ? html`<${Time} at=${k.expiresAt} show=${date}/>` : html`<span class="faint">never</span>`}</td>`,
  form: (v, set) => html`<${Field} label="Name"><input required value=${v.name} onInput=${set('name')}/></${Field}><${Field} label="Owner" hint="empty: the operator"><input value=${v.owner} onInput=${set('owner')}/></${Field}><fieldset class="wide scopes"><legend>Scopes</legend>${SCOPES.map(([s, t]) => html`<label class="check" key=${s}><input type="checkbox" checked=${!!v[s]} onChange=${set(s)}/><b>${s}</b> <span class="faint">${t}</span></label>`)}</fieldset><${Field} label="Only these endpoints" hint="ids with spaces; empty: all"><input value=${v.endpoints} onInput=${set('endpoints')}/></${Field}><${Field} label="Expires after (days)" hint="empty: never"><input type="number" min="1" value=${v.days} onInput=${set('days')}/></${Field}>`,
  body: (v) => ({ name: v.name, scopes: SCOPES.map(([s]) => s).filter((s) => v[s]), ...(v.owner ? { owner: v.owner } : {}), ...(v.endpoints.trim() ? { endpoints: v.endpoints.trim().split(/[\s,]+/) } : {}), ...(v.days ? { expiresInSeconds: Number(v.days) * 86400 } : {}) }),
  removal: (k) => k.id === session.value?.key.id ? 'This is the key of your own session, which then ends.' : 'Calls with it are refused at once, and its sessions of the console end.',
  made: (k) => html`<div class="note" role="status"><b>The key is shown only now.</b> Copy it before you leave this page.<div class="command"><pre tabindex="0" aria-label="New key"><code>${k.key ?? k.text}</code></pre><${Copy} text=${k.key ?? k.text}/></div></div>`,
};
export const Page = () => html`<${Collection} kind=${kind}/>`;
