// Stacks with the lines of the handler's own files. An engine names lines of the bundle; the build
// appends a table of the original lines.

/** The files of a component. No handler has a text with these names by chance. */
export const BUNDLE = "gristmill-bundle.js";
export const PLATFORM = "gristmill-platform.js";

/** A place in the bundle, as the engines name it. */
const PLACE = /(?:componentize-qjs:user|\/?\bgristmill-bundle)\.js:(\d+)(?::\d+)?/;
/** A place in a file that the SDK adds. */
const OWN = /\bgristmill-platform\.js:\d+/;
/** A place in the engine, or in code that `eval` has made. */
const ENGINE = /\(native\)$|\/sources\/initializer\.js:\d+| line \d+ > eval:/;
/** A line of a stack, by QuickJS and by StarlingMonkey. */
const FRAME = /^\s+at .+ \([^()]*\)$|^[^@]*@.+:\d+$/;

/** The table of the lines of a running component. */
const table = () => globalThis.gristmillBundle && JSON.parse(globalThis.gristmillBundle);

/** The stack without the frames of the SDK and of the engine; as it is where nothing was bundled. */
export function readable(stack, bundle = table()) {
  if (!bundle) return stack;
  const frames = stack.split("\n").map((frame) => withPlace(frame, bundle));
  return frames.filter(Boolean).join("\n");
}

/** A text that may have places of the bundle in it, such as a stack after a message. */
export function readableText(text) {
  if (!PLACE.test(text) && !OWN.test(text)) return text;
  const bundle = table();
  if (!bundle) return text;
  const lines = text.split("\n").map((line) => withPlace(line, bundle));
  return lines.filter((line) => line !== undefined).join("\n");
}

/** The line with a place of the handler's own files; undefined for a frame of the SDK or the engine. */
function withPlace(line, bundle) {
  const place = PLACE.exec(line);
  const found = place && bundle.lines[place[1]];
  if (found) return line.replace(place[0], () => `${bundle.files[found[0]]}:${found[1]}`);
  const isForeign = place || OWN.test(line) || ENGINE.test(line);
  return isForeign && FRAME.test(line) ? undefined : line;
}
