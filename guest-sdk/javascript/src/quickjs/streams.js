// The streams of the web platform, of web-streams-polyfill, and the two streams of text.

import "./promise.js";
import "./text.js";

import {
  ByteLengthQueuingStrategy,
  CountQueuingStrategy,
  ReadableStream,
  TransformStream,
  WritableStream,
} from "web-streams-polyfill";

class TextDecoderStream {
  constructor(label, options) {
    const decoder = new TextDecoder(label, options);
    const pass = (text, controller) => text && controller.enqueue(text);
    const { readable, writable } = new TransformStream({
      transform: (bytes, controller) => pass(decoder.decode(bytes, { stream: true }), controller),
      flush: (controller) => pass(decoder.decode(), controller),
    });
    Object.assign(this, { readable, writable });
  }
}

class TextEncoderStream {
  constructor() {
    const encoder = new TextEncoder();
    // The first half of a character of two, until the second half comes.
    let half = "";
    const { readable, writable } = new TransformStream({
      transform: (piece, controller) => {
        const text = half + piece;
        half = /[\ud800-\udbff]$/.test(text) ? text.slice(-1) : "";
        const bytes = encoder.encode(half ? text.slice(0, -1) : text);
        if (bytes.length) controller.enqueue(bytes);
      },
      flush: (controller) => half && controller.enqueue(encoder.encode(half)),
    });
    Object.assign(this, { readable, writable });
  }
}

Object.assign(globalThis, {
  ByteLengthQueuingStrategy,
  CountQueuingStrategy,
  ReadableStream,
  TextDecoderStream,
  TextEncoderStream,
  TransformStream,
  WritableStream,
});
