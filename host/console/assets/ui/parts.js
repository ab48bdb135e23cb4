// The small parts that every page is made of: buttons that show that they work, statuses, empty states,
// errors, copy buttons, definition lists, tabs and page heads.
import { html, signal, useState, useRef, useEffect } from '../lib/html.js';
import { Icon } from './icons.js';
import { copy } from '../lib/clipboard.js';
import { time, ago, brief } from '../lib/format.js';
import { zone } from '../lib/settings.js';
import { visible } from '../lib/text.js';
import { say } from './toast.js';

export const WORDS = { IN_QUEUE: 'Waiting', IN_PROGRESS: 'Running', COMPLETED: 'Completed', FAILED: 'Failed', CANCELLED: 'Cancelled', TIMED_OUT: 'Timed out' };
export const STATUSES = Object.keys(WORDS);
export const ended = (status) => status !== 'IN_QUEUE' && status !== 'IN_PROGRESS';

/** A status by word, shape and colour. @param {{ of: string }} props */
export const Status = ({ of }) => html`<span class=${`status s-${of}`}><${Icon} name=${of in WORDS ? of : 'CANCELLED'}/>${WORDS[of] ?? of}</span>`;

/**
 * A button that is busy until its work ends, and says what went wrong.
 * @param {{ onClick?: (e?: any) => any, kind?: string, small?: boolean, disabled?: boolean, children?: any, [more: string]: any }} props
 */
export function Button({ onClick, kind = '', small, disabled, children, ...more }) {
  const [busy, setBusy] = useState(false);
  const alive = useRef(true);
  useEffect(() => () => { alive.current = false; }, []);
  const click = async (e) => {
    const work = onClick?.(e);
    if (!work?.then) return;
    setBusy(true);
    try { await work; } catch (error) { say(error.message, 'bad'); } finally { if (alive.current) setBusy(false); }
  };
  return html`<button type="button" class=${`button ${kind} ${small ? 'small' : ''}`} disabled=${disabled || busy} aria-busy=${busy} onClick=${click} ...${more}>${children}</button>`;
}

/** @param {{ text: string | (() => string), label?: string, small?: boolean }} props */
export function Copy({ text, label = 'Copy' }) {
  const [done, setDone] = useState('');
  const click = async () => {
    const worked = await copy(typeof text === 'function' ? text() : text);
    setDone(worked ? 'Copied' : 'Not copied');
    setTimeout(() => setDone(''), 1500);
  };
  return html`<button type="button" class="button quiet small copy" onClick=${click}><${Icon} name="copy"/><span aria-live="polite">${done || label}</span></button>`;
}

/**
 * Further actions behind “⋯”. It closes with Escape, with a click elsewhere and with a choice.
 * @param {{ label: string, children?: any }} props
 */
export function Menu({ label, children }) {
  const box = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  const shut = () => { if (box.current) box.current.open = false; };
  useEffect(() => {
    const away = (e) => { if (!box.current?.contains(e.target)) shut(); };
    addEventListener('pointerdown', away);
    return () => removeEventListener('pointerdown', away);
  }, []);
  const key = (e) => {
    if (e.key !== 'Escape' || !box.current?.open) return;
    e.stopPropagation();
    shut();
    box.current.querySelector('summary')?.focus();
  };
  return html`<details class="menu" ref=${box} onKeyDown=${key}><summary class="button small" aria-label=${label} title=${label}>⋯</summary><div onClick=${shut}>${children}</div></details>`;
}

/** A command to type, with a copy button. @param {{ text: string }} props */
export const Command = ({ text }) => html`<div class="command"><pre tabindex="0" aria-label="Command"><code>${visible(text)}</code></pre><${Copy} text=${text}/></div>`;

/** What to do where there is nothing yet. `choices` is before the command. @param {{ title: string, children?: any, choices?: any, command?: string }} props */
export const Empty = ({ title, children, choices, command }) => html`<div class="empty"><h3>${title}</h3>${children && html`<p>${children}</p>`}${choices}${command && html`<${Command} text=${command}/>`}</div>`;

