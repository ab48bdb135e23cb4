// The one place that imports the vendored libraries: every other module takes `html`, the hooks and
// the signals from here.
import { h, render, Fragment } from '../vendor/preact.js';
import htm from '../vendor/htm.js';

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = /** @type {any} */ (htm).bind(h);
export { h, render, Fragment };
export { useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback } from '../vendor/hooks.js';
export { signal, computed, effect, batch, useSignal, useComputed } from '../vendor/signals.js';
