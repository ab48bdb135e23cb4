// Stacks with the lines of the handler's own files. An engine names lines of the bundle; the build
// appends a table of the original lines.

/** A place in the bundle, as the engines name it. */
const PLACE = /(?:componentize-qjs:user|\/?\bbundle)\.js:(\d+)(?::\d+)?/;
/** A place in a file that the SDK adds. */
const OWN = /\/platform\.js:\d+/;

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
  const lines = text.split("\n").map((line) => {
    const isFrame = PLACE.test(line) || OWN.test(line) || line.endsWith("(native)");
    return isFrame ? withPlace(line, bundle) : line;
  });
  return lines.filter((line) => line !== undefined).join("\n");
}

function withPlace(frame, bundle) {
  const place = PLACE.exec(frame);
  const line = place && bundle.lines[place[1]];
  return line ? frame.replace(place[0], `${bundle.files[line[0]]}:${line[1]}`) : undefined;
}
