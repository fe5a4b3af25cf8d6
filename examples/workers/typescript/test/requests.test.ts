// The format of requests: metadata, bodies, wires, HTTP.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { Agent, get, request } from "node:http";
import { after, before, test } from "node:test";
import { ENVELOPE, type Headers, metadata, REST, Worker } from "./harness.js";

const ADD = { account: "requests", amount: 1 };
const MIB = 1024 * 1024;
let worker: Worker;

before(async () => {
  worker = await Worker.start();
});
after(() => worker.remove());

async function assertMalformed(key: string, headers: Headers, note = ""): Promise<void> {
  const response = await worker.post("ledger.add", ADD, headers);
  assert.deepEqual(
    [response.status, response.code(), response.reason()],
    [400, "INVALID_ARGUMENT", "METADATA_MALFORMED"],
    note,
  );
  assert.equal(worker.effects(key), 0);
}

test("a duplicate key is refused whatever its values and case", async () => {
  const whole = metadata("twice", { "retry-attempt": 0, "correlation-id": "c" });
  for (const [name, value] of Object.entries(whole)) {
    for (const second of [value, "other", ""]) {
      await assertMalformed("twice", [...Object.entries(whole), [name.toUpperCase(), second]], name);
    }
  }
});

test("numbers that are not decimal or out of range are refused", async () => {
  for (const name of ["retry-attempt", "deadline-epoch-ms", "dispatch-ts-epoch-ms"]) {
    const largest = name === "retry-attempt" ? 2n ** 32n - 1n : 2n ** 63n - 1n;
    const wrong = ["-1", "+1", "0x10", "1e3", "1.0", "1 2", "1_000", "one", String(largest + 1n), "9".repeat(400)];
    for (const value of wrong) {
      await assertMalformed("number", metadata("number", { [name]: value }), `${name}: ${value}`);
    }
  }
});

test("the largest numbers are accepted", async () => {
  const i64 = 2n ** 63n - 1n;
  const largest = { "retry-attempt": 2 ** 32 - 1, "deadline-epoch-ms": i64, "dispatch-ts-epoch-ms": i64 };
  assert.equal((await worker.post("ledger.add", ADD, metadata("largest", largest))).status, 200);
  const recorded = worker.row("SELECT attempt FROM effects WHERE idempotency_key = 'largest'");
  assert.deepEqual(recorded, { attempt: 2 ** 32 - 1 });
});

test("execution id and key are required if any key is present", async () => {
  await assertMalformed("required", { "x-tpf-execution-id": "e" });
  await assertMalformed("required", { "x-tpf-idempotency-key": "required" });
  await assertMalformed("required", { "x-tpf-correlation-id": "c" });
  await assertMalformed("required", { "x-tpf-execution-id": " ", "x-tpf-idempotency-key": "required" });
});

test("values that are too long or not printable ASCII are refused", async () => {
  for (const value of ["x".repeat(513), "a\tb", "caf\xe9", "\x7f"]) {
    // Some of these values are not valid HTTP: also 400, but without the reason.
    const response = await worker.post("ledger.add", ADD, { ...metadata("text"), "x-tpf-parent-item-id": value });
    assert.deepEqual([response.status, response.code()], [400, "INVALID_ARGUMENT"], value);
    assert.equal(worker.effects("text"), 0);
  }
  assert.equal((await worker.post("ledger.add", ADD, metadata("k".repeat(512)))).status, 200);
});

test("a blank value counts as absent", async () => {
  const blank = { "retry-attempt": " ", "deadline-epoch-ms": "", "parent-item-id": "  " };
  assert.equal((await worker.post("ledger.add", ADD, metadata("blank", blank))).status, 200);
  await worker.post("echo", ["blank"], { "x-tpf-execution-id": "", "x-tpf-idempotency-key": " " });
  const digest = createHash("sha256").update('echo\0["blank"]').digest("hex");
  const record = worker.row("SELECT execution_id FROM work WHERE idempotency_key = ?", digest);
  assert.deepEqual(record, { execution_id: "" });
});

