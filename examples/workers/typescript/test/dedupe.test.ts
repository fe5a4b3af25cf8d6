// Duplicates, claims, deadlines and failures, over HTTP.

import assert from "node:assert/strict";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import { Sqlite } from "../src/receiver/sqlite.js";
import { begin, metadata, probe, until, Worker } from "./harness.js";

const ADD = { account: "dedupe", amount: 1 };
const FAR = 4102444800000; // the year 2100
let worker: Worker;

before(async () => {
  worker = await Worker.start();
});
after(() => worker.remove());

const openGate = (gate: string) => worker.post("gate.open", { gate });

test("a duplicate gets the stored result byte for byte and has no effect", async () => {
  const first = await worker.post("ledger.add", ADD, metadata("dup"));
  const again = await worker.post("ledger.add", ADD, metadata("dup", { "retry-attempt": 1 }));
  assert.equal(first.status, 200);
  assert.deepEqual(again.bytes(), first.bytes());
  assert.equal(worker.effects("dup"), 1);
});

test("the same key under another execution or activity is new work", async () => {
  await worker.post("ledger.add", ADD, metadata("shared", {}, "one"));
  await worker.post("ledger.add", ADD, metadata("shared", {}, "two"));
  assert.equal(worker.effects("shared"), 2);
  assert.equal((await worker.post("echo", 7, metadata("shared", {}, "one"))).json(), 7);
});

test("header names are case-insensitive", async () => {
  const headers = { "X-TPF-Execution-ID": "execution-1", "X-Tpf-Idempotency-Key": "case" };
  const first = await worker.post("ledger.add", ADD, headers);
  const again = await worker.post("ledger.add", ADD, metadata("case"));
  assert.deepEqual(again.bytes(), first.bytes());
  assert.equal(worker.effects("case"), 1);
});

test("without metadata, equal bodies are the same work", async () => {
  const first = await worker.post("conformance", { op: "run", tag: "bare" });
  const again = await worker.post("conformance", { op: "run", tag: "bare" });
  const other = await worker.post("conformance", { tag: "bare", op: "run" });
  assert.deepEqual([first.json(), again.json(), other.json()], [{ runs: 1 }, { runs: 1 }, { runs: 2 }]);
});

test("many concurrent duplicates take effect once and all get the same result", async () => {
  const calls = Array.from({ length: 64 }, () => worker.post("ledger.add", ADD, metadata("many")));
  const responses = new Set((await Promise.all(calls)).map((response) => JSON.stringify(response.bytes())));
  assert.equal(responses.size, 1);
  assert.equal(worker.effects("many"), 1);
});

test("a duplicate of work in progress is rejected as in progress and later gets the result", async () => {
  const { call } = await begin(worker, "busy");
  const busy = await worker.post("gate.add", ADD, metadata("busy"));
  assert.deepEqual([busy.status, busy.code(), busy.reason()], [409, "ABORTED", "IN_PROGRESS"]);
  await openGate("busy");
  const first = await call;
  const again = await worker.post("gate.add", ADD, metadata("busy"));
  assert.deepEqual(again.bytes(), first.bytes());
  assert.deepEqual([first.status, worker.effects("busy")], [200, 1]);
});

test("work in progress is reported as such even if the duplicate's deadline has passed", async () => {
  const { call } = await begin(worker, "busy late");
  const busy = await worker.post("gate.add", ADD, metadata("busy late", { "deadline-epoch-ms": 1 }));
  assert.equal(busy.reason(), "IN_PROGRESS");
  await openGate("busy late");
  assert.equal((await call).status, 200);
});

test("a waiting handler holds no lock", async () => {
  const { call } = await begin(worker, "lock");
  assert.equal((await worker.post("ledger.add", ADD, metadata("lock other"))).status, 200);
  const outside = new Sqlite(worker.db);
  outside.exec("BEGIN IMMEDIATE; ROLLBACK"); // fails immediately if the worker held the write lock
  outside.close();
  await openGate("lock");
  assert.equal((await call).status, 200);
});

test("a handler that exceeds its deadline releases its claim", async () => {
  const { call } = await begin(worker, "slow", { "deadline-epoch-ms": Date.now() + 500 });
  const late = await call;
  assert.deepEqual([late.status, late.reason()], [504, "HANDLER_TIMEOUT"]);
  await openGate("slow");
  const again = await worker.post("gate.add", { ...ADD, gate: "slow" }, metadata("slow"));
  assert.deepEqual([again.status, worker.effects("slow")], [200, 1]);
});

test("a handler continues when its caller disconnects", async () => {
  const body = JSON.stringify({ ...ADD, gate: "gone" });
  const headers = Object.entries({ ...metadata("gone"), "content-type": "application/json" });
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  const socket = connect(worker.port, "127.0.0.1");
  socket.write(
    `POST /activities/gate.add HTTP/1.1\r\nhost: x\r\n${lines}content-length: ${body.length}\r\n\r\n${body}`,
  );
  await until(async () => (await probe(worker, "gate.add", "gone")).status === 409, "the claim");
  socket.destroy();
  await openGate("gone");
  await until(async () => (await probe(worker, "gate.add", "gone")).status === 200, "the record");
  assert.equal(worker.effects("gone"), 1);
});

test("work past its deadline does not run and leaves no record", async () => {
  const late = await worker.post("ledger.add", ADD, metadata("expired", { "deadline-epoch-ms": 1 }));
  assert.deepEqual([late.status, late.code(), late.reason()], [504, "DEADLINE_EXCEEDED", "DEADLINE_EXPIRED"]);
  assert.equal(worker.effects("expired"), 0);
  assert.equal(worker.row("SELECT * FROM work WHERE idempotency_key = 'expired'"), undefined);
  assert.equal((await worker.post("ledger.add", ADD, metadata("expired"))).status, 200);
});