/** @param {{ error: any, retry?: () => any }} props */
export const Trouble = ({ error, retry }) => error && html`<div class="trouble" role="alert"><${Icon} name="FAILED"/><span>${visible(error.message)}${error.retryAfter ? ` Try again in ${error.retryAfter} s.` : ''}</span>${retry && error.status !== 401 && html`<${Button} small onClick=${retry}>Try again</${Button}>`}</div>`;

/** Placeholder rows of the height of real ones, so that nothing jumps. @param {{ rows?: number }} props */
export const Loading = ({ rows = 5 }) => html`<div class="loading" role="status" aria-label="Loading">${Array.from({ length: rows }, (_, i) => html`<div key=${i}></div>`)}</div>`;

// Times that are relative to now are drawn again with it.
const tick = signal(0);
setInterval(() => { if (!document.hidden) tick.value++; }, 10000);
/** A time with its full form on hover, or relative to now. @param {{ at: string | number | undefined, show?: (t: any) => string }} props */
export function Time({ at, show = time }) {
  if (show === brief || show === ago) void tick.value;
  return at === undefined ? html`<span class="faint">–</span>` : html`<time datetime=${new Date(at).toISOString()} title=${`${time(at)}${zone.value === 'utc' ? ' UTC' : ''} · ${ago(at)}`}>${show(at)}</time>`;
}

/** Pairs of a name and a value. @param {{ pairs: [string, any][] }} props */
export const Facts = ({ pairs }) => html`<dl class="facts">${pairs.filter(([, v]) => v !== undefined && v !== null && v !== false && v !== '').map(([n, v]) => html`<div key=${n}><dt>${n}</dt><dd>${v}</dd></div>`)}</dl>`;

/** @param {{ title: any, children?: any, crumbs?: [string, string][], sub?: any }} props */
export const Head = ({ title, children, crumbs, sub }) => html`<header class="head">
  <div>${crumbs && html`<nav class="crumbs" aria-label="Path">${crumbs.map(([t, to]) => html`<a key=${to} href=${to}>${t}</a><span aria-hidden="true">/</span>`)}</nav>`}
  <h1 tabindex="-1">${title}</h1>${sub && html`<p class="sub">${sub}</p>`}</div><div class="actions">${children}</div></header>`;

/** Tabs that are links, since each has an address. @param {{ label: string, tabs: [string, any, string][], now: string }} props */
export const Tabs = ({ label, tabs, now }) => html`<nav class="tabs" aria-label=${label}>${tabs.map(([id, t, to]) => html`<a key=${id} href=${to} aria-current=${id === now ? 'page' : undefined}>${t}</a>`)}</nav>`;

/** One of a few values. @param {{ label: string, value: string, options: [string, any][], onChange: (v: string) => void }} props */
export const Choice = ({ label, value, options, onChange }) => html`<div class="choice" role="group" aria-label=${label}>${options.map(([v, t]) => html`<button key=${v} type="button" aria-pressed=${v === value} onClick=${() => onChange(v)}>${t}</button>`)}</div>`;

/** `error`: what is wrong with its value. @param {{ label: string, hint?: any, error?: string, children?: any, wide?: boolean }} props */
export const Field = ({ label, hint, error, children, wide }) => html`<label class=${`field ${wide ? 'wide' : ''}`}><span>${label}</span>${children}${error && html`<small class="wrong" role="alert">${error}</small>`}${hint && html`<small>${hint}</small>`}</label>`;

/** A table that scrolls sideways inside itself where the window is narrow. @param {{ label: string, head: any[], children?: any, class?: string }} props */
export const Table = ({ label, head, children, class: c = '' }) => html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class=${c}><thead><tr>${head.map((t, i) => Array.isArray(t) ? html`<th key=${i} scope="col" class=${t[1]}>${t[0]}</th>` : html`<th key=${i} scope="col">${t}</th>`)}</tr></thead><tbody>${children}</tbody></table></div>`;

/** @param {{ tags?: Record<string, string>, to?: (k: string, v: string) => string }} props */
export const Tags = ({ tags, to }) => !tags ? null : html`<span class="tags">${Object.entries(tags).map(([k, v]) => to ? html`<a key=${k} class="tag" href=${to(k, v)}>${k}<b>${v}</b></a>` : html`<span key=${k} class="tag">${k}<b>${v}</b></span>`)}</span>`;
