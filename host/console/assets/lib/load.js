// Data of a page: `useLoad` calls a function when its inputs change, keeps the last answer while the
// next one is on its way (so the layout stands still), and aborts a call when its answer is not needed any more.
// A periodic call never aborts another one: a host that needs longer than the interval would never be heard.
import { useEffect, useState, useRef } from './html.js';
import { awake, away } from './live.js';
import { ended } from './session.js';

/**
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load @param {any[]} inputs @param {{ every?: number, keep?: boolean }} [options]
 * @returns {{ data: T | undefined, error: any, loading: boolean, reload: () => Promise<void>, poll: () => void, set: (value: T) => void }}
 */
export function useLoad(load, inputs, options = {}) {
  const [state, setState] = useState(/** @type {any} */ ({ data: undefined, error: undefined, loading: true }));
  const latest = useRef(load);
  latest.current = load;
  const stop = useRef(/** @type {AbortController | undefined} */ (undefined));
  const busy = useRef(false);
  const run = async () => {
    stop.current?.abort();
    const own = stop.current = new AbortController();
    busy.current = true;
    try {
      const data = await latest.current(own.signal);
      if (!own.signal.aborted) setState({ data, error: undefined, loading: false });
    } catch (error) {
      if (!own.signal.aborted) setState((s) => ({ data: s.data, error, loading: false }));
    }
    if (stop.current === own) busy.current = false;
  };
  const poll = () => { if (awake.peek() && !busy.current) run(); };
  useEffect(() => {
    setState((s) => ({ data: options.keep ? s.data : undefined, error: undefined, loading: true }));
    run();
    return () => stop.current?.abort();
  }, inputs);
  useEffect(() => {
    if (!options.every) return;
    const timer = setInterval(poll, options.every);
    return () => clearInterval(timer);
  }, [options.every, ...inputs]);
  // A call that was refused because the session had ended is repeated after the login, and one without an answer
  // when the host answers again.
  const [out, was] = [ended.value || away.value > 0, useRef(false)];
  useEffect(() => { if (was.current && !out) run(); was.current = out; }, [out]);
  return { ...state, reload: run, poll, set: (data) => setState({ data, error: undefined, loading: false }) };
}