test("bad JSON is refused", async () => {
  const deep = "[".repeat(65) + "]".repeat(65);
  const bad = ["", "{", "nul", "NaN", "[Infinity]", "1e999", '{"a":1}x', '"\\ud800"', deep, "[".repeat(MIB)];
  for (const body of [...bad.map((text) => Buffer.from(text)), Buffer.from([0xff])]) {
    const response = await worker.post("echo", body, metadata("bad"));
    const seen = [response.status, response.code(), response.reason()];
    assert.deepEqual(seen, [400, "INVALID_ARGUMENT", "BODY_MALFORMED"], body.toString("latin1", 0, 20));
  }
});

test("any JSON value survives a round trip", async () => {
  const values: unknown[] = [null, true, 0, -1.5, "", "é\0😀", [], {}, { a: [{ b: null }] }, Number.MAX_SAFE_INTEGER];
  values.push(JSON.parse("[".repeat(64) + "]".repeat(64)));
  for (const [index, value] of values.entries()) {
    const response = await worker.post("echo", value, metadata(`any ${index}`));
    assert.deepEqual([response.status, response.contentType, response.json()], [200, REST, value]);
  }
});

test("one mebibyte is accepted and one byte more is refused", async () => {
  const text = (size: number) => Buffer.from(`"${"x".repeat(size - 2)}"`);
  const accepted = await worker.post("echo", text(MIB), metadata("mebibyte"));
  assert.deepEqual([accepted.status, accepted.body.length], [200, MIB]);
  for (const size of [3.5 * MIB + 1, 8 * MIB]) {
    const refused = await worker.post("echo", text(size), metadata(`${size}`));
    const seen = [refused.status, refused.code(), refused.reason()];
    assert.deepEqual(seen, [413, "OUT_OF_RANGE", "BODY_TOO_LARGE"]);
  }
});

test("other content types are refused", async () => {
  for (const contentType of [null, "", "text/plain", "application/x-protobuf", "application/jsonp"]) {
    const response = await worker.post("echo", 1, metadata("type"), contentType);
    assert.deepEqual([response.status, response.code()], [415, "INVALID_ARGUMENT"], String(contentType));
  }
  assert.equal((await worker.post("echo", 1, metadata("type"), "Application/JSON; charset=utf-8")).status, 200);
});

test("an unknown activity is not found", async () => {
  for (const name of ["unknown", "", "echo/", "echo/x", "ledger", "%65cho%2f", "%", "toString", "__proto__"]) {
    const response = await worker.post(name, 1, metadata("unknown"));
    assert.deepEqual([response.status, response.code()], [404, "NOT_FOUND"], name);
  }
  assert.equal((await worker.post("ledger%2Eadd", ADD, metadata("encoded"))).status, 200);
});

function envelope(context: object, changes: object = {}): object {
  const control = { pipeline: "p", step: "ledger.add", operatorId: "abide", context, metadata: {} };
  const payload = { kind: "json", contentType: "application/json", data: ADD };
  return { protocolVersion: "tpf.envelope.v1", control, payload, ...changes };
}

function context(key: string, more: object = {}): object {
  return { executionId: "execution-1", idempotencyKey: key, ...more };
}

const postEnvelope = (body: unknown, headers: Headers = {}) => worker.post("ledger.add", body, headers, ENVELOPE);

test("the response is an envelope with the output and the same context", async () => {
  const full = { correlationId: "c", retryAttempt: 0, deadlineEpochMs: 4102444800000, dispatchTsEpochMs: 5 };
  const sent = context("envelope", { ...full, parentItemId: null });
  const response = await postEnvelope(envelope(sent));
  assert.deepEqual([response.status, response.contentType], [200, ENVELOPE]);
  const { protocolVersion, control, payload } = response.json();
  assert.deepEqual([protocolVersion, control.context, payload.kind], ["tpf.envelope.v1", sent, "json"]);
  assert.equal(typeof payload.data.balance, "number");
});

