// SQLite with one writer: transactions wait in a queue, and those that wait together share one commit and its fsync.
//
// Each transaction is still atomic (a savepoint of its own): it is in the commit whole, or not at all. Nobody is told
// of a result before the commit that holds it is on disk. A commit blocks the event loop for one fsync; what arrives
// meanwhile is the next batch.
//
// One process owns the database. Each start raises the incarnation; a process that finds a newer one than its own has
// been replaced and stops, so two of them can never both believe in their claims.

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

  /** Opens the file, makes the tables of `schemas` and takes ownership by raising the incarnation. */
  constructor(path: string, ...schemas: string[]) {
    this.#sqlite = new Sqlite(path);
    // In WAL mode only FULL waits for the disk at every commit; NORMAL would lose answered work with the power.
    this.#sqlite.exec("PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
    this.#sqlite.exec(`BEGIN IMMEDIATE; ${SCHEMA} ${schemas.join("")} COMMIT`);
    const raised = this.#sqlite.get("UPDATE incarnation SET number = number + 1 RETURNING number");
    this.incarnation = Number(raised?.["number"]);
  }

  /**
   * Runs `job` in a transaction soon; its result, or what it threw, comes after the commit.
   *
   * Every other request waits while `job` runs: it reads and writes this database and does nothing else.
   */
  transaction<T>(job: (tx: Transaction) => T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#queue.length === 0) setImmediate(() => this.#commitBatch());
      this.#queue.push({ job, resolve, reject });
    });
  }

  /** What waits in the queue is committed first. */
  close(): void {
    while (this.#queue.length > 0) this.#commitBatch();
    // SQLite does this by itself when it closes, but in the package not before the last statement is collected.
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
      // Somebody holds the lock, or the disk is full: SQLite has undone all of it, so all of it may be retried.
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
      if (error instanceof TransactionUndone) throw error;
      return { error };
    }
  }

  protected commit(): void {
    try {
      this.#sqlite.run("COMMIT");
    } catch (error) {
      // Whether it is on disk is not known, and no later fsync could tell. The next start reads what is there.
      stopProcess(`the commit failed: ${String(error)}`);
    }
  }

  #rollBack(): void {
    try {
      this.#sqlite.run("ROLLBACK");
    } catch {
      // There was no transaction any more.
    }
  }

  #stopIfReplaced(): void {
    const number = this.#sqlite.get("SELECT number FROM incarnation")?.["number"];
    if (number !== this.incarnation) {
      stopProcess(`incarnation ${number} owns the database now, this one was ${this.incarnation}`);
    }
  }
}

/** SQLite has undone the whole transaction, as it does after some errors: no part of it can go on. */
export class TransactionUndone extends Error {
  override readonly name = "TransactionUndone";
}

/** A part of a transaction that an exception undoes without touching the rest. */
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
      throw new TransactionUndone(String(error), { cause: error });
    }
    throw error;
  }
}

/** Like a crash, which everything here is made for: nothing more is written, no answer leaves. */
function stopProcess(why: string): never {
  console.error(`stopping at once: ${why}`);
  process.exit(1);
}

function unavailable(): Failure {
  const details = { reason: "STORE_UNAVAILABLE", retryAfterS: 1 };
  return new Failure("UNAVAILABLE", "the database is not available", details);
}
