// The rules of a receiver, in order. Uses activities and the table of work; independent of HTTP.
//
//     finished before   → the stored result, byte for byte
//     in progress       → ABORTED, IN_PROGRESS
//     deadline passed   → DEADLINE_EXCEEDED, DEADLINE_EXPIRED; nothing is recorded
//     claim → handler → effect and record in one transaction → result
//
// A retryable failure is not recorded: the claim is released and the next attempt runs. A permanent failure is recorded
// and returned to duplicates. The writes of a failing effect are rolled back in both cases.

import { isDeepStrictEqual } from "node:util";
import { type Database, savepoint, TransactionRolledBack } from "./database.js";
import type { Metadata } from "./metadata.js";
import type { Transaction } from "./sqlite.js";
import { type Code, Failure } from "./status.js";
import { isDeeper, type Json, JSON_DEPTH_MAX, type JsonObject, OUTPUT_BYTES_MAX, type Wire } from "./wire.js";
import * as work from "./work.js";
import type { Claim, Finished, Identity } from "./work.js";

export const HANDLER_TIMEOUT_MS = 10 * 60 * 1000;
export const RETENTION_MS = 7 * 24 * 60 * 60 * 1000;
export const SWEEP_MAX = 500;
/** The longest delay of a Node timer. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** One attempt of an activity call, as passed to a handler. */
export interface Call {
  readonly activity: string;
  readonly metadata: Metadata;
  readonly input: Json;
  readonly database: Database;
  readonly wire: Wire;
  readonly control?: JsonObject | undefined;
}

export type Effect = (tx: Transaction) => Json;

/** Does everything in one short transaction: `run` returns the output. */
export interface Transactional {
  run(call: Call, tx: Transaction): Json;
}

/**
 * Does its slow work first: `prepare` runs outside any transaction and returns the effect, a function of `tx` that
 * returns the output. `signal` aborts when the handler times out; the effect of a handler that continues is dropped.
 */
export interface Prepared {
  prepare(call: Call, signal: AbortSignal): Promise<Effect>;
}

export type Activity = Transactional | Prepared;
export type Activities = Readonly<Record<string, Activity>>;

export interface CallResult {
  readonly status: number;
  readonly body: Buffer;
  readonly contentType: string;
  readonly retryAfterS?: number | undefined;
}

export interface Options {
  readonly handlerTimeoutMs?: number;
  readonly retentionMs?: number;
  readonly clock?: () => number;
}

export function identityOf(call: Call): Identity {
  return [call.metadata.executionId, call.activity, call.metadata.idempotencyKey];
}

export function failureResult(failure: Failure, executionId = ""): CallResult {
  const { retryAfterS } = failure.details;
  return { status: failure.http, body: failure.body(executionId), contentType: "application/json", retryAfterS };
}

export class Receiver {
  readonly #handlerTimeoutMs: number;
  readonly #retentionMs: number;
  readonly #clock: () => number;
  #claims = 0;

  constructor(
    readonly database: Database,
    readonly activities: Activities,
    options: Options = {},
  ) {
    this.#handlerTimeoutMs = options.handlerTimeoutMs ?? HANDLER_TIMEOUT_MS;
    this.#retentionMs = options.retentionMs ?? RETENTION_MS;
    this.#clock = options.clock ?? Date.now;
  }

