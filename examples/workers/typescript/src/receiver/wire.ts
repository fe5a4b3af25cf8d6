// Encodes and decodes the bodies of the wires `rest` and `envelope`. Independent of HTTP connections and the database.
//
// A failure looks the same on both wires (status.ts), so only the bodies of successful responses differ.

import { isDeepStrictEqual } from "node:util";
import * as metadata from "./metadata.js";
import { type Metadata, type Pair } from "./metadata.js";
import { invalid } from "./status.js";
import { members, textAt } from "./text.js";

export type Json = null | boolean | number | string | Json[] | JsonObject;
export type JsonObject = { [key: string]: Json };

export const JSON_DEPTH_MAX = 64;
export const INPUT_BYTES_MAX = 7 * 512 * 1024;
export const OUTPUT_BYTES_MAX = 1024 * 1024;
/** How much an envelope may add around its payload. */
const ENVELOPE_BYTES_MAX = 64 * 1024;
const PROTOCOL = "tpf.envelope.v1";

/** The metadata key of each member of the envelope's context. */
const CONTEXT_KEYS: Readonly<Record<string, string>> = {
  correlationId: metadata.CORRELATION_ID,
  executionId: metadata.EXECUTION_ID,
  idempotencyKey: metadata.IDEMPOTENCY_KEY,
  retryAttempt: metadata.RETRY_ATTEMPT,
  deadlineEpochMs: metadata.DEADLINE,
  dispatchTsEpochMs: metadata.DISPATCHED_AT,
  parentItemId: metadata.PARENT_ITEM_ID,
};

/** A decoded request body. `text` is the JSON text of the input; `control` is copied into the response. */
export interface Decoded {
  readonly metadata: Metadata | undefined;
  readonly input: Json;
  readonly text: Uint8Array;
  readonly control?: JsonObject;
}

export interface Wire {
  readonly contentType: string;
  readonly bodyBytesMax: number;
  decode(headers: readonly Pair[], body: Uint8Array): Decoded;
  /** Wraps the JSON text of the output into the body of a successful response. */
  wrap(output: Buffer, control?: JsonObject): Buffer;
}

/** The request body is the input, the response body is the output, and metadata is in the headers. */
export const REST: Wire = {
  contentType: "application/json",
  bodyBytesMax: INPUT_BYTES_MAX,

  decode(headers, body) {
    // Metadata is checked first, so that every receiver rejects a request with several faults for the same one.
    return { metadata: metadata.decode(headers), input: decodeJson(body), text: body };
  },

  wrap(output) {
    return output;
  },
};

/** Metadata, input and output are parts of one JSON document. */
export const ENVELOPE: Wire = {
  contentType: "application/vnd.tpf.envelope.v1+json",
  bodyBytesMax: INPUT_BYTES_MAX + ENVELOPE_BYTES_MAX,

  decode(headers, body) {
    const inHeaders = metadata.decode(headers);
    // The input is nested two levels deep in the envelope.
    const envelope = decodeJson(body, JSON_DEPTH_MAX + 2);
    if (!isObject(envelope) || envelope["protocolVersion"] !== PROTOCOL) {
      throw invalid(`the protocol version is not ${PROTOCOL}`, "PROTOCOL_UNSUPPORTED");
    }
    const { control: given, payload } = envelope;
    const control = given ?? {};
    if (!isObject(control) || !isObject(payload)) {
      throw invalid("control and payload must be objects", "BODY_MALFORMED");
    }
    if (payload["kind"] !== "json") {
      throw invalid("this worker supports payloads of kind json only", "BODY_MALFORMED");
    }
    const text = Buffer.from(body).toString();
    const inContext = metadata.decode(contextPairs(control["context"], textAt(text, "control", "context")));
    // The context is the metadata of this wire, and headers are optional. If both are present and differ, one of them
    // would identify the wrong work.
    if (inHeaders !== undefined && !isDeepStrictEqual(inHeaders, inContext)) {
      throw metadata.malformed("headers and context disagree");
    }
    const data = Buffer.from(textAt(text, "payload", "data"));
    return { metadata: inContext, input: payload["data"] ?? null, text: data, control };
  },

  wrap(output, control = {}) {
    const head = JSON.stringify({ protocolVersion: PROTOCOL, control }).slice(0, -1);
    const payload = `${head},"payload":{"kind":"json","contentType":"application/json","data":`;
    return Buffer.concat([Buffer.from(payload), output, Buffer.from("}}")]);
  },
};

export const WIRES: readonly Wire[] = [REST, ENVELOPE];

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Whether a value is nested deeper than `depth`. Stops at that depth, so it also returns true for a value that
 * contains itself.
 */
export function isDeeper(value: Json | undefined, depth: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return depth === 0 || Object.values(value).some((item) => isDeeper(item, depth - 1));
}

/** Strict: UTF-8, finite numbers, no lone surrogates, limited depth. Every accepted value can be encoded again. */
function decodeJson(body: Uint8Array, depth = JSON_DEPTH_MAX): Json {
  try {
    const value = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body)) as Json;
    check(value, depth);
    return value;
  } catch (error) {
    throw invalid(`the body is not valid JSON: ${(error as Error).message}`, "BODY_MALFORMED");
  }
}

function check(value: Json, depth: number): void {
  if (typeof value === "number" && !Number.isFinite(value)) throw new RangeError("a number is out of range");
  if (typeof value === "string" && /\p{Surrogate}/u.test(value)) throw new RangeError("a string has a lone surrogate");
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

/** Keeps numbers as written: JavaScript would round large ones and read 1e3 and 1.0 as integers. */
function contextPairs(context: Json | undefined, text: string): Pair[] {
  if (context === undefined || context === null) return [];
  if (!isObject(context)) throw metadata.malformed("the context is not an object");
  const pairs: Pair[] = [];
  for (const [name, written] of members(text)) {
    const key = Object.hasOwn(CONTEXT_KEYS, name) ? CONTEXT_KEYS[name] : undefined;
    if (key === undefined) continue;
    const value = JSON.parse(written) as Json;
    if (value === null) {
      pairs.push([key, ""]);
    } else if (metadata.NUMBERS.has(key) ? typeof value === "number" : typeof value === "string") {
      pairs.push([key, typeof value === "string" ? value : written]);
    } else {
      throw metadata.malformed(`${name} is not ${metadata.NUMBERS.has(key) ? "an integer" : "a string"}`);
    }
  }
  return pairs;
}
