// Starts the page: asks who is logged in, then shows the login or the frame. Nothing else runs before.
// When a session ends, the frame stays below the login; a key of another owner or with other scopes gets a new one.
import { html, render } from './lib/html.js';
import './lib/settings.js';
import { open, session, ended, who } from './lib/session.js';
import { Login, Again, link } from './pages/login.js';
import { Shell } from './ui/shell.js';
import { Toasts } from './ui/toast.js';

const App = () => html`${session.value === undefined ? html`<div class="boot" role="status">Gristmill</div>`
  : session.value === null || link.value && !ended.value ? html`<${Login}/>` : html`<${Shell} key=${who()}/>${ended.value && html`<${Again}/>`}`}<${Toasts}/>`;

const root = /** @type {HTMLElement} */ (document.getElementById('app'));
await open();
root.textContent = '';
render(html`<${App}/>`, root);
