// Status codes, which of them are permanent, and the failure body. Independent of HTTP connections and activities.

/** The error domain of the reasons that the dispatch contract defines. */
export const CONTRACT = "abide.dispatch";

/** The gRPC failure codes, each with its HTTP status. */
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

const PERMANENT: ReadonlySet<Code> = new Set<Code>([
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
  /** A workflow's `onError` matches this, or the name of the code if there is none. */
  reason?: string;
  domain?: string;
  retryAfterS?: number;
  /** Overrides the HTTP status for rejections that have a more specific one (413, 415). */
  http?: number;
}

/** Thrown by a handler to fail a call, and by the receiver to reject one. The code decides about retries. */
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
    return !PERMANENT.has(this.code);
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

/** Rejects a request permanently because it exceeds a size limit. */
export function tooLarge(message: string): Failure {
  return new Failure("OUT_OF_RANGE", message, { reason: "BODY_TOO_LARGE", http: 413 });
}

/** Rejects an invalid request permanently: retrying it cannot succeed. */
export function invalid(message: string, reason: string, http?: number): Failure {
  return new Failure("INVALID_ARGUMENT", message, http === undefined ? { reason } : { reason, http });
}
