// The table of work: its claim and when that expires, then the stored result once the work is finished.
//
// SQL only: the rules that use the rows are in receive.ts.

import type { Row, Transaction } from "./sqlite.js";

export const SCHEMA = `
CREATE TABLE IF NOT EXISTS work (
    id INTEGER PRIMARY KEY,
    execution_id TEXT NOT NULL,
    activity TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    claim INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    finished_at INTEGER,
    status INTEGER,
    body BLOB,
    UNIQUE (execution_id, activity, idempotency_key)
);
CREATE INDEX IF NOT EXISTS work_finished_at ON work (finished_at);
`;

/** Identifies the work: attempts with equal execution id, activity and idempotency key are duplicates. */
export type Identity = readonly [executionId: string, activity: string, idempotencyKey: string];

/** The right to finish the work. `number` distinguishes claims of the same incarnation. */
export interface Claim {
  readonly incarnation: number;
  readonly number: number;
  readonly expiresAt: number;
}

/** A stored result. `body` is the JSON text of the output, independent of the wire, or the body of the failure. */
export interface Finished {
  readonly status: number;
  readonly body: Buffer;
}

export type Found = { readonly claim: Claim } | { readonly finished: Finished } | undefined;

const IS = "execution_id = ? AND activity = ? AND idempotency_key = ?";
const FIND = `SELECT incarnation, claim, expires_at, finished_at, status, body FROM work WHERE ${IS}`;

export function find(tx: Transaction, identity: Identity): Found {
  const row = tx.get(FIND, ...identity);
  if (row === undefined) return undefined;
  return row["finished_at"] === null ? { claim: readClaim(row) } : { finished: readFinished(row) };
}

/** Claims the work, replacing a void claim if there is one. */
export function claim(tx: Transaction, identity: Identity, claim: Claim): void {
  tx.run(
    `INSERT INTO work (execution_id, activity, idempotency_key, incarnation, claim, expires_at)
     VALUES (?, ?, ?, ?, ?, ?)
     ON CONFLICT (execution_id, activity, idempotency_key) DO UPDATE
     SET incarnation = excluded.incarnation, claim = excluded.claim, expires_at = excluded.expires_at`,
    ...identity,
    claim.incarnation,
    claim.number,
    claim.expiresAt,
  );
}

export function finish(tx: Transaction, identity: Identity, claim: Claim, finished: Finished, now: number): void {
  tx.run(
    `INSERT INTO work (execution_id, activity, idempotency_key, incarnation, claim, expires_at,
                       finished_at, status, body)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (execution_id, activity, idempotency_key) DO UPDATE SET finished_at = excluded.finished_at,
     status = excluded.status, body = excluded.body`,
    ...identity,
    claim.incarnation,
    claim.number,
    claim.expiresAt,
    now,
    finished.status,
    finished.body,
  );
}

export function release(tx: Transaction, identity: Identity): void {
  tx.run(`DELETE FROM work WHERE ${IS} AND finished_at IS NULL`, ...identity);
}

export interface Sweep {
  readonly finishedBefore: number;
  readonly incarnation: number;
  readonly now: number;
  readonly limit: number;
}

/** Deletes up to `limit` records past their retention, and up to `limit` void claims that no attempt replaced. */
export function sweep(tx: Transaction, { finishedBefore, incarnation, now, limit }: Sweep): number {
  const old = "SELECT id FROM work WHERE finished_at <= ? ORDER BY finished_at LIMIT ?";
  const gone = "SELECT id FROM work WHERE finished_at IS NULL AND (incarnation <> ? OR expires_at <= ?) LIMIT ?";
  const deleted = tx.run(`DELETE FROM work WHERE id IN (${old})`, finishedBefore, limit);
  return deleted + tx.run(`DELETE FROM work WHERE id IN (${gone})`, incarnation, now, limit);
}

function readClaim(row: Row): Claim {
  const { incarnation, claim, expires_at } = row;
  return { incarnation: Number(incarnation), number: Number(claim), expiresAt: Number(expires_at) };
}

function readFinished(row: Row): Finished {
  const { status, body } = row;
  return { status: Number(status), body: Buffer.from(body as Uint8Array) };
}
