// SQLite as Node has it: node:sqlite where there is one (Node 22.13 and newer), else a package with the same interface.
//
// The package brings SQLite compiled for the usual platforms. A WebAssembly build would run anywhere, but those known
// have no file locks: a lock left by a killed process needs repair, and reading the file from outside is not safe.

import { createRequire } from "node:module";

export type Value = null | number | string | Uint8Array;
export type Row = Record<string, Value>;

/** What is used of the interface that both have. */
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

/** What handlers see of the database: statements of the transaction they are in, prepared once each. */
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
