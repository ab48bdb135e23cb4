// The frame around every page: navigation by what the key may do, the state of the live stream with its
// pause button, the switches for colours and times, and the loading of a page's module when it is opened.
import { html, useEffect, useRef, useState } from '../lib/html.js';
import { route, link } from '../lib/router.js';
import { session, can, bound, logout } from '../lib/session.js';
import { theme, zone, paused } from '../lib/settings.js';
import { away, state, tryNow, useTopics } from '../lib/live.js';
import { clock } from '../lib/format.js';
import { Icon } from './icons.js';
import { Choice, Button, Loading, Empty } from './parts.js';
import { useKeys, Help } from './keys.js';
import { visible } from '../lib/text.js';

/** @type {[string, string, string, string][]} the path, the name, the key after `g`, the scope */
export const PAGES = [
  ['', 'Overview', 'o', 'read'], ['jobs', 'Jobs', 'j', 'read'], ['logs', 'Logs', 'l', 'manage'], ['playground', 'Playground', 'p', 'submit'],
  ['handlers', 'Handlers', 'h', 'manage'], ['templates', 'Templates', 't', 'manage'], ['volumes', 'Volumes', 'v', 'manage'], ['registries', 'Registries', 'r', 'manage'], ['schedules', 'Schedules', 'c', 'manage'],
  ['keys', 'Keys', 'k', 'admin'], ['billing', 'Billing', 'b', 'manage'], ['system', 'System', 's', 'metrics'],
];
const allowed = ([, , , scope]) => can(scope) || (scope === 'read' && can('manage'));
const modules = {
  '': () => import('../pages/overview.js'), endpoints: () => import('../pages/endpoint.js'),
  jobs: () => import('../pages/jobs.js'), job: () => import('../pages/job.js'),
  playground: () => import('../pages/playground.js'), logs: () => import('../pages/logs.js'), handlers: () => import('../pages/handlers.js'),
  templates: () => import('../pages/templates.js'), volumes: () => import('../pages/volumes.js'), registries: () => import('../pages/registries.js'), schedules: () => import('../pages/schedules.js'),
  keys: () => import('../pages/keys.js'), billing: () => import('../pages/billing.js'), system: () => import('../pages/system.js'),
};
/** The pages are there before they are opened, so that a click works also while the host is away. Those who wait for the first one wait for nothing else. */
const PRELOAD_AFTER_MS = 3000;
const STATE = { open: 'Live', waiting: 'Connecting …', refused: 'Not live', off: 'Idle' };

function Side({ open, close, help }) {
  const now = route.value.path[0] ?? '';
  const item = (p) => html`<a key=${p[0]} href=${link(p[0] ? [p[0]] : [])} aria-current=${p[0] === now || (p[0] === '' && now === 'endpoints') ? 'page' : undefined} onClick=${close}>${p[1]}</a>`;
  const own = PAGES.filter(allowed);
  const first = own.findIndex(([n]) => n === 'handlers' || n === 'system'), cut = first < 0 ? own.length : first;
  const s = session.value;
  return html`<aside class=${`side ${open ? 'open' : ''}`} id="side">
    <a class="brand" href="#/"><${Icon} name="mark"/>Gristmill${s?.label && html`<span class="label-host" title=${s.label}>${s.label}</span>`}</a>
    <nav class="nav" aria-label="Main">${own.slice(0, cut).map(item)}</nav>
    ${cut < own.length && html`<nav class="nav" aria-label="Management">${own.slice(cut).map(item)}</nav>`}
    <div class="side-foot">
      <div class="row"><span class=${`live ${paused.value ? '' : state.value}`}><i></i>${paused.value ? 'Paused' : STATE[state.value]}</span><button type="button" class="icon-button" aria-label=${paused.value ? 'Go on with live updates' : 'Pause live updates'} aria-pressed=${paused.value} onClick=${() => { paused.value = !paused.value; }}><${Icon} name=${paused.value ? 'play' : 'pause'}/></button></div>
      <div class="row"><span>Times</span><${Choice} label="Times" value=${zone.value} onChange=${(v) => { zone.value = v; }} options=${[['local', 'Local'], ['utc', 'UTC']]}/></div>
      <div class="row"><span>Theme</span><${Choice} label="Theme" value=${theme.value} onChange=${(v) => { theme.value = v; }} options=${[['auto', 'Auto'], ['light', 'Light'], ['dark', 'Dark']]}/></div>
      <div class="row"><span>Keyboard</span><${Button} small kind="quiet" onClick=${help}>Keys</${Button}></div>
      <div class="row who"><div><b title=${s?.key.name}>${s?.key.name}</b><small>${s?.key.scopes.join(', ')} · ${s?.version}</small></div><${Button} small kind="quiet" onClick=${logout}>Log out</${Button}></div>
    </div></aside>`;
}

