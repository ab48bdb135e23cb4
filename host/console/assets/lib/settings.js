// Settings of this browser: colour scheme, time zone, and whether live updates are paused. The first two
// are kept in localStorage; no key and no data of users is ever stored.
import { signal, effect } from './html.js';

const read = (name, allowed) => {
  try { const v = localStorage.getItem(`gristmill.${name}`); return allowed.includes(v) ? v : allowed[0]; } catch { return allowed[0]; }
};
const keep = (name, value) => { try { localStorage.setItem(`gristmill.${name}`, value); } catch { /* private windows may refuse */ } };

/** 'auto', 'light' or 'dark'. */
export const theme = signal(read('theme', ['auto', 'light', 'dark']));
/** 'local' or 'utc'. */
export const zone = signal(read('zone', ['local', 'utc']));
export const paused = signal(false);

effect(() => { document.documentElement.dataset.theme = theme.value; keep('theme', theme.value); });
effect(() => keep('zone', zone.value));
