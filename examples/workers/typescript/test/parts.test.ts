// Tests that control the clock or inspect internals: claim expiry, retention, commits of the database.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { Database } from "../src/receiver/database.js";
import { decode, fallback } from "../src/receiver/metadata.js";
import { type Activity, type Call, Receiver, SWEEP_MAX } from "../src/receiver/receive.js";
import { type Json, REST } from "../src/receiver/wire.js";
import * as work from "../src/receiver/work.js";

const DAY_MS = 24 * 60 * 60 * 1000;
const ACTIVITY = "note";

class CountingDatabase extends Database {
  commits = 0;

  protected override commit(): void {
    this.commits += 1;
    super.commit();
  }
}

let directory: string;
let database: CountingDatabase;
let now: number;

beforeEach(() => {
  now = 1_000_000;
  directory = mkdtempSync(join(tmpdir(), "worker-"));
  database = new CountingDatabase(join(directory, "worker.db"), work.SCHEMA, "CREATE TABLE notes (text TEXT);");
});
afterEach(() => {
  database.close();
  rmSync(directory, { recursive: true });
});

function receiverOf(activity: Activity) {
  const receiver = new Receiver(database, {}, { handlerTimeoutMs: 60_000, clock: () => now });
  const receive = async (key: string) => (await receiver.receive(callOf(key), activity)).body.toString();
  return { receiver, receive };
}

function callOf(key: string): Call {
  const metadata = { ...fallback(ACTIVITY, Buffer.of()), executionId: "e", idempotencyKey: key };
  return { activity: ACTIVITY, metadata, input: null, database, wire: REST };
}

const count = (table: string) =>
  database.transaction((tx) => tx.get(`SELECT count(*) AS rows FROM ${table}`)?.["rows"]);

test("an expired claim is replaced and the slow handler's effect does not happen", async () => {
  let runs = 0;
  let letContinue!: () => void;
  let markStarted!: () => void;
  const mayContinue = new Promise<void>((resolve) => (letContinue = resolve));
  const hasStarted = new Promise<void>((resolve) => (markStarted = resolve));
  const { receive } = receiverOf({
    async prepare() {
      runs += 1;
      const text = `run ${runs}`;
      if (runs === 1) {
        markStarted();
        await mayContinue;
      }
      return (tx) => {
        tx.run("INSERT INTO notes VALUES (?)", text);
        return text;
      };
    },
  });
  const slow = receive("k");
  await hasStarted;
  now += 59_999;
  assert.match(await receive("k"), /IN_PROGRESS/);
  now += 1;
  assert.equal(await receive("k"), '"run 2"');
  letContinue();
  assert.match(await slow, /CLAIM_LOST/);
  assert.equal(await count("notes"), 1);
  assert.equal(await receive("k"), '"run 2"');
});

test("a claim of another incarnation is void before any sweep", async () => {
  const claim = { incarnation: 0, number: 1, expiresAt: now + 60_000 };
  await database.transaction((tx) => work.claim(tx, ["e", ACTIVITY, "k"], claim));
  const { receiver, receive } = receiverOf({ run: () => null });
  assert.equal((await receiver.probe(callOf("k"))).status, 404);
  assert.equal(await receive("k"), "null");
});

test("an output that is too long is a permanent failure without effect", async () => {
  const { receive } = receiverOf({
    run(_call, tx) {
      tx.run("INSERT INTO notes VALUES ('x')");
      return "x".repeat(1024 * 1024);
    },
  });
  const results = [await receive("k"), await receive("k")];
  assert.match(results[0] ?? "", /OUTPUT_TOO_LARGE/);
  assert.equal(results[0], results[1]);
  assert.equal(await count("notes"), 0);
});

test("an output that is nested too deeply is a permanent failure without effect", async () => {
  let depth = 65;
  const { receive } = receiverOf({
    run(_call, tx) {
      tx.run("INSERT INTO notes VALUES ('x')");
      return JSON.parse("[".repeat(depth) + "]".repeat(depth)) as Json;
    },
  });
  const results = [await receive("k"), await receive("k")];
  assert.match(results[0] ?? "", /OUTPUT_TOO_LARGE/);
  assert.equal(results[0], results[1]);
  assert.equal(await count("notes"), 0);
  depth = 64;
  assert.equal(await receive("most"), "[".repeat(64) + "]".repeat(64));
  assert.equal(await count("notes"), 1);
});

test("records are kept for the retention period, then deleted in bounded batches", async () => {
  const { receiver, receive } = receiverOf({ run: () => null });
  await Promise.all(Array.from({ length: SWEEP_MAX + 3 }, (_, key) => receive(String(key))));
  now += 7 * DAY_MS - 1;
  assert.equal(await receiver.sweep(), false);
  assert.equal(await count("work"), SWEEP_MAX + 3);
  now += 1;
  assert.equal(await receiver.sweep(), true);
  assert.equal(await count("work"), 3);
  assert.equal(await receiver.sweep(), false);
  assert.equal(await count("work"), 0);
});

test("void claims are swept and live ones are not", async () => {
  const claims = {
    dead: { incarnation: 0, number: 1, expiresAt: now + 5 },
    late: { incarnation: 1, number: 1, expiresAt: now },
    live: { incarnation: 1, number: 2, expiresAt: now + 1 },
  };
  for (const [key, claim] of Object.entries(claims)) {
    await database.transaction((tx) => work.claim(tx, ["e", ACTIVITY, key], claim));
  }
  await receiverOf({ run: () => null }).receiver.sweep();
  const left = await database.transaction((tx) => tx.get("SELECT group_concat(idempotency_key) AS keys FROM work"));
  assert.equal(left?.["keys"], "live");
});

test("queued transactions share a commit and each is atomic", async () => {
  const job = (number: number) =>
    database.transaction((tx) => {
      tx.run("INSERT INTO notes VALUES (?)", String(number));
      if (number % 2) throw new Error(`${number}`);
    });
  const outcomes = await Promise.allSettled(Array.from({ length: 10 }, (_, number) => job(number)));
  const expected = outcomes.map((_, number) => (number % 2 ? "rejected" : "fulfilled"));
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    expected,
  );
  assert.equal(database.commits, 1);
  assert.equal(await count("notes"), 5);
});

test("every commit is synced to disk", async () => {
  const read = (name: string) => database.transaction((tx) => tx.get(`PRAGMA ${name}`)?.[name]);
  assert.equal(await read("journal_mode"), "wal");
  assert.equal(await read("synchronous"), 2);
});

test("the correlation id defaults to the execution id", () => {
  const pairs: [string, string][] = [
    ["x-tpf-execution-id", "e"],
    ["x-tpf-idempotency-key", "k"],
  ];
  assert.deepEqual(decode(pairs), { ...callOf("k").metadata, correlationId: "e" });
  assert.equal(decode([...pairs, ["X-TPF-Correlation-Id", "c"]])?.correlationId, "c");
  assert.equal(
    decode([
      ["x-tpf-execution-id", " "],
      ["x-other", "1"],
    ]),
    undefined,
  );
});

test("the fallback key is the hash of activity and body", () => {
  const digest = "6d8a39a291dba279b0299a38b5835a23958de12a951f847f1f5ec91e743b3ad4"; // printf 'a\0{}' | sha256sum
  assert.deepEqual(fallback("a", Buffer.from("{}")), { ...callOf(digest).metadata, executionId: "" });
});
