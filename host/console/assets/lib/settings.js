// Settings of this browser: colour scheme, time zone, keys of one letter, wrapped log lines, and whether
// live updates are paused. All but the last are kept in localStorage; no key and no data of users is ever stored.
import { signal, effect } from './html.js';

const read = (name, allowed) => {
  try { const v = localStorage.getItem(`gristmill.${name}`); return allowed.includes(v) ? v : allowed[0]; } catch { return allowed[0]; }
};
const keep = (name, value) => { try { localStorage.setItem(`gristmill.${name}`, value); } catch { /* private windows may refuse */ } };

/** 'auto', 'light' or 'dark'. */
export const theme = signal(read('theme', ['auto', 'light', 'dark']));
/** 'local' or 'utc'. */
export const zone = signal(read('zone', ['local', 'utc']));
/** 'on' or 'off': the keys of one letter, which get in the way of speech input. */
export const shortcuts = signal(read('shortcuts', ['on', 'off']));
/** 'on' or 'off': long log lines take several rows. */
export const wrap = signal(read('wrap', ['off', 'on']));
export const paused = signal(false);

effect(() => { document.documentElement.dataset.theme = theme.value; keep('theme', theme.value); });
effect(() => keep('zone', zone.value));
effect(() => keep('wrap', wrap.value));
effect(() => keep('shortcuts', shortcuts.value));
