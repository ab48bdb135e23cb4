// Small drawings. Statuses differ by shape as well as by colour, so that they differ in grey too.
import { html } from '../lib/html.js';

const paths = {
  IN_QUEUE: html`<circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray="2.400 2"/>`,
  IN_PROGRESS: html`<circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" stroke-width="1.5"/><path d="M8 2.5a5.5 5.5 0 0 1 0 11z" fill="currentColor"/>`,
  COMPLETED: html`<circle cx="8" cy="8" r="6.300" fill="currentColor"/><path d="M5.200 8.200l2 2 3.700-4" fill="none" stroke="var(--surface)" stroke-width="1.600" stroke-linecap="round" stroke-linejoin="round"/>`,
  FAILED: html`<path d="M5.300 1.700h5.400l3.600 3.600v5.400l-3.600 3.600H5.300l-3.600-3.600V5.300z" fill="currentColor"/><path d="M5.800 5.800l4.400 4.400m0-4.400l-4.400 4.400" stroke="var(--surface)" stroke-width="1.600" stroke-linecap="round"/>`,
  REFUSED: html`<path d="M5.300 2h5.400L14 5.300v5.400L10.700 14H5.300L2 10.700V5.300z" fill="none" stroke="currentColor" stroke-width="1.400"/><path d="M5.800 5.800l4.400 4.400m0-4.400l-4.400 4.400" stroke="currentColor" stroke-width="1.400" stroke-linecap="round"/>`,
  CANCELLED: html`<circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" stroke-width="1.5"/><path d="M4.300 11.700l7.400-7.400" stroke="currentColor" stroke-width="1.5"/>`,
  TIMED_OUT: html`<path d="M8 1.600l6.600 12H1.400z" fill="currentColor"/><path d="M8 6v3.400m0 2v.2" stroke="var(--surface)" stroke-width="1.600" stroke-linecap="round"/>`,
  pause: html`<path d="M5.5 3.5v9m5-9v9" stroke="currentColor" stroke-width="2" stroke-linecap="round"/>`,
  play: html`<path d="M5 3.200v9.600l7.5-4.800z" fill="currentColor"/>`,
  menu: html`<path d="M2.5 4.5h11m-11 3.5h11m-11 3.5h11" stroke="currentColor" stroke-width="1.5" stroke-linecap="round"/>`,
  close: html`<path d="M4 4l8 8m0-8l-8 8" stroke="currentColor" stroke-width="1.5" stroke-linecap="round"/>`,
  copy: html`<rect x="5.5" y="5.5" width="8" height="8" rx="1.5" fill="none" stroke="currentColor" stroke-width="1.400"/><path d="M10.5 3.5v-1h-8v8h1" fill="none" stroke="currentColor" stroke-width="1.400"/>`,
  search: html`<circle cx="7" cy="7" r="4.5" fill="none" stroke="currentColor" stroke-width="1.5"/><path d="M10.5 10.5l3.5 3.5" stroke="currentColor" stroke-width="1.5" stroke-linecap="round"/>`,
  directory: html`<path d="M1.5 12.5v-9h4.5l1.5 2h7v7z" fill="var(--pick)" stroke="currentColor" stroke-width="1.3" stroke-linejoin="round"/>`,
  file: html`<path d="M3.5 1.5h6l3 3v10h-9zM9.5 1.5v3h3" fill="none" stroke="currentColor" stroke-width="1.3" stroke-linejoin="round"/>`,
  download: html`<path d="M8 2v8m-3.5-3.5L8 10l3.5-3.5M2.5 13.5h11" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round"/>`,
  bin: html`<path d="M2.5 4h11M6 4V2.5h4V4m-6 0l.7 9.5h6.6L12 4" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round"/>`,
  mark: html`<circle cx="8" cy="8" r="7" fill="var(--grain)"/><circle cx="8" cy="8" r="2" fill="var(--surface)"/><path d="M8 4.700c0-1.200.5-2.200 1.5-2.600M8 11.300c0 1.200-.5 2.200-1.5 2.600M4.700 8c-1.200 0-2.200-.5-2.600-1.5M11.300 8c1.200 0 2.200.5 2.600 1.5" fill="none" stroke="var(--surface)" stroke-width="1.200" stroke-linecap="round"/>`,
};

/** @param {{ name: keyof typeof paths, class?: string }} props */
export const Icon = ({ name, class: c = '' }) => html`<svg class=${`icon ${c}`} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">${paths[name]}</svg>`;
