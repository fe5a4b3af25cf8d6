// Node's own HTTP server with limits, fully buffered bodies and a graceful shutdown. Independent of activities.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Pair } from "./metadata.js";

const HEAD_BYTES_MAX = 32 * 1024;
const CONNECTIONS_MAX = 2048;
/** Longer than clients keep idle connections (often 90 s), so that the client closes first. */
const IDLE_MS = 120_000;
const REQUEST_MS = 30_000;
/** How much of an oversized body is read and discarded, so that the client sees a response and not a reset. */
const DISCARD_BYTES_MAX = 16 * 1024 * 1024;

export interface Request {
  readonly method: string;
  readonly target: string;
  /** As received: a duplicate header appears twice. */
  readonly headers: readonly Pair[];
  readonly body: Buffer;
}

export interface Response {
  readonly status: number;
  readonly body: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

export interface Service {
  handle(request: Request): Promise<Response>;
  /** Builds the response to a request that could not be parsed. */
  refuse(status: number, message: string): Response;
}

export class HttpServer {
  readonly #server: Server;
  readonly #service: Service;
  readonly #bodyBytesMax: number;
  readonly #connections = new Set<Socket>();
  readonly #busy = new Set<Socket>();
  #stopping = false;

  constructor(service: Service, bodyBytesMax: number) {
    this.#service = service;
    this.#bodyBytesMax = bodyBytesMax;
    const limits = { maxHeaderSize: HEAD_BYTES_MAX, keepAliveTimeout: IDLE_MS, requestTimeout: REQUEST_MS };
    this.#server = createServer({ ...limits, headersTimeout: REQUEST_MS, noDelay: true }, (request, response) => {
      void this.#exchange(request, response);
    });
    this.#server.maxConnections = CONNECTIONS_MAX;
    this.#server.on("connection", (socket) => {
      this.#connections.add(socket);
      socket.once("close", () => this.#connections.delete(socket));
    });
    this.#server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => this.#refuseSocket(error, socket));
  }

  /** Returns the port. The system chooses one if `port` is 0. */
  async start(host: string, port: number): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(port, host, 1024, resolve);
    });
    return (this.#server.address() as AddressInfo).port;
  }

  /** Accepts no new connections and closes idle ones. The others close after their response or after `graceMs`. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping = true;
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const socket of this.#connections) {
      if (!this.#busy.has(socket)) socket.destroy();
    }
    const timer = setTimeout(() => this.#server.closeAllConnections(), graceMs);
    await closed;
    clearTimeout(timer);
  }

  async #exchange(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    this.#busy.add(incoming.socket);
    outgoing.once("close", () => this.#busy.delete(incoming.socket));
    try {
      const body = await readBody(incoming, this.#bodyBytesMax);
      if (body === undefined) {
        const refused = this.#service.refuse(413, `the body is longer than ${this.#bodyBytesMax} bytes`);
        this.#write(outgoing, refused);
        // The response ends once the whole request has arrived. Ending it earlier could reset the connection first.
        incoming.once("end", () => outgoing.end());
        return;
      }
      const { method = "", url = "" } = incoming;
      this.#write(outgoing, await this.#service.handle({ method, target: url, headers: pairs(incoming), body }));
      outgoing.end();
    } catch {
      incoming.destroy(); // the client is gone; its work is recorded, and it may retry
    }
  }

  #write(outgoing: ServerResponse, { status, body, headers }: Response): void {
    if (this.#stopping) outgoing.setHeader("connection", "close");
    outgoing.writeHead(status, { ...headers, "content-length": body.length });
    outgoing.write(body);
  }

  #refuseSocket(error: NodeJS.ErrnoException, socket: Socket): void {
    if (error.code === "ECONNRESET" || !socket.writable) {
      socket.destroy();
      return;
    }
    const status = STATUS_OF_ERROR[error.code ?? ""] ?? 400;
    const { body, headers } = this.#service.refuse(status, "this is not a valid HTTP request");
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    const head = `HTTP/1.1 ${status} Refused\r\n${lines.join("")}content-length: ${body.length}\r\nconnection: close`;
    socket.end(Buffer.concat([Buffer.from(`${head}\r\n\r\n`), body]));
  }
}

const STATUS_OF_ERROR: Readonly<Record<string, number>> = {
  HPE_HEADER_OVERFLOW: 431,
  ERR_HTTP_REQUEST_TIMEOUT: 408,
};

/** Returns undefined if the body is longer than `max`; the rest is discarded as it arrives. */
function readBody(incoming: IncomingMessage, max: number): Promise<Buffer | undefined> {
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = [];
    let length = 0;
    incoming.on("data", (piece: Buffer) => {
      length += piece.length;
      if (length <= max) {
        pieces.push(piece);
      } else {
        pieces.length = 0;
        resolve(undefined);
        if (length > DISCARD_BYTES_MAX) incoming.destroy();
      }
    });
    incoming.on("end", () => resolve(Buffer.concat(pieces)));
    incoming.on("error", reject);
    incoming.on("close", () => reject(new Error("the connection was closed")));
  });
}

function pairs({ rawHeaders }: IncomingMessage): Pair[] {
  const found: Pair[] = [];
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    found.push([rawHeaders[index]?.toLowerCase() ?? "", rawHeaders[index + 1] ?? ""]);
  }
  return found;
}