  async receive(call: Call, activity: Activity): Promise<CallResult> {
    if ("run" in activity) {
      // Everything happens in one transaction, so no other attempt could see a claim: none is needed.
      const run = (tx: Transaction): Json => activity.run(call, tx);
      return this.#transaction(
        call,
        (tx) => this.#earlyResult(tx, call) ?? this.#settle(tx, call, this.#newClaim(call), run),
      );
    }
    const admitted = await this.#transaction(call, (tx) => this.#earlyResult(tx, call) ?? this.#claimWork(tx, call));
    if ("status" in admitted) return admitted;
    const effect = await this.#prepare(activity, call, admitted);
    return this.#transaction(call, (tx) => this.#settleClaimed(tx, call, admitted, effect));
  }

  /** Returns the result that a duplicate would get, without running anything. */
  async probe(call: Call): Promise<CallResult> {
    const found = await this.#transaction(call, (tx) => this.#existingResult(tx, call));
    return found ?? refusal(call, "NOT_FOUND", "WORK_UNKNOWN", "this work is unknown here");
  }

  /** Deletes a bounded number of old records and void claims. Returns true if there may be more. */
  async sweep(): Promise<boolean> {
    const now = this.#clock();
    const bounds = {
      finishedBefore: now - this.#retentionMs,
      incarnation: this.database.incarnation,
      now,
      limit: SWEEP_MAX,
    };
    return (await this.database.transaction((tx) => work.sweep(tx, bounds))) >= SWEEP_MAX;
  }

  async #transaction<T>(call: Call, job: (tx: Transaction) => T): Promise<T | CallResult> {
    try {
      return await this.database.transaction(job);
    } catch (error) {
      return failureResult(asFailure(call, error), call.metadata.executionId);
    }
  }

  /** The result for work that must not run now, or undefined if it has to run. */
  #earlyResult(tx: Transaction, call: Call): CallResult | undefined {
    const found = this.#existingResult(tx, call);
    if (found !== undefined) return found;
    const deadline = call.metadata.deadlineEpochMs;
    if (deadline === undefined || deadline > this.#clock()) return undefined;
    return refusal(call, "DEADLINE_EXCEEDED", "DEADLINE_EXPIRED", "the deadline passed before the work began");
  }

  #existingResult(tx: Transaction, call: Call): CallResult | undefined {
    const found = work.find(tx, identityOf(call));
    if (found === undefined) return undefined;
    if ("finished" in found) return storedResult(found.finished, call);
    if (this.#isVoid(found.claim)) return undefined;
    return refusal(call, "ABORTED", "IN_PROGRESS", "this work is in progress");
  }

  /** A claim is void if its process is gone or its handler took too long. */
  #isVoid(claim: Claim): boolean {
    return claim.incarnation !== this.database.incarnation || claim.expiresAt <= this.#clock();
  }

  #newClaim(call: Call): Claim {
    this.#claims += 1;
    const expiresAt = call.metadata.deadlineEpochMs ?? this.#clock() + this.#handlerTimeoutMs;
    const { incarnation } = this.database;
    return { incarnation, number: this.#claims, expiresAt: Math.min(expiresAt, Number.MAX_SAFE_INTEGER) };
  }

  #claimWork(tx: Transaction, call: Call): Claim {
    const claim = this.#newClaim(call);
    work.claim(tx, identityOf(call), claim);
    return claim;
  }

  /** Failures come back as an effect that throws them, so that one place settles every outcome. */
  async #prepare(activity: Prepared, call: Call, claim: Claim): Promise<Effect> {
    const stop = new AbortController();
    const tooLate = new Failure("DEADLINE_EXCEEDED", "the handler took too long", { reason: "HANDLER_TIMEOUT" });
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<never>((_, reject) => {
      const left = Math.min(Math.max(0, claim.expiresAt - this.#clock()), TIMER_MS_MAX);
      timer = setTimeout(() => {
        reject(tooLate);
        stop.abort(tooLate);
      }, left);
    });
    try {
      return await Promise.race([activity.prepare(call, stop.signal), timeout]);
    } catch (error) {
      return () => {
        throw error;
      };
    } finally {
      clearTimeout(timer);
    }
  }

  #settleClaimed(tx: Transaction, call: Call, claim: Claim, effect: Effect): CallResult {
    if (!isDeepStrictEqual(work.find(tx, identityOf(call)), { claim })) {
      // The claim expired, and another attempt replaced it or finished the work. This effect must not happen too.
      return refusal(call, "ABORTED", "CLAIM_LOST", "the claim was lost while the handler ran");
    }
    return this.#settle(tx, call, claim, effect);
  }

  /** Runs the effect and stores its result, both in the transaction `tx`. */
  #settle(tx: Transaction, call: Call, claim: Claim, effect: Effect): CallResult {
    let finished: Finished;
    try {
      finished = { status: 200, body: savepoint(tx, () => textOf(effect(tx))) };
    } catch (error) {
      if (error instanceof TransactionRolledBack) throw error;
      const failure = asFailure(call, error);
      const result = failureResult(failure, call.metadata.executionId);
      if (failure.isRetryable) {
        work.release(tx, identityOf(call));
        return result;
      }
      finished = { status: result.status, body: result.body };
    }
    work.finish(tx, identityOf(call), claim, finished, this.#clock());
    return storedResult(finished, call);
  }
}

/** The JSON text of an output. Rejects output that no sender accepts while the effect can still be rolled back. */
function textOf(output: Json | undefined): Buffer {
  if (isDeeper(output, JSON_DEPTH_MAX)) {
    const message = `the output is nested deeper than ${JSON_DEPTH_MAX} levels`;
    throw new Failure("OUT_OF_RANGE", message, { reason: "OUTPUT_TOO_LARGE" });
  }
  const text = Buffer.from(JSON.stringify(output ?? null));
  if (text.length > OUTPUT_BYTES_MAX) {
    const message = `the output is longer than ${OUTPUT_BYTES_MAX} bytes`;
    throw new Failure("OUT_OF_RANGE", message, { reason: "OUTPUT_TOO_LARGE" });
  }
  return text;
}

function storedResult({ status, body }: Finished, { wire, control }: Call): CallResult {
  if (status !== 200) return { status, body, contentType: "application/json" };
  return { status, body: wire.wrap(body, control), contentType: wire.contentType };
}

function refusal(call: Call, code: Code, reason: string, message: string): CallResult {
  return failureResult(new Failure(code, message, { reason }), call.metadata.executionId);
}

function asFailure(call: Call, error: unknown): Failure {
  if (error instanceof Failure) return error;
  // The details go to the operator's log only; the caller gets no internals.
  console.error(`${call.activity} failed unexpectedly:`, error);
  return new Failure("INTERNAL", "the handler failed unexpectedly", { reason: "HANDLER_PANICKED" });
}
