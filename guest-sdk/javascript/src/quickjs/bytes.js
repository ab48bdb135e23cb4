// What bodies and forms share.

/** A method of objects that are bodies; it returns their bytes as `content`, and their `type`. */
export const AS_BODY = Symbol("as a body");

/** Bytes, or a piece of a body, as a `Uint8Array`. */
export function toBytes(piece) {
  if (piece instanceof Uint8Array) return piece;
  if (ArrayBuffer.isView(piece)) {
    return new Uint8Array(piece.buffer, piece.byteOffset, piece.byteLength);
  }
  if (piece instanceof ArrayBuffer) return new Uint8Array(piece);
  throw new TypeError("a stream that is a body must have pieces of type Uint8Array");
}