test("a duplicate gets the same output in an envelope with its own context", async () => {
  const first = await postEnvelope(envelope(context("attempts", { retryAttempt: 0 })));
  const again = await postEnvelope(envelope(context("attempts", { retryAttempt: 1 })));
  assert.equal(again.body.toString(), first.body.toString().replace('"retryAttempt":0', '"retryAttempt":1'));
  assert.equal(worker.effects("attempts"), 1);
});

test("without metadata, the text of the input identifies the work", async () => {
  const run = '{"op" : "run", "tag": "text of the input"}';
  const forms = [
    `{"protocolVersion":"tpf.envelope.v1","payload":{"kind":"json","data":${run}}}`,
    ` { "control" : {"pipeline":"\\u007d,\\"payload"}, "payload" :\n{ "data" : ${run} , "kind":"json" },` +
      ` "protocolVersion" : "tpf.envelope.v1" } `,
  ];
  for (const form of forms) {
    const response = await worker.post("conformance", Buffer.from(form), {}, ENVELOPE);
    assert.deepEqual([response.status, response.json().payload?.data], [200, { runs: 1 }], response.body.toString());
  }
  assert.deepEqual((await worker.post("conformance", Buffer.from(run))).json(), { runs: 1 });
  assert.deepEqual((await worker.post("conformance", Buffer.from(run.replace(" : ", ":")))).json(), { runs: 2 });
});

test("work finished over one wire is known over the other", async () => {
  const first = await worker.post("ledger.add", ADD, metadata("wires"));
  const again = await postEnvelope(envelope(context("wires")));
  assert.deepEqual(again.json().payload.data, first.json());
  assert.equal(worker.effects("wires"), 1);
});

test("the context is the metadata and is parsed as strictly", async () => {
  for (const wrong of [{ retryAttempt: -1 }, { retryAttempt: 1.5 }, { deadlineEpochMs: true }, { executionId: null }]) {
    const response = await postEnvelope(envelope(context("strict", wrong)));
    assert.deepEqual([response.status, response.reason()], [400, "METADATA_MALFORMED"], JSON.stringify(wrong));
  }
  for (const wrong of [{ retryAttempt: "1" }, { executionId: 7 }, { idempotencyKey: ["a"] }]) {
    const response = await postEnvelope(envelope(context("strict", wrong)));
    assert.deepEqual([response.status, response.reason()], [400, "METADATA_MALFORMED"], JSON.stringify(wrong));
  }
  const text = JSON.stringify(envelope(context("strict", { retryAttempt: 1 })));
  for (const [from, to] of [["1}", "1e3}"], ["1}", "1.0}"], ['"executionId"', '"executionId":"e","executionId"']] as const) {
    const response = await postEnvelope(Buffer.from(text.replace(from, to)));
    assert.deepEqual([response.status, response.reason()], [400, "METADATA_MALFORMED"], to);
  }
  const late = await postEnvelope(envelope(context("strict", { deadlineEpochMs: 1 })));
  assert.deepEqual([late.status, late.reason()], [504, "DEADLINE_EXPIRED"]);
  assert.equal(worker.effects("strict"), 0);
});

test("headers that match the context are accepted and others refused", async () => {
  const other = await postEnvelope(envelope(context("repeated")), metadata("another"));
  assert.deepEqual([other.status, other.reason()], [400, "METADATA_MALFORMED"]);
  const same = context("repeated", { retryAttempt: 3 });
  assert.equal((await postEnvelope(envelope(same), metadata("repeated", { "retry-attempt": 3 }))).status, 200);
});

