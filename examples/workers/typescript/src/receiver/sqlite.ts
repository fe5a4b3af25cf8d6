// SQLite for Node: node:sqlite if available (Node 22.13 and newer), else a package with the same interface.
//
// The package contains SQLite compiled for the usual platforms. A WebAssembly build would run anywhere, but the known
// builds have no file locks: a lock left by a killed process needs repair, and other processes cannot safely read the
// file.

import { createRequire } from "node:module";

export type Value = null | number | string | Uint8Array;
export type Row = Record<string, Value>;

/** The part of the common interface that this worker uses. */
interface DatabaseSync {
  exec(sql: string): void;
  prepare(sql: string): Statement;
  close(): void;
}

interface Statement {
  run(...values: Value[]): { changes: number | bigint };
  get(...values: Value[]): unknown;
}

type DatabaseConstructor = new (path: string) => DatabaseSync;

/** The handlers' view of the database: statements in the current transaction, each prepared once. */
export interface Transaction {
  /** Returns how many rows were changed. */
  run(sql: string, ...values: Value[]): number;
  /** The first row. */
  get(sql: string, ...values: Value[]): Row | undefined;
}

export class Sqlite implements Transaction {
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, Statement>();

  constructor(path: string) {
    this.#database = new (loadDatabase())(path);
  }

  exec(sql: string): void {
    this.#database.exec(sql);
  }

  run(sql: string, ...values: Value[]): number {
    return Number(this.#prepare(sql).run(...values).changes);
  }

  get(sql: string, ...values: Value[]): Row | undefined {
    return this.#prepare(sql).get(...values) as Row | undefined;
  }

  close(): void {
    this.#statements.clear();
    this.#database.close();
  }

  #prepare(sql: string): Statement {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}

function loadDatabase(): DatabaseConstructor {
  const require = createRequire(import.meta.url);
  try {
    return (require("node:sqlite") as { DatabaseSync: DatabaseConstructor }).DatabaseSync;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_UNKNOWN_BUILTIN_MODULE") throw error;
    return (require("@photostructure/sqlite") as { DatabaseSync: DatabaseConstructor }).DatabaseSync;
  }
}
