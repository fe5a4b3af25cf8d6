// Turns HTTP requests into responses: routes, content types, the probe header. The rules are in receive.ts.

import type { Request, Response, Service } from "./http.js";
import * as metadata from "./metadata.js";
import { type CallResult, failureResult, type Receiver } from "./receive.js";
import { Failure, invalid, tooLarge } from "./status.js";
import { type Wire, WIRES } from "./wire.js";

export const BODY_BYTES_MAX = Math.max(...WIRES.map((wire) => wire.bodyBytesMax));
const PROBE = "x-abide-probe";
const ACTIVITIES = "/activities/";

export class Endpoint implements Service {
  readonly #receiver: Receiver;

  constructor(receiver: Receiver) {
    this.#receiver = receiver;
  }

  async handle(request: Request): Promise<Response> {
    try {
      return respond(await this.#route(request));
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      return respond(failureResult(error));
    }
  }

  refuse(status: number, message: string): Response {
    const refusal = status === 413 ? tooLarge(message) : invalid(message, "REQUEST_REFUSED", status);
    return respond(failureResult(refusal));
  }

  async #route(request: Request): Promise<CallResult> {
    const path = request.target.split("?", 1)[0] ?? "";
    if (path === "/healthz") {
      allow(request, "GET");
      return this.#health();
    }
    if (path.startsWith(ACTIVITIES)) {
      allow(request, "POST");
      return this.#activity(decodePart(path.slice(ACTIVITIES.length)), request);
    }
    throw new Failure("NOT_FOUND", "no resource at this path", { reason: "PATH_UNKNOWN" });
  }

  #health(): CallResult {
    const body = Buffer.from(JSON.stringify({ status: "ok", incarnation: this.#receiver.database.incarnation }));
    return { status: 200, body, contentType: "application/json" };
  }

  async #activity(name: string, request: Request): Promise<CallResult> {
    const wire = wireOf(request);
    if (request.body.length > wire.bodyBytesMax) {
      throw tooLarge(`the body is longer than ${wire.bodyBytesMax} bytes`);
    }
    const decoded = wire.decode(request.headers, request.body);
    const { activities, database } = this.#receiver;
    const activity = Object.hasOwn(activities, name) ? activities[name] : undefined;
    if (activity === undefined) {
      throw new Failure("NOT_FOUND", "this activity is not served here", { reason: "ACTIVITY_UNKNOWN" });
    }
    const call = {
      activity: name,
      metadata: decoded.metadata ?? metadata.fallback(name, decoded.text),
      input: decoded.input,
      database,
      wire,
      control: decoded.control,
    };
    return isProbe(request) ? this.#receiver.probe(call) : this.#receiver.receive(call, activity);
  }
}

function allow(request: Request, method: string): void {
  if (request.method !== method) throw invalid(`only ${method} is allowed here`, "METHOD_NOT_ALLOWED", 405);
}

function decodePart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // not a valid encoding, so it names no activity
  }
}

function wireOf({ headers }: Request): Wire {
  const value = headers.find(([name]) => name === "content-type")?.[1] ?? "";
  const contentType = value.split(";", 1)[0]?.trim().toLowerCase();
  const wire = WIRES.find((candidate) => candidate.contentType === contentType);
  if (wire === undefined) {
    const known = WIRES.map((candidate) => candidate.contentType).join(", ");
    throw invalid(`the content type must be one of ${known}`, "CONTENT_TYPE_UNSUPPORTED", 415);
  }
  return wire;
}

function isProbe({ headers }: Request): boolean {
  const values = headers.filter(([name, value]) => name === PROBE && value !== "").map(([, value]) => value);
  if (values.length === 0) return false;
  // A probe must never run anything, so an unknown value is rejected instead of treated as "no probe".
  if (values.length > 1 || values[0] !== "1") throw metadata.malformed(`${PROBE} may be sent once, with the value 1`);
  return true;
}

function respond({ status, body, contentType, retryAfterS }: CallResult): Response {
  const headers: Record<string, string> = { "content-type": contentType };
  if (retryAfterS !== undefined) headers["retry-after"] = String(retryAfterS);
  return { status, body, headers };
}