test("a body that is not an envelope of this version is refused", async () => {
  const sent = context("version");
  const reasons = {
    PROTOCOL_UNSUPPORTED: [{}, [], null, envelope(sent, { protocolVersion: "tpf.envelope.v2" })],
    BODY_MALFORMED: [
      envelope(sent, { control: [1] }),
      envelope(sent, { payload: [] }),
      envelope(sent, { payload: { kind: "bytes", data: { bytesBase64: "" } } }),
    ],
  };
  for (const [reason, bodies] of Object.entries(reasons)) {
    for (const body of bodies) {
      const response = await postEnvelope(body);
      assert.deepEqual([response.status, response.code(), response.reason()], [400, "INVALID_ARGUMENT", reason]);
    }
  }
});

test("a payload of one mebibyte fits into an envelope", async () => {
  const payload = { kind: "json", data: "x".repeat(MIB - 2) };
  const response = await worker.post("echo", envelope(context("envelope mebibyte"), { payload }), {}, ENVELOPE);
  assert.deepEqual([response.status, response.json().payload.data.length], [200, MIB - 2]);
});

test("a failure has the same body as over rest", async () => {
  const payload = { kind: "json", data: { account: 5 } };
  const response = await postEnvelope(envelope(context("failure"), { payload }));
  assert.deepEqual([response.status, response.contentType, response.reason()], [400, REST, "INPUT_INVALID"]);
});

test("one connection serves many requests", async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const options = { agent, host: "127.0.0.1", port: worker.port, method: "POST", path: "/activities/echo" };
  const ports = new Set<number | undefined>();
  for (let number = 0; number < 50; number += 1) {
    const headers = { ...metadata(`kept ${number}`), "content-type": REST };
    const body = await new Promise<string>((resolve, reject) => {
      const sent = request({ ...options, headers }, (response) => {
        ports.add(sent.socket?.localPort);
        let text = "";
        response.setEncoding("utf8").on("data", (piece) => (text += piece));
        response.on("end", () => resolve(text));
      });
      sent.on("error", reject).end(String(number));
    });
    assert.equal(body, String(number));
  }
  agent.destroy();
  assert.equal(ports.size, 1);
});

test("a chunked request is read like any other", async () => {
  const head = "POST /activities/echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n";
  const chunks = "2\r\n[1\r\n2\r\n,2\r\n1\r\n]\r\n0\r\n\r\n";
  const response = await worker.raw(`${head}transfer-encoding: chunked\r\n\r\n${chunks}`);
  assert.deepEqual([response.status, response.json()], [200, [1, 2]]);
});

test("health is reported", async () => {
  const status = await new Promise((resolve) => {
    get({ host: "127.0.0.1", port: worker.port, path: "/healthz", agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
  });
  assert.equal(status, 200);
});

test("other methods and paths are refused", async () => {
  const wanted = { "GET /activities/echo": 405, "PUT /activities/echo": 405, "GET /": 404 };
  for (const [line, status] of Object.entries(wanted)) {
    const response = await worker.raw(`${line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`);
    assert.equal(response.status, status, line);
  }
});

test("a request that is not HTTP is refused and the connection closed", async () => {
  const head = "POST /activities/echo HTTP/1.1\r\nhost: x\r\n";
  for (const bad of [
    "hello\r\n\r\n",
    `${head}no colon\r\n\r\n`,
    `${head}content-length: 1\r\ncontent-length: 2\r\n\r\n`,
    `${head}content-length: -1\r\n\r\n`,
    `${head}x-tpf-execution-id: a\0b\r\ncontent-length: 0\r\n\r\n`,
  ]) {
    const response = await worker.raw(bad);
    assert.deepEqual([response.status, response.code()], [400, "INVALID_ARGUMENT"], bad);
  }
});

test("an endless head is refused", async () => {
  const response = await worker.raw(`GET /healthz HTTP/1.1\r\nhost: x\r\nlong: ${"x".repeat(100_000)}`);
  assert.equal(response.status, 431);
});
