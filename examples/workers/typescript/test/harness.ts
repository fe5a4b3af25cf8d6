// Starts, kills and calls a worker process, and reads its database.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Row, Sqlite, type Value } from "../src/receiver/sqlite.js";

const WAIT_MS = 20_000;
export const REST = "application/json";
export const ENVELOPE = "application/vnd.tpf.envelope.v1+json";

export type Headers = Record<string, string> | (readonly [string, string])[];

export class Response {
  constructor(
    readonly status: number,
    readonly contentType: string,
    readonly body: string,
  ) {}

  /** `any`, because tests inspect arbitrary bodies. */
  json(): any {
    return JSON.parse(this.body);
  }

  code(): string {
    return this.json().error.status;
  }

  reason(): string | undefined {
    return this.json().error.details.find((detail: { reason?: string }) => detail.reason)?.reason;
  }

  /** The parts that must be equal when a stored result is returned again. */
  bytes(): [number, string] {
    return [this.status, this.body];
  }
}

/** A worker process with a database that outlives it. */
export class Worker {
  readonly directory: string;
  readonly db: string;
  process!: ChildProcess;
  port = 0;

  private constructor(directory: string) {
    this.directory = directory;
    this.db = join(directory, "worker.db");
  }

  static async start(directory = mkdtempSync(join(tmpdir(), "worker-"))): Promise<Worker> {
    const worker = new Worker(directory);
    await worker.start();
    return worker;
  }

  async start(): Promise<void> {
    const env = { ...process.env, DB: this.db, PORT: "0", HOST: "127.0.0.1" };
    const program = fileURLToPath(new URL("./extended-worker.js", import.meta.url));
    this.process = spawn(process.execPath, [program], { env, stdio: ["ignore", "pipe", "inherit"] });
    const lines = createInterface(this.process.stdout!);
    const [line] = (await once(lines, "line")) as [string];
    assert.match(line, /^listening on /);
    this.port = Number(/:(\d+) /.exec(line)?.[1]);
  }

  async kill(): Promise<void> {
    await this.#signal("SIGKILL");
  }

  /** Kills the worker and starts it again. */
  async restart(): Promise<void> {
    await this.kill();
    await this.start();
  }

  async stop(): Promise<number | null> {
    await this.#signal("SIGTERM");
    return this.process.exitCode;
  }

  /** Kills the worker and deletes its files. */
  async remove(): Promise<void> {
    await this.kill();
    rmSync(this.directory, { recursive: true });
  }

  post(activity: string, body: unknown, headers: Headers = {}, contentType: string | null = REST): Promise<Response> {
    const pairs = Array.isArray(headers) ? [...headers] : Object.entries(headers);
    if (contentType !== null) pairs.push(["Content-Type", contentType]);
    const data = Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body));
    const lines = pairs.map(([name, value]) => `${name}: ${value}\r\n`).join("");
    const head = `POST /activities/${activity} HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n${lines}`;
    return this.raw(Buffer.concat([Buffer.from(`${head}Content-Length: ${data.length}\r\n\r\n`, "latin1"), data]));
  }

  isUp(): Promise<boolean> {
    return new Promise((resolve) => {
      const socket = connect(this.port, "127.0.0.1");
      socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
      socket.once("connect", () => socket.destroy());
    });
  }

  /** Sends raw bytes and reads until the worker closes. Without a client library, malformed requests can be sent. */
  raw(request: string | Buffer): Promise<Response> {
    return new Promise((resolve, reject) => {
      const socket = connect(this.port, "127.0.0.1");
      const pieces: Buffer[] = [];
      socket.setTimeout(WAIT_MS, () => socket.destroy(new Error("no response")));
      socket.on("error", reject);
      socket.on("data", (piece) => pieces.push(piece));
      socket.on("end", () => {
        const text = Buffer.concat(pieces).toString();
        const status = /^HTTP\/1\.1 (\d{3}) /.exec(text)?.[1];
        if (status === undefined) return reject(new Error(`not a response: ${text}`));
        const split = text.indexOf("\r\n\r\n");
        const contentType = /\r\ncontent-type: (.*)\r\n/i.exec(text)?.[1] ?? "";
        resolve(new Response(Number(status), contentType, text.slice(split + 4)));
        socket.destroy();
      });
      socket.write(request);
    });
  }

  row(sql: string, ...values: Value[]): Row | undefined {
    const sqlite = new Sqlite(this.db);
    try {
      sqlite.exec("PRAGMA busy_timeout = 20000");
      const row = sqlite.get(sql, ...values);
      return row && { ...row };
    } finally {
      sqlite.close();
    }
  }

  effects(key: string): Value | undefined {
    return this.row("SELECT count(*) AS effects FROM effects WHERE idempotency_key = ?", key)?.["effects"];
  }

  async #signal(signal: NodeJS.Signals): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const exited = once(this.process, "exit");
    this.process.kill(signal);
    await exited;
  }
}

/** `more` omits the prefix of the keys: `"deadline-epoch-ms": 5` is x-tpf-deadline-epoch-ms. */
export function metadata(key: string, more: Record<string, unknown> = {}, execution = "execution-1") {
  const extra = Object.entries(more).map(([name, value]) => [`x-tpf-${name}`, String(value)]);
  const headers = { "x-tpf-execution-id": execution, "x-tpf-idempotency-key": key };
  return { ...headers, ...Object.fromEntries(extra) } as Record<string, string>;
}

/** Polls until the condition holds. Tests do not depend on the polling interval. */
export async function until(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const end = Date.now() + WAIT_MS;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `timed out waiting for: ${what}`);
    await sleep(5);
  }
}

/** Starts `gate.add`, which waits for its gate, and returns once the work is claimed. */
export async function begin(worker: Worker, key: string, more: Record<string, unknown> = {}) {
  const call = worker.post("gate.add", { account: "gate", amount: 1, gate: key }, metadata(key, more));
  call.catch(() => {}); // the test that awaits it sees the error; until then it does not count as unhandled
  await until(async () => (await probe(worker, "gate.add", key)).status === 409, "the claim");
  return { call };
}

export function probe(worker: Worker, activity: string, key: string): Promise<Response> {
  return worker.post(activity, {}, { ...metadata(key), "x-abide-probe": "1" });
}