test("the stored result is returned even if the duplicate's deadline has passed", async () => {
  const first = await worker.post("ledger.add", ADD, metadata("finished", { "deadline-epoch-ms": FAR }));
  const again = await worker.post("ledger.add", ADD, metadata("finished", { "deadline-epoch-ms": 1 }));
  assert.deepEqual(again.bytes(), first.bytes());
});

test("the largest possible deadline is accepted", async () => {
  const largest = { "deadline-epoch-ms": 2n ** 63n - 1n };
  const body = { op: "run", tag: "largest" };
  assert.equal((await worker.post("echo", 1, metadata("largest", largest))).status, 200);
  assert.equal((await worker.post("conformance", body, metadata("largest", largest))).status, 200);
});

const TABLE: Record<string, [number, "permanent" | "retryable"]> = {
  CANCELLED: [499, "permanent"],
  UNKNOWN: [500, "retryable"],
  INVALID_ARGUMENT: [400, "permanent"],
  DEADLINE_EXCEEDED: [504, "retryable"],
  NOT_FOUND: [404, "permanent"],
  ALREADY_EXISTS: [409, "permanent"],
  PERMISSION_DENIED: [403, "permanent"],
  RESOURCE_EXHAUSTED: [429, "retryable"],
  FAILED_PRECONDITION: [412, "permanent"],
  ABORTED: [409, "retryable"],
  OUT_OF_RANGE: [400, "permanent"],
  UNIMPLEMENTED: [501, "permanent"],
  INTERNAL: [500, "retryable"],
  UNAVAILABLE: [503, "retryable"],
  DATA_LOSS: [500, "permanent"],
  UNAUTHENTICATED: [401, "permanent"],
};

for (const [status, [http, kind]] of Object.entries(TABLE)) {
  test(`the failure ${status} is ${http} and ${kind}`, async () => {
    const body = { op: "fail", tag: status, status, times: 1 };
    const first = await worker.post("conformance", body, metadata(status));
    assert.deepEqual([first.status, first.code(), first.reason()], [http, status, "CONFORMANCE"]);
    assert.equal(first.json().error.details[1].requestId, "execution-1");
    const again = await worker.post("conformance", body, metadata(status, { "retry-attempt": 1 }));
    if (kind === "permanent") assert.deepEqual(again.bytes(), first.bytes());
    else assert.deepEqual([again.status, again.json()], [200, { runs: 2 }]);
  });
}

test("the activity fail behaves the same", async () => {
  const body = { tag: "fail", status: "UNAVAILABLE", times: 1 };
  const responses = [];
  for (let attempt = 0; attempt < 3; attempt += 1) responses.push(await worker.post("fail", body, metadata("fail")));
  assert.deepEqual(
    responses.map(({ status }) => status),
    [503, 200, 200],
  );
  assert.deepEqual(responses[2]?.json(), { runs: 2 });
});

test("a failing effect is rolled back and its permanent failure is returned to duplicates", async () => {
  const most = { account: "most", amount: Number.MAX_SAFE_INTEGER };
  await worker.post("ledger.add", most, metadata("most"));
  const over = await worker.post("ledger.add", most, metadata("over"));
  assert.deepEqual([over.status, over.code(), over.reason()], [400, "OUT_OF_RANGE", "BALANCE_TOO_LARGE"]);
  assert.equal(worker.effects("over"), 0);
  assert.deepEqual((await worker.post("ledger.add", most, metadata("over"))).bytes(), over.bytes());
  const balance = worker.row("SELECT balance FROM accounts WHERE account = 'most'");
  assert.deepEqual(balance, { balance: Number.MAX_SAFE_INTEGER });
});

test("a bug in a handler is retryable and reveals no internals", async () => {
  const response = await worker.post("bug", {}, metadata("bug"));
  assert.deepEqual([response.status, response.code()], [500, "INTERNAL"]);
  assert.doesNotMatch(response.body, /secret/);
});

test("input that an activity does not accept is a permanent failure", async () => {
  const wrong: unknown[] = [
    null,
    [],
    {},
    { op: "run" },
    { op: "run", tag: 1 },
    { op: "dance", tag: "t" },
    { op: "echo" },
  ];
  wrong.push(...[-1, 30_001, 1.5, "1", true, null].map((ms) => ({ op: "wait", tag: "t", ms })));
  wrong.push(...["OK", "ODD", "toString", 3, null].map((status) => ({ op: "fail", tag: "t", times: 1, status })));
  for (const [index, body] of wrong.entries()) {
    const response = await worker.post("conformance", body, metadata(`wrong ${index}`));
    assert.deepEqual([response.status, response.code()], [400, "INVALID_ARGUMENT"], JSON.stringify(body));
  }
});

test("a probe never runs anything and returns the stored result", async () => {
  const unknown = await probe(worker, "ledger.add", "probe");
  assert.deepEqual([unknown.status, unknown.code(), unknown.reason()], [404, "NOT_FOUND", "WORK_UNKNOWN"]);
  assert.equal(worker.effects("probe"), 0);
  const first = await worker.post("ledger.add", ADD, metadata("probe"));
  assert.deepEqual((await probe(worker, "ledger.add", "probe")).bytes(), first.bytes());
  assert.equal(worker.effects("probe"), 1);
});

test("an unknown probe value runs nothing", async () => {
  for (const values of [["true"], ["0"], ["1", "1"]]) {
    const headers = [
      ...Object.entries(metadata("odd probe")),
      ...values.map((value): [string, string] => ["x-abide-probe", value]),
    ];
    assert.equal((await worker.post("ledger.add", ADD, headers)).reason(), "METADATA_MALFORMED");
  }
  assert.equal(worker.effects("odd probe"), 0);
});
