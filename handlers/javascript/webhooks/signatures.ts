// The signatures of GitHub and Stripe: HMAC-SHA-256 of what was sent, with a secret that only the sender
// and this receiver know.

import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";

const bytes = (text: string) => new TextEncoder().encode(text);

const hex = (data: Uint8Array) =>
  [...data].map((byte) => byte.toString(16).padStart(2, "0")).join("");

function joined(head: Uint8Array, tail: Uint8Array) {
  const all = new Uint8Array(head.length + tail.length);
  all.set(head);
  all.set(tail, head.length);
  return all;
}

/** Compares in a time that does not depend on the first difference, which would help to guess. */
function isSame(one: string, other: string) {
  if (one.length !== other.length) return false;
  let differences = 0;
  for (let at = 0; at < one.length; at += 1) differences |= one.charCodeAt(at) ^ other.charCodeAt(at);
  return differences === 0;
}

/** Whether `X-Hub-Signature-256` is GitHub's signature of the body. */
export function isFromGitHub(header: string | undefined, body: Uint8Array, secret: string) {
  const signature = `sha256=${hex(hmac(sha256, bytes(secret), body))}`;
  return secret !== "" && isSame(header ?? "", signature);
}

/**
 * Whether `Stripe-Signature` is Stripe's signature of the body, and at most `tolerance` seconds old: a
 * recorded call cannot be sent again later. The header may have several signatures, while Stripe
 * changes the secret.
 */
export function isFromStripe(
  header: string | undefined,
  body: Uint8Array,
  secret: string,
  { tolerance = 300, now = Date.now() / 1000 } = {},
) {
  const pairs = (header ?? "").split(",").map((pair) => pair.trim().split("="));
  const time = pairs.find(([name]) => name === "t")?.[1] ?? "";
  if (secret === "" || !/^\d+$/.test(time) || Math.abs(now - Number(time)) > tolerance) return false;
  const signature = hex(hmac(sha256, bytes(secret), joined(bytes(`${time}.`), body)));
  // All of them, in the same time for each.
  const same = pairs.filter(([name, value]) => name === "v1" && isSame(value ?? "", signature));
  return same.length > 0;
}
