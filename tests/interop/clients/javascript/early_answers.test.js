// Refusals that the host sends before it has read the body: Node's fetch reads each of them, and the next
// call succeeds.
import assert from "node:assert/strict";
import { test } from "node:test";

const { GRISTMILL_URL, RUNPOD_API_KEY } = process.env;

const post = (path, key, body) =>
  fetch(GRISTMILL_URL + path, { method: "POST", headers: { Authorization: `Bearer ${key}` }, body });

for (const size of [100_000, 1 << 20, 5 << 20]) {
  test(`early refusals of ${size} bytes`, async () => {
    const body = Buffer.alloc(size, "x");
    for (let i = 0; i < 20; i++) {
      for (const [path, key, status] of [["/v2/none/run", RUNPOD_API_KEY, 404], ["/v2/echo/run", "wrong", 401]]) {
        const refused = await post(path, key, body);
        assert.equal(refused.status, status);
        await refused.text();
        const next = await post("/v2/echo/runsync", RUNPOD_API_KEY, JSON.stringify({ input: {} }));
        assert.equal((await next.json()).status, "COMPLETED");
      }
    }
  });
}
