// Reads the settings, starts the worker, and shuts it down gracefully at SIGTERM.

import { SCHEMA } from "./activities.js";
import { BODY_BYTES_MAX, Database, Endpoint, Failure, HttpServer, Receiver, WORK_SCHEMA } from "./receiver/index.js";
import { type Activities, HANDLER_TIMEOUT_MS, RETENTION_MS } from "./receiver/index.js";

const SWEEP_EVERY_MS = 60_000;
const STOP_GRACE_MS = 10_000;

export function openDatabase(): Database {
  return new Database(process.env["DB"] ?? "worker-typescript.db", WORK_SCHEMA, SCHEMA);
}

export async function main(activities: Activities, database: Database = openDatabase()): Promise<void> {
  const host = process.env["HOST"] ?? "127.0.0.1";
  const receiver = new Receiver(database, activities, {
    handlerTimeoutMs: setting("HANDLER_TIMEOUT_MS", HANDLER_TIMEOUT_MS),
    retentionMs: setting("RETENTION_MS", RETENTION_MS),
  });
  const server = new HttpServer(new Endpoint(receiver), BODY_BYTES_MAX);
  const stop = new Promise<void>((resolve) => {
    process.once("SIGTERM", resolve);
    process.once("SIGINT", resolve);
  });

  const port = await server.start(host, setting("PORT", 8082));
  if (!["127.0.0.1", "::1", "localhost"].includes(host)) {
    console.error(`warning: ${host} may be reachable from outside, and this worker has no authentication`);
  }
  console.log(`listening on http://${host}:${port} as incarnation ${database.incarnation}`);

  void sweep(receiver);
  const sweeper = setInterval(() => void sweep(receiver), SWEEP_EVERY_MS);
  await stop;
  clearInterval(sweeper);
  await server.stop(STOP_GRACE_MS);
  database.close();
  console.log("stopped");
  process.exit(0); // a handler that outlasted the grace period may still be waiting
}

/** Deletes records past their retention, in bounded batches so that no request waits long. */
async function sweep(receiver: Receiver): Promise<void> {
  try {
    while (await receiver.sweep());
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    console.error(`sweep failed, retrying later: ${error.message}`);
  }
}

function setting(name: string, fallback: number): number {
  const text = process.env[name] ?? String(fallback);
  if (!/^[0-9]{1,15}$/.test(text)) {
    console.error(`${name} must be an integer, not ${JSON.stringify(text)}`);
    process.exit(1);
  }
  return Number(text);
}
