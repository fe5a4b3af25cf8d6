// The bodies of the wires `rest` and `envelope`, both ways. Knows nothing of HTTP connections or the database.
//
// A failure looks the same on both wires (status.ts), so only the answers of success differ.

import { isDeepStrictEqual } from "node:util";
import * as metadata from "./metadata.js";
import { type Metadata, type Pair } from "./metadata.js";
import { invalid } from "./status.js";

export type Json = null | boolean | number | string | Json[] | JsonObject;
export type JsonObject = { [key: string]: Json };

const JSON_DEPTH_MAX = 64;
const PAYLOAD_BYTES_MAX = 1024 * 1024;
/** What an envelope may have around its payload. */
const ENVELOPE_BYTES_MAX = 64 * 1024;
const PROTOCOL = "tpf.envelope.v1";

/** Where the envelope's context holds each metadata key. */
const CONTEXT_KEYS: Readonly<Record<string, string>> = {
  correlationId: metadata.CORRELATION_ID,
  executionId: metadata.EXECUTION_ID,
  idempotencyKey: metadata.IDEMPOTENCY_KEY,
  retryAttempt: metadata.RETRY_ATTEMPT,
  deadlineEpochMs: metadata.DEADLINE,
  dispatchTsEpochMs: metadata.DISPATCHED_AT,
  parentItemId: metadata.PARENT_ITEM_ID,
};

/** A request body, read. `control` is the envelope's, to be copied into its answer. */
export interface Decoded {
  readonly metadata: Metadata | undefined;
  readonly input: Json;
  readonly control?: JsonObject;
}

export interface Wire {
  readonly name: string;
  readonly contentType: string;
  readonly bodyBytesMax: number;
  decode(headers: readonly Pair[], body: Uint8Array): Decoded;
  encode(output: Json, control?: JsonObject): Buffer;
  /** The output in an answer of success. */
  output(answer: Buffer): Json;
}

/** The body is the input, the answer's body is the output, metadata is in the headers. */
export const REST: Wire = {
  name: "rest",
  contentType: "application/json",
  bodyBytesMax: PAYLOAD_BYTES_MAX,

  decode(headers, body) {
    // Metadata first: a request with several faults is refused for the same one everywhere.
    return { metadata: metadata.decode(headers), input: decodeJson(body) };
  },

  encode(output) {
    return Buffer.from(JSON.stringify(output));
  },

  output(answer) {
    return JSON.parse(answer.toString()) as Json;
  },
};

/** Metadata, input and output are parts of one JSON document. */
export const ENVELOPE: Wire = {
  name: "envelope",
  contentType: "application/vnd.tpf.envelope.v1+json",
  bodyBytesMax: PAYLOAD_BYTES_MAX + ENVELOPE_BYTES_MAX,

  decode(headers, body) {
    const inHeaders = metadata.decode(headers);
    const envelope = decodeJson(body);
    if (!isObject(envelope) || envelope["protocolVersion"] !== PROTOCOL) {
      throw invalid(`the protocol version is not ${PROTOCOL}`, "PROTOCOL_UNSUPPORTED");
    }
    const { control: given, payload } = envelope;
    const control = given ?? {};
    if (!isObject(control) || !isObject(payload)) {
      throw invalid("control and payload have to be objects", "BODY_MALFORMED");
    }
    if (payload["kind"] !== "json") {
      throw invalid("this worker takes payloads of kind json only", "BODY_MALFORMED");
    }
    const inContext = metadata.decode(contextPairs(control["context"]));
    // The context is the metadata of this wire. Headers may be left out; if they are there and say something else,
    // one of the two would be the wrong work.
    if (inHeaders !== undefined && !isDeepStrictEqual(inHeaders, inContext)) {
      throw metadata.malformed("headers and context disagree");
    }
    return { metadata: inContext, input: payload["data"] ?? null, control };
  },

  encode(output, control = {}) {
    const payload = { kind: "json", contentType: "application/json", data: output };
    return Buffer.from(JSON.stringify({ protocolVersion: PROTOCOL, control, payload }));
  },

  output(answer) {
    return (JSON.parse(answer.toString()) as { payload: { data: Json } }).payload.data;
  },
};

export const WIRES: readonly Wire[] = [REST, ENVELOPE];

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Strict: UTF-8, finite numbers, no lone surrogates, limited depth. What comes in can be sent out again. */
function decodeJson(body: Uint8Array): Json {
  try {
    const value = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body)) as Json;
    check(value, JSON_DEPTH_MAX);
    return value;
  } catch (error) {
    throw invalid(`the body is not acceptable JSON: ${(error as Error).message}`, "BODY_MALFORMED");
  }
}

function check(value: Json, depth: number): void {
  if (typeof value === "number" && !Number.isFinite(value)) throw new RangeError("a number is out of range");
  if (typeof value === "string" && /\p{Surrogate}/u.test(value)) throw new RangeError("a text has half a character");
  if (typeof value !== "object" || value === null) return;
  if (depth === 0) throw new RangeError(`nested deeper than ${JSON_DEPTH_MAX}`);
  if (Array.isArray(value)) {
    for (const item of value) check(item, depth - 1);
  } else {
    for (const [key, item] of Object.entries(value)) {
      check(key, depth);
      check(item, depth - 1);
    }
  }
}

function contextPairs(context: Json | undefined): Pair[] {
  if (context === undefined || context === null) return [];
  if (!isObject(context)) throw metadata.malformed("the context is not an object");
  const pairs: Pair[] = [];
  for (const [name, key] of Object.entries(CONTEXT_KEYS)) {
    const value = context[name];
    if (value === undefined || value === null) continue;
    if (typeof value !== "string" && !Number.isSafeInteger(value)) {
      throw metadata.malformed(`${name} is neither text nor a whole number`);
    }
    pairs.push([key, String(value)]);
  }
  return pairs;
}