function Page() {
  const r = route.value;
  const name = r.path[0] ?? '';
  const which = name === 'jobs' && r.path.length > 2 ? 'job' : name;
  const known = name !== 'job' && modules[name];
  const [loaded, setLoaded] = useState(/** @type {any} */ ({}));
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    let alive = true;
    if (!known) { setLoaded({ which }); return; }
    modules[which]().then((m) => alive && setLoaded({ which, Page: m.Page, title: m.title }), (error) => alive && setLoaded({ which, error }));
    return () => { alive = false; };
  }, [which]);
  // A new page begins at its top, and its heading gets the focus, so that a screen reader says it.
  const at = r.path.join('/');
  const first = useRef(true);
  useEffect(() => {
    if (loaded.which !== which) return;
    if (first.current) { first.current = false; } else { scrollTo(0, 0); main.current?.querySelector('h1')?.focus({ preventScroll: true }); }
  }, [at, loaded.which]);
  useEffect(() => {
    const title = PAGES.find((p) => p[0] === name)?.[1] ?? r.path[1] ?? 'Gristmill';
    document.title = [r.path.length > 1 ? visible(r.path[r.path.length - 1]) : title, session.value?.label, 'Gristmill'].filter(Boolean).join(' · ');
  }, [at]);
  const ready = loaded.which === which && loaded.Page;
  useEffect(() => {
    if (!ready) return;
    const timer = setTimeout(() => { for (const load of Object.values(modules)) load().catch(() => {}); }, PRELOAD_AFTER_MS);
    return () => clearTimeout(timer);
  }, [!!ready]);
  // A browser may keep the failure of a module, so the page is read again; first of all, whether that can work.
  const again = async () => { await tryNow(); location.reload(); };
  return html`<main ref=${main} id="main" tabindex="-1" class=${away.value ? 'stale' : ''}>${away.value > 0 && html`<div class="trouble away" role="alert"><${Icon} name="FAILED"/><span><b>No answer from the host since ${clock(away.value)}.</b> What is shown is from then.</span><${Button} small onClick=${() => tryNow()}>Try now</${Button}></div>`}${bound() ? html`<${Empty} title="This key is for single endpoints">It reaches ${session.value?.key.endpoints?.join(', ')} through the queue API only. Log in with a key for all endpoints to see pages here.</${Empty}>`
    : loaded.error && loaded.which === which ? html`<h1 class="off-screen" tabindex="-1">Not loaded</h1><section class="panel"><${Empty} title="This page could not be loaded">The host did not send its files. <${Button} onClick=${again}>Try again</${Button}></${Empty}></section>`
    : !known ? html`<h1 class="off-screen" tabindex="-1">No such page</h1><section class="panel"><${Empty} title="No such page">The address names a page that this console does not have. <a href="#/">Overview</a></${Empty}></section>`
    : ready ? html`<${loaded.Page} key=${which === 'job' ? at : which === 'endpoints' ? r.path[1] : which} path=${r.path} query=${r.query}/>` : html`<${Loading}/>`}</main>`;
}

export function Shell() {
  const [open, setOpen] = useState(false);
  const [help, setHelp] = useState(false);
  useKeys(PAGES.filter(allowed), () => setHelp(true));
  // Every page has the counts at once, and one stream serves them all.
  useTopics(can('read') && !bound() ? ['overview'] : []);
  return html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById('main')?.focus(); }}>Skip to the page</a>
    <div class="frame"><div class="top"><a class="brand" href="#/"><${Icon} name="mark"/>Gristmill${session.value?.label && html`<span class="label-host">${session.value.label}</span>`}</a><button type="button" class="icon-button" aria-label="Menu" aria-expanded=${open} aria-controls="side" onClick=${() => setOpen(!open)}><${Icon} name=${open ? 'close' : 'menu'}/></button></div>
    <${Side} open=${open} close=${() => setOpen(false)} help=${() => { setOpen(false); setHelp(true); }}/><${Page}/></div>${help && html`<${Help} pages=${PAGES.filter(allowed)} onClose=${() => setHelp(false)}/>`}`;
}
