// Status codes, which of them are final, and the failure body. Knows nothing of HTTP connections or activities.

/** The domain of the reasons that this contract itself gives. */
export const CONTRACT = "abide.dispatch";

/** The gRPC codes that are failures, each with the HTTP status that carries it. */
const HTTP_STATUS = {
  CANCELLED: 499,
  UNKNOWN: 500,
  INVALID_ARGUMENT: 400,
  DEADLINE_EXCEEDED: 504,
  NOT_FOUND: 404,
  ALREADY_EXISTS: 409,
  PERMISSION_DENIED: 403,
  RESOURCE_EXHAUSTED: 429,
  FAILED_PRECONDITION: 412,
  ABORTED: 409,
  OUT_OF_RANGE: 400,
  UNIMPLEMENTED: 501,
  INTERNAL: 500,
  UNAVAILABLE: 503,
  DATA_LOSS: 500,
  UNAUTHENTICATED: 401,
} as const;

export type Code = keyof typeof HTTP_STATUS;

const FINAL: ReadonlySet<Code> = new Set<Code>([
  "INVALID_ARGUMENT",
  "FAILED_PRECONDITION",
  "NOT_FOUND",
  "ALREADY_EXISTS",
  "CANCELLED",
  "UNAUTHENTICATED",
  "PERMISSION_DENIED",
  "OUT_OF_RANGE",
  "UNIMPLEMENTED",
  "DATA_LOSS",
]);

export function isCode(name: string): name is Code {
  return Object.hasOwn(HTTP_STATUS, name);
}

export interface FailureDetails {
  /** What a workflow's `onError` matches; without one it matches the code's name. */
  reason?: string;
  domain?: string;
  retryAfterS?: number;
  /** For refusals that HTTP has a better status for (413, 415). */
  http?: number;
}

/** Thrown by a handler to fail on purpose, and by the receiver to refuse. The code decides on trying again. */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly http: number;

  constructor(
    readonly code: Code,
    message: string,
    readonly details: FailureDetails = {},
  ) {
    super(message);
    this.http = details.http ?? HTTP_STATUS[code];
  }

  get isRetryable(): boolean {
    return !FINAL.has(this.code);
  }

  body(executionId = ""): Buffer {
    const { reason, domain = CONTRACT } = this.details;
    const details: object[] = [];
    if (reason) details.push({ "@type": "type.googleapis.com/google.rpc.ErrorInfo", reason, domain });
    if (executionId) {
      details.push({ "@type": "type.googleapis.com/google.rpc.RequestInfo", requestId: executionId });
    }
    const error = { code: this.http, status: this.code, message: this.message, details };
    return Buffer.from(JSON.stringify({ error }));
  }
}

/** What the caller sent is more than anybody may send: a final refusal as well. */
export function tooLarge(message: string): Failure {
  return new Failure("OUT_OF_RANGE", message, { reason: "BODY_TOO_LARGE", http: 413 });
}

/** What the caller sent is wrong and will stay wrong: a final refusal. */
export function invalid(message: string, reason: string, http?: number): Failure {
  return new Failure("INVALID_ARGUMENT", message, http === undefined ? { reason } : { reason, http });
}
