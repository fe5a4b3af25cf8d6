// SQLite with one writer: transactions wait in a queue, and those that wait together share one commit and one fsync.
//
// Each transaction is still atomic, because it has its own savepoint: the commit contains all of it or none of it. No
// result is returned before its commit is on disk. A commit blocks the event loop for one fsync; requests that arrive
// meanwhile form the next batch.
//
// One process owns the database. Each start increments the incarnation. A process that finds a newer incarnation has
// been replaced and stops, so two processes never both treat their claims as valid.

import { Sqlite, type Transaction } from "./sqlite.js";
import { Failure } from "./status.js";

const BATCH_MAX = 256;

const SCHEMA = `
CREATE TABLE IF NOT EXISTS incarnation (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), number INTEGER NOT NULL);
INSERT OR IGNORE INTO incarnation VALUES (1, 0);
`;

interface Waiting {
  readonly job: (tx: Transaction) => unknown;
  readonly resolve: (value: never) => void;
  readonly reject: (error: unknown) => void;
}

type Outcome = { readonly value: unknown } | { readonly error: unknown };

export class Database {
  readonly incarnation: number;
  readonly #sqlite: Sqlite;
  #queue: Waiting[] = [];

  /** Opens the file, creates the tables of `schemas` and takes ownership by incrementing the incarnation. */
  constructor(path: string, ...schemas: string[]) {
    this.#sqlite = new Sqlite(path);
    // In WAL mode only FULL syncs at every commit; with NORMAL a power cut could lose acknowledged work.
    this.#sqlite.exec("PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
    this.#sqlite.exec(`BEGIN IMMEDIATE; ${SCHEMA} ${schemas.join("")} COMMIT`);
    const raised = this.#sqlite.get("UPDATE incarnation SET number = number + 1 RETURNING number");
    this.incarnation = Number(raised?.["number"]);
  }

  /**
   * Queues `job` to run in a transaction. Its result or exception is delivered after the commit.
   *
   * Every other request waits while `job` runs, so `job` must only read and write this database.
   */
  transaction<T>(job: (tx: Transaction) => T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#queue.length === 0) setImmediate(() => this.#commitBatch());
      this.#queue.push({ job, resolve, reject });
    });
  }

  /** Commits the queued transactions, then closes the file. */
  close(): void {
    while (this.#queue.length > 0) this.#commitBatch();
    // SQLite checkpoints when it closes, but the package delays that until the last statement is garbage-collected.
    this.#sqlite.get("PRAGMA wal_checkpoint(TRUNCATE)");
    this.#sqlite.close();
  }

  #commitBatch(): void {
    if (this.#queue.length === 0) return;
    const batch = this.#queue.slice(0, BATCH_MAX);
    this.#queue = this.#queue.slice(BATCH_MAX);
    if (this.#queue.length > 0) setImmediate(() => this.#commitBatch());
    const outcomes = this.#runAll(batch);
    batch.forEach(({ resolve, reject }, index) => {
      const outcome = outcomes[index] as Outcome;
      if ("error" in outcome) reject(outcome.error);
      else resolve(outcome.value as never);
    });
  }

  #runAll(batch: readonly Waiting[]): Outcome[] {
    let outcomes: Outcome[];
    try {
      this.#sqlite.run("BEGIN IMMEDIATE");
      this.#stopIfReplaced();
      outcomes = batch.map(({ job }) => this.#run(job));
    } catch (error) {
      // The lock is held or the disk is full. SQLite has rolled back the whole batch, so all of it can be retried.
      console.error(`database: ${String(error)}`);
      this.#rollBack();
      return batch.map(() => ({ error: unavailable() }));
    }
    this.commit();
    return outcomes;
  }

  #run(job: (tx: Transaction) => unknown): Outcome {
    try {
      return { value: savepoint(this.#sqlite, () => job(this.#sqlite)) };
    } catch (error) {
      if (error instanceof TransactionRolledBack) throw error;
      return { error };
    }
  }

  protected commit(): void {
    try {
      this.#sqlite.run("COMMIT");
    } catch (error) {
      // The commit may or may not be on disk, and no later fsync can tell. The next start reads the actual state.
      stopProcess(`the commit failed: ${String(error)}`);
    }
  }

  #rollBack(): void {
    try {
      this.#sqlite.run("ROLLBACK");
    } catch {
      // No transaction was open any more.
    }
  }

  #stopIfReplaced(): void {
    const number = this.#sqlite.get("SELECT number FROM incarnation")?.["number"];
    if (number !== this.incarnation) {
      stopProcess(`incarnation ${number} now owns the database; this process is incarnation ${this.incarnation}`);
    }
  }
}

/** SQLite has rolled back the whole transaction, as it does after some errors. No part of it can continue. */
export class TransactionRolledBack extends Error {
  override readonly name = "TransactionRolledBack";
}

/** A part of a transaction that an exception rolls back without affecting the rest. */
export function savepoint<T>(tx: Transaction, part: () => T): T {
  tx.run("SAVEPOINT part");
  try {
    const result = part();
    tx.run("RELEASE part");
    return result;
  } catch (error) {
    try {
      tx.run("ROLLBACK TO part");
      tx.run("RELEASE part");
    } catch {
      throw new TransactionRolledBack(String(error), { cause: error });
    }
    throw error;
  }
}

/** Exits like a crash, which this design tolerates: nothing more is written and no response is sent. */
function stopProcess(why: string): never {
  console.error(`stopping immediately: ${why}`);
  process.exit(1);
}

function unavailable(): Failure {
  const details = { reason: "STORE_UNAVAILABLE", retryAfterS: 1 };
  return new Failure("UNAVAILABLE", "the database is not available", details);
}
