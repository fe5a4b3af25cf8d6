// Workers that crash or shut down, and the files they leave.

import assert from "node:assert/strict";
import { once } from "node:events";
import { statSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { begin, metadata, probe, until, Worker } from "./harness.js";

const ADD = { account: "crash", amount: 1 };
const KILLS = 8;
const KEYS = 400;
const ATTEMPTS_MAX = 50;
let worker: Worker;

beforeEach(async () => {
  worker = await Worker.start();
});
afterEach(() => worker.remove());

test("the claim of a killed process is void and the effect happens once", async () => {
  const { call } = await begin(worker, "k");
  await worker.restart();
  await assert.rejects(call);
  assert.equal((await probe(worker, "gate.add", "k")).reason(), "WORK_UNKNOWN");
  await worker.post("gate.open", { gate: "k" });
  const again = await worker.post("gate.add", { ...ADD, gate: "k" }, metadata("k", { "retry-attempt": 1 }));
  assert.deepEqual([again.status, again.json()], [200, { balance: 1 }]);
  const effects = worker.row("SELECT count(*) AS effects, min(attempt) AS attempt FROM effects");
  assert.deepEqual(effects, { effects: 1, attempt: 1 });
});

for (const [at, left] of [
  ["before commit", 0],
  ["after commit", 1],
] as const) {
  test(`after a kill ${at}, the duplicate leaves one effect`, async () => {
    const body = { ...ADD, at, marker: join(worker.directory, "died") };
    await assert.rejects(worker.post("crash.add", body, metadata("k")));
    await worker.restart();
    assert.equal(worker.effects("k"), left);
    const again = await worker.post("crash.add", body, metadata("k", { "retry-attempt": 1 }));
    assert.deepEqual([again.status, again.json()], [200, { balance: 1 }]);
    assert.equal(worker.effects("k"), 1);
  });
}

test("with repeated kills under load, every key takes effect once", async () => {
  // Senders retry until they get a response while the process is killed at random. Each key is sent twice.
  let next = 0;
  let completed = 0;
  const sender = async () => {
    while (next < KEYS) {
      await sendUntilDone(next++);
      completed += 1;
    }
  };
  const sendUntilDone = async (number: number) => {
    const results = new Set<string>();
    for (let attempt = 0; attempt < ATTEMPTS_MAX && (attempt < 2 || results.size === 0); attempt += 1) {
      const headers = metadata(`k${number}`, { "retry-attempt": attempt });
      const run = { op: "run", tag: `tag ${number}` };
      const call = number % 2 ? worker.post("conformance", run, headers) : worker.post("ledger.add", ADD, headers);
      const response = await call.catch(() => undefined);
      if (response?.status === 200) results.add(response.body);
      if (response === undefined) await until(() => worker.isUp(), "the restart");
    }
    assert.equal(results.size, 1);
  };
  const senders = Array.from({ length: 16 }, sender);
  let chance = 7;
  for (let kill = 0; kill < KILLS; kill += 1) {
    chance = (chance * 48271) % 2147483647;
    const goal = (KEYS * (kill + chance / 2147483647)) / KILLS;
    await until(() => completed >= goal, "progress");
    await worker.restart();
  }
  await Promise.all(senders);
  const effects = worker.row("SELECT count(*) AS rows, count(DISTINCT idempotency_key) AS keys FROM effects");
  assert.deepEqual(effects, { rows: KEYS / 2, keys: KEYS / 2 });
  assert.deepEqual(worker.row("SELECT balance FROM accounts"), { balance: KEYS / 2 });
  const runs = worker.row("SELECT count(*) AS tags, min(runs) AS fewest, max(runs) AS most FROM runs");
  assert.deepEqual(runs, { tags: KEYS / 2, fewest: 1, most: 1 });
});

test("a newer process on the same database stops the older one", async () => {
  const newer = await Worker.start(worker.directory);
  try {
    const exited = once(worker.process, "exit");
    await assert.rejects(worker.post("ledger.add", ADD, metadata("k")));
    assert.deepEqual(await exited, [1, null]);
    assert.equal((await newer.post("ledger.add", ADD, metadata("k"))).status, 200);
    assert.equal(newer.effects("k"), 1);
  } finally {
    await newer.kill();
  }
});

test("SIGTERM lets running work finish and closes the database", async () => {
  const idle = connect(worker.port, "127.0.0.1");
  await once(idle, "connect");
  const wait = { op: "wait", tag: "t", ms: 700 };
  const call = worker.post("conformance", wait, metadata("k"));
  await until(async () => (await probe(worker, "conformance", "k")).status === 409, "the claim");
  const order: string[] = [];
  idle.once("close", () => order.push("idle closed"));
  void call.then(() => order.push("busy completed"));
  assert.equal(await worker.stop(), 0);
  assert.deepEqual((await call).json(), { runs: 1 });
  assert.deepEqual(order, ["idle closed", "busy completed"]);
  const wal = statSync(`${worker.db}-wal`, { throwIfNoEntry: false });
  assert.equal(wal?.size ?? 0, 0); // closed cleanly: everything is in the main file
  await worker.start();
  assert.deepEqual((await worker.post("conformance", wait, metadata("k"))).json(), { runs: 1 });
});
