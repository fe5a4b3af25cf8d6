// Strict parsing of the seven x-tpf keys. One decoder serves all wires, wherever the pairs come from.
//
// A typo in metadata must not create different work, so malformed metadata is rejected before anything runs.

import { createHash } from "node:crypto";
import { type Failure, invalid } from "./status.js";

export const CORRELATION_ID = "x-tpf-correlation-id";
export const EXECUTION_ID = "x-tpf-execution-id";
export const IDEMPOTENCY_KEY = "x-tpf-idempotency-key";
export const RETRY_ATTEMPT = "x-tpf-retry-attempt";
export const DEADLINE = "x-tpf-deadline-epoch-ms";
export const DISPATCHED_AT = "x-tpf-dispatch-ts-epoch-ms";
export const PARENT_ITEM_ID = "x-tpf-parent-item-id";
const KEYS: ReadonlySet<string> = new Set([
  CORRELATION_ID,
  EXECUTION_ID,
  IDEMPOTENCY_KEY,
  RETRY_ATTEMPT,
  DEADLINE,
  DISPATCHED_AT,
  PARENT_ITEM_ID,
]);
/** The keys whose values are numbers. */
export const NUMBERS: ReadonlySet<string> = new Set([RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT]);

const VALUE_BYTES_MAX = 512;
const U32_MAX = 2n ** 32n - 1n;
const I64_MAX = 2n ** 63n - 1n;

export interface Metadata {
  readonly executionId: string;
  readonly idempotencyKey: string;
  readonly correlationId: string;
  readonly retryAttempt: number;
  readonly deadlineEpochMs: number | undefined;
  readonly dispatchedAtEpochMs: number | undefined;
  readonly parentItemId: string | undefined;
}

export type Pair = readonly [name: string, value: string];

/** Returns undefined if no key is present (see `fallback`). Names are case-insensitive; blank values are absent. */
export function decode(pairs: Iterable<Pair>): Metadata | undefined {
  const seen = new Set<string>();
  const present = new Map<string, string>();
  for (const [name, text] of pairs) {
    const key = name.toLowerCase();
    if (!KEYS.has(key)) continue;
    if (seen.has(key)) throw malformed(`duplicate ${key}`);
    seen.add(key);
    const value = readValue(key, text);
    if (value !== "") present.set(key, value);
  }
  if (present.size === 0) return undefined;
  const executionId = required(present, EXECUTION_ID);
  return {
    executionId,
    idempotencyKey: required(present, IDEMPOTENCY_KEY),
    correlationId: present.get(CORRELATION_ID) ?? executionId,
    retryAttempt: readNumber(present, RETRY_ATTEMPT, U32_MAX) ?? 0,
    deadlineEpochMs: readNumber(present, DEADLINE, I64_MAX),
    dispatchedAtEpochMs: readNumber(present, DISPATCHED_AT, I64_MAX),
    parentItemId: present.get(PARENT_ITEM_ID),
  };
}

/** Metadata for a caller that sends none: inputs with the same JSON text are the same work. */
export function fallback(activity: string, text: Uint8Array): Metadata {
  const idempotencyKey = createHash("sha256").update(activity).update("\0").update(text).digest("hex");
  return {
    executionId: "",
    idempotencyKey,
    correlationId: "",
    retryAttempt: 0,
    deadlineEpochMs: undefined,
    dispatchedAtEpochMs: undefined,
    parentItemId: undefined,
  };
}

export function malformed(message: string): Failure {
  return invalid(message, "METADATA_MALFORMED");
}

function required(present: Map<string, string>, key: string): string {
  const value = present.get(key);
  if (value === undefined) throw malformed(`${key} is missing`);
  return value;
}

function readValue(key: string, text: string): string {
  // HTTP strips blanks around a value. Stripping them here makes equal values equal on every wire.
  const value = text.replace(/^[ \t]+|[ \t]+$/g, "");
  if (value.length > VALUE_BYTES_MAX || !/^[\x20-\x7e]*$/.test(value)) {
    throw malformed(`${key} is longer than ${VALUE_BYTES_MAX} bytes or not printable ASCII`);
  }
  return value;
}

function readNumber(present: Map<string, string>, key: string, maximum: bigint): number | undefined {
  const value = present.get(key);
  if (value === undefined) return undefined;
  // Number() alone would accept signs, hexadecimal digits, exponents and fractions.
  if (!/^[0-9]+$/.test(value) || BigInt(value) > maximum) {
    throw malformed(`${key} is not a decimal number up to ${maximum}`);
  }
  return Number(value);
}
