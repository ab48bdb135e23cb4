// Stacks with the lines of the handler's own files. An engine names lines of the bundle; the build
// appends a table of the original lines.

const PLACE = /(?:componentize-qjs:user|bundle)\.js:(\d+)(?::\d+)?/;

/** The stack without the frames of the SDK and of the engine; as it is where nothing was bundled. */
export function readable(stack) {
  if (!globalThis.gristmillBundle) return stack;
  const bundle = JSON.parse(globalThis.gristmillBundle);
  const frames = stack.split("\n").map((frame) => {
    const place = PLACE.exec(frame);
    const line = place && bundle.lines[place[1]];
    return line && frame.replace(place[0], `${bundle.files[line[0]]}:${line[1]}`);
  });
  return frames.filter(Boolean).join("\n");
}
