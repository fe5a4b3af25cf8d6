// What a request may look like: metadata, bodies, wires, HTTP.

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
  const answer = await worker.post("ledger.add", ADD, headers);
  assert.deepEqual(
    [answer.status, answer.code(), answer.reason()],
    [400, "INVALID_ARGUMENT", "METADATA_MALFORMED"],
    note,
  );
  assert.equal(worker.effects(key), 0);
}

test("a key that is there twice is refused whatever its values and case", async () => {
  const whole = metadata("twice", { "retry-attempt": 0, "correlation-id": "c" });
  for (const [name, value] of Object.entries(whole)) {
    for (const second of [value, "other", ""]) {
      await assertMalformed("twice", [...Object.entries(whole), [name.toUpperCase(), second]], name);
    }
  }
});

test("numbers are decimal and in range or refused", async () => {
  for (const name of ["retry-attempt", "deadline-epoch-ms", "dispatch-ts-epoch-ms"]) {
    const largest = name === "retry-attempt" ? 2n ** 32n - 1n : 2n ** 63n - 1n;
    const wrong = ["-1", "+1", "0x10", "1e3", "1.0", "1 2", "1_000", "one", String(largest + 1n), "9".repeat(400)];
    for (const value of wrong) {
      await assertMalformed("number", metadata("number", { [name]: value }), `${name}: ${value}`);
    }
  }
});

test("the largest numbers are taken", async () => {
  const i64 = 2n ** 63n - 1n;
  const largest = { "retry-attempt": 2 ** 32 - 1, "deadline-epoch-ms": i64, "dispatch-ts-epoch-ms": i64 };
  assert.equal((await worker.post("ledger.add", ADD, metadata("largest", largest))).status, 200);
  const recorded = worker.row("SELECT attempt FROM effects WHERE idempotency_key = 'largest'");
  assert.deepEqual(recorded, { attempt: 2 ** 32 - 1 });
});

test("execution id and key are required as soon as any key is there", async () => {
  await assertMalformed("required", { "x-tpf-execution-id": "e" });
  await assertMalformed("required", { "x-tpf-idempotency-key": "required" });
  await assertMalformed("required", { "x-tpf-correlation-id": "c" });
  await assertMalformed("required", { "x-tpf-execution-id": " ", "x-tpf-idempotency-key": "required" });
});

test("values are printable ASCII of limited length or refused", async () => {
  for (const value of ["x".repeat(513), "a\tb", "caf\xe9", "\x7f"]) {
    // Some of these are not even HTTP: 400 as well, but without the reason.
    const answer = await worker.post("ledger.add", ADD, { ...metadata("text"), "x-tpf-parent-item-id": value });
    assert.deepEqual([answer.status, answer.code()], [400, "INVALID_ARGUMENT"], value);
    assert.equal(worker.effects("text"), 0);
  }
  assert.equal((await worker.post("ledger.add", ADD, metadata("k".repeat(512)))).status, 200);
});

test("a blank value is an absent one", async () => {
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
    const answer = await worker.post("echo", body, metadata("bad"));
    const seen = [answer.status, answer.code(), answer.reason()];
    assert.deepEqual(seen, [400, "INVALID_ARGUMENT", "BODY_MALFORMED"], body.toString("latin1", 0, 20));
  }
});

test("any JSON comes back as it was", async () => {
  const values: unknown[] = [null, true, 0, -1.5, "", "é\0😀", [], {}, { a: [{ b: null }] }, Number.MAX_SAFE_INTEGER];
  values.push(JSON.parse("[".repeat(64) + "]".repeat(64)));
  for (const [index, value] of values.entries()) {
    const answer = await worker.post("echo", value, metadata(`any ${index}`));
    assert.deepEqual([answer.status, answer.contentType, answer.json()], [200, REST, value]);
  }
});

test("one mebibyte is taken and one byte more is refused", async () => {
  const text = (size: number) => Buffer.from(`"${"x".repeat(size - 2)}"`);
  const taken = await worker.post("echo", text(MIB), metadata("mebibyte"));
  assert.deepEqual([taken.status, taken.body.length], [200, MIB]);
  for (const size of [MIB + 1, 8 * MIB]) {
    const refused = await worker.post("echo", text(size), metadata(`${size}`));
    const seen = [refused.status, refused.code(), refused.reason()];
    assert.deepEqual(seen, [413, "OUT_OF_RANGE", "BODY_TOO_LARGE"]);
  }
});

test("other content types are refused", async () => {
  for (const contentType of [null, "", "text/plain", "application/x-protobuf", "application/jsonp"]) {
    const answer = await worker.post("echo", 1, metadata("type"), contentType);
    assert.deepEqual([answer.status, answer.code()], [415, "INVALID_ARGUMENT"], String(contentType));
  }
  assert.equal((await worker.post("echo", 1, metadata("type"), "Application/JSON; charset=utf-8")).status, 200);
});

