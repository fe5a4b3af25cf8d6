// The receiving side of the dispatch contract: everything a worker needs besides its activities.
//
//     http.ts       Node's HTTP server with limits; independent of activities
//     endpoint.ts   requests to responses: routes, limits, content types
//     wire.ts       the bodies of the wires `rest` and `envelope`
//     text.ts       values in JSON text, as written
//     metadata.ts   the seven x-tpf keys
//     status.ts     status codes and failure bodies
//     receive.ts    the order of the rules: stored result, in progress, deadline, claim, handler, record
//     work.ts       the table of claims and stored results
//     database.ts   SQLite: one writer, several transactions per fsync
//     sqlite.ts     chooses the SQLite library

export { Database } from "./database.js";
export { BODY_BYTES_MAX, Endpoint } from "./endpoint.js";
export { HttpServer } from "./http.js";
export {
  type Activities,
  type Activity,
  type Call,
  type Effect,
  HANDLER_TIMEOUT_MS,
  identityOf,
  Receiver,
  RETENTION_MS,
} from "./receive.js";
export type { Transaction } from "./sqlite.js";
export { Failure, isCode } from "./status.js";
export { isObject, type Json } from "./wire.js";
export { SCHEMA as WORK_SCHEMA } from "./work.js";
