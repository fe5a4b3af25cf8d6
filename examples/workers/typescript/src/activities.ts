// The activities that this worker serves. Replace them with your own; use `ledger.add` as the template.
//
// They see their input and the database only. The receiver handles HTTP, attempts and duplicates.

import { setTimeout as sleep } from "node:timers/promises";
import { type Activities, type Call, type Effect, Failure, identityOf, isCode, isObject } from "./receiver/index.js";
import type { Json, Transaction } from "./receiver/index.js";

const WAIT_MS_MAX = 30_000;
/** Every JSON implementation represents integers up to this limit exactly. */
const AMOUNT_MAX = Number.MAX_SAFE_INTEGER;

export const SCHEMA = `
CREATE TABLE IF NOT EXISTS accounts (account TEXT PRIMARY KEY, balance INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS effects (
    execution_id TEXT NOT NULL,
    activity TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    body TEXT NOT NULL,
    at INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS runs (tag TEXT PRIMARY KEY, runs INTEGER NOT NULL) WITHOUT ROWID;
`;

/** Adds to an account. `effects` has no unique key, so a repeated effect would show as two rows. */
export function ledgerAdd(call: Call, tx: Transaction): Json {
  const account = stringField(call, "account");
  const amount = integerField(call, "amount", -AMOUNT_MAX, AMOUNT_MAX);
  const before = Number(tx.get("SELECT balance FROM accounts WHERE account = ?", account)?.["balance"] ?? 0);
  const balance = before + amount;
  tx.run(
    "INSERT INTO effects (execution_id, activity, idempotency_key, attempt, body, at) VALUES (?, ?, ?, ?, ?, ?)",
    ...identityOf(call),
    call.metadata.retryAttempt,
    JSON.stringify(call.input),
    Date.now(),
  );
  if (!Number.isSafeInteger(balance)) {
    // Throwing rolls back the row. The failure is permanent, so it is stored and returned to duplicates.
    const details = { reason: "BALANCE_TOO_LARGE", domain: "ledger" };
    throw new Failure("OUT_OF_RANGE", "the balance would be too large", details);
  }
  tx.run("INSERT INTO accounts VALUES (?, ?) ON CONFLICT DO UPDATE SET balance = excluded.balance", account, balance);
  return { balance };
}

function echo(call: Call): Json {
  return call.input;
}

/** The activity that `abide conform` calls. It also shows `prepare`: the wait runs outside any transaction. */
async function conformance(call: Call, signal: AbortSignal): Promise<Effect> {
  const op = stringField(call, "op");
  if (op === "fail") return fail(call);
  if (op === "echo") {
    const value = field(call, "value");
    if (value === undefined) throw invalid("value is missing");
    return () => ({ value });
  }
  const tag = stringField(call, "tag");
  if (op === "run") return (tx) => ({ runs: addRun(tx, tag) });
  if (op === "count") return (tx) => ({ runs: countRuns(tx, tag) });
  if (op === "wait") {
    const waitMs = integerField(call, "ms", 0, WAIT_MS_MAX);
    await sleep(waitMs, undefined, { signal });
    return (tx) => ({ runs: addRun(tx, tag) });
  }
  throw invalid("op must be one of run, fail, wait, count, echo");
}

/** Fails `times` times with the requested status, then succeeds. */
async function fail(call: Call): Promise<Effect> {
  const tag = stringField(call, "tag");
  const times = integerField(call, "times", 0, AMOUNT_MAX);
  const status = stringField(call, "status");
  if (!isCode(status)) throw invalid("status is not the name of a failure code");
  // A separate transaction, because the writes of a failing effect are rolled back.
  const runs = await call.database.transaction((tx) => addRun(tx, tag));
  if (runs <= times) {
    throw new Failure(status, `run ${runs} fails as requested`, { reason: "CONFORMANCE", domain: "conformance" });
  }
  return () => ({ runs });
}

export const ACTIVITIES: Activities = {
  "ledger.add": { run: ledgerAdd },
  echo: { run: echo },
  fail: { prepare: fail },
  conformance: { prepare: conformance },
};

function countRuns(tx: Transaction, tag: string): number {
  return Number(tx.get("SELECT runs FROM runs WHERE tag = ?", tag)?.["runs"] ?? 0);
}

function addRun(tx: Transaction, tag: string): number {
  tx.run("INSERT INTO runs VALUES (?, 1) ON CONFLICT (tag) DO UPDATE SET runs = runs + 1", tag);
  return countRuns(tx, tag);
}

function stringField(call: Call, name: string): string {
  const value = field(call, name);
  if (typeof value !== "string") throw invalid(`${name} must be a string`);
  return value;
}

function integerField(call: Call, name: string, minimum: number, maximum: number): number {
  const value = field(call, name);
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < minimum || value > maximum) {
    throw invalid(`${name} must be an integer from ${minimum} to ${maximum}`);
  }
  return value;
}

function field(call: Call, name: string): Json | undefined {
  return isObject(call.input) && Object.hasOwn(call.input, name) ? call.input[name] : undefined;
}

function invalid(message: string): Failure {
  return new Failure("INVALID_ARGUMENT", message, { reason: "INPUT_INVALID", domain: "worker" });
}