test("an activity that is not served is not found", async () => {
  for (const name of ["unknown", "", "echo/", "echo/x", "ledger", "%65cho%2f", "%", "toString", "__proto__"]) {
    const answer = await worker.post(name, 1, metadata("unknown"));
    assert.deepEqual([answer.status, answer.code()], [404, "NOT_FOUND"], name);
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

test("the answer is an envelope with the output and the context copied", async () => {
  const full = { correlationId: "c", retryAttempt: 0, deadlineEpochMs: 4102444800000, dispatchTsEpochMs: 5 };
  const sent = context("envelope", { ...full, parentItemId: null });
  const answer = await postEnvelope(envelope(sent));
  assert.deepEqual([answer.status, answer.contentType], [200, ENVELOPE]);
  const { protocolVersion, control, payload } = answer.json();
  assert.deepEqual([protocolVersion, control.context, payload.kind], ["tpf.envelope.v1", sent, "json"]);
  assert.equal(typeof payload.data.balance, "number");
});

test("a duplicate gets the same output in an envelope with its own context", async () => {
  const first = await postEnvelope(envelope(context("attempts", { retryAttempt: 0 })));
  const again = await postEnvelope(envelope(context("attempts", { retryAttempt: 1 })));
  assert.equal(again.body.toString(), first.body.toString().replace('"retryAttempt":0', '"retryAttempt":1'));
  assert.equal(worker.effects("attempts"), 1);
});

test("without metadata the text of the input is what the work is known by", async () => {
  const run = '{"op" : "run", "tag": "text of the input"}';
  const forms = [
    `{"protocolVersion":"tpf.envelope.v1","payload":{"kind":"json","data":${run}}}`,
    ` { "control" : {"pipeline":"\\u007d,\\"payload"}, "payload" :\n{ "data" : ${run} , "kind":"json" },` +
      ` "protocolVersion" : "tpf.envelope.v1" } `,
  ];
  for (const form of forms) {
    const answer = await worker.post("conformance", Buffer.from(form), {}, ENVELOPE);
    assert.deepEqual([answer.status, answer.json().payload?.data], [200, { runs: 1 }], answer.body.toString());
  }
  assert.deepEqual((await worker.post("conformance", Buffer.from(run))).json(), { runs: 1 });
  assert.deepEqual((await worker.post("conformance", Buffer.from(run.replace(" : ", ":")))).json(), { runs: 2 });
});

test("work done over one wire is known over the other", async () => {
  const first = await worker.post("ledger.add", ADD, metadata("wires"));
  const again = await postEnvelope(envelope(context("wires")));
  assert.deepEqual(again.json().payload.data, first.json());
  assert.equal(worker.effects("wires"), 1);
});

test("the context is the metadata and is read as strictly", async () => {
  for (const wrong of [{ retryAttempt: -1 }, { retryAttempt: 1.5 }, { deadlineEpochMs: true }, { executionId: null }]) {
    const answer = await postEnvelope(envelope(context("strict", wrong)));
    assert.deepEqual([answer.status, answer.reason()], [400, "METADATA_MALFORMED"], JSON.stringify(wrong));
  }
  for (const wrong of [{ retryAttempt: "1" }, { executionId: 7 }, { idempotencyKey: ["a"] }]) {
    const answer = await postEnvelope(envelope(context("strict", wrong)));
    assert.deepEqual([answer.status, answer.reason()], [400, "METADATA_MALFORMED"], JSON.stringify(wrong));
  }
  const text = JSON.stringify(envelope(context("strict", { retryAttempt: 1 })));
  for (const [from, to] of [["1}", "1e3}"], ["1}", "1.0}"], ['"executionId"', '"executionId":"e","executionId"']] as const) {
    const answer = await postEnvelope(Buffer.from(text.replace(from, to)));
    assert.deepEqual([answer.status, answer.reason()], [400, "METADATA_MALFORMED"], to);
  }
  const late = await postEnvelope(envelope(context("strict", { deadlineEpochMs: 1 })));
  assert.deepEqual([late.status, late.reason()], [504, "DEADLINE_EXPIRED"]);
  assert.equal(worker.effects("strict"), 0);
});

test("headers that repeat the context are taken and others refused", async () => {
  const other = await postEnvelope(envelope(context("repeated")), metadata("another"));
  assert.deepEqual([other.status, other.reason()], [400, "METADATA_MALFORMED"]);
  const same = context("repeated", { retryAttempt: 3 });
  assert.equal((await postEnvelope(envelope(same), metadata("repeated", { "retry-attempt": 3 }))).status, 200);
});

test("what is not an envelope of this version is refused", async () => {
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
      const answer = await postEnvelope(body);
      assert.deepEqual([answer.status, answer.code(), answer.reason()], [400, "INVALID_ARGUMENT", reason]);
    }
  }
});

test("a payload of one mebibyte fits into an envelope", async () => {
  const payload = { kind: "json", data: "x".repeat(MIB - 2) };
  const answer = await worker.post("echo", envelope(context("envelope mebibyte"), { payload }), {}, ENVELOPE);
  assert.deepEqual([answer.status, answer.json().payload.data.length], [200, MIB - 2]);
});

test("a failure looks as it does over rest", async () => {
  const payload = { kind: "json", data: { account: 5 } };
  const answer = await postEnvelope(envelope(context("failure"), { payload }));
  assert.deepEqual([answer.status, answer.contentType, answer.reason()], [400, REST, "INPUT_INVALID"]);
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

test("a chunked request is read as any other", async () => {
  const head = "POST /activities/echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n";
  const answer = await worker.raw(`${head}transfer-encoding: chunked\r\n\r\n2\r\n[1\r\n2\r\n,2\r\n1\r\n]\r\n0\r\n\r\n`);
  assert.deepEqual([answer.status, answer.json()], [200, [1, 2]]);
});

test("health is told", async () => {
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
    const answer = await worker.raw(`${line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`);
    assert.equal(answer.status, status, line);
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
    const answer = await worker.raw(bad);
    assert.deepEqual([answer.status, answer.code()], [400, "INVALID_ARGUMENT"], bad);
  }
});

test("a head without end is refused", async () => {
  const answer = await worker.raw(`GET /healthz HTTP/1.1\r\nhost: x\r\nlong: ${"x".repeat(100_000)}`);
  assert.equal(answer.status, 431);
});
