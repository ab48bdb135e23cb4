// Starts the page: asks who is logged in, then shows the login or the frame. Nothing else runs before.
import { html, render } from './lib/html.js';
import './lib/settings.js';
import { open, session } from './lib/session.js';
import { Login } from './pages/login.js';
import { Shell } from './ui/shell.js';
import { Toasts } from './ui/toast.js';

const App = () => html`${session.value === undefined ? html`<div class="boot" role="status">Gristmill</div>`
  : session.value === null ? html`<${Login}/>` : html`<${Shell}/>`}<${Toasts}/>`;

const root = /** @type {HTMLElement} */ (document.getElementById('app'));
await open();
root.textContent = '';
render(html`<${App}/>`, root);
