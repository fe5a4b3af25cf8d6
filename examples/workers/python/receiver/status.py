"""Status codes, which of them are permanent, and the failure body. Independent of HTTP connections and activities."""

import enum
import json

#: The error domain of the reasons that the dispatch contract defines.
CONTRACT = "abide.dispatch"


class Code(enum.Enum):
    """The gRPC codes, each with its HTTP status."""

    OK = "OK", 200
    CANCELLED = "CANCELLED", 499
    UNKNOWN = "UNKNOWN", 500
    INVALID_ARGUMENT = "INVALID_ARGUMENT", 400
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED", 504
    NOT_FOUND = "NOT_FOUND", 404
    ALREADY_EXISTS = "ALREADY_EXISTS", 409
    PERMISSION_DENIED = "PERMISSION_DENIED", 403
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED", 429
    FAILED_PRECONDITION = "FAILED_PRECONDITION", 412
    ABORTED = "ABORTED", 409
    OUT_OF_RANGE = "OUT_OF_RANGE", 400
    UNIMPLEMENTED = "UNIMPLEMENTED", 501
    INTERNAL = "INTERNAL", 500
    UNAVAILABLE = "UNAVAILABLE", 503
    DATA_LOSS = "DATA_LOSS", 500
    UNAUTHENTICATED = "UNAUTHENTICATED", 401

    @property
    def http(self) -> int:
        return self.value[1]

    @property
    def is_retryable(self) -> bool:
        return self not in _PERMANENT


_PERMANENT = frozenset({
    Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION, Code.NOT_FOUND, Code.ALREADY_EXISTS, Code.CANCELLED,
    Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.OUT_OF_RANGE, Code.UNIMPLEMENTED, Code.DATA_LOSS,
})  # fmt: skip


class Failure(Exception):
    """Raised by a handler to fail a call, and by the receiver to reject one.

    `code` decides whether the sender retries. A workflow's `onError` matches `reason`, or the name of the code if there
    is none. `http` overrides the HTTP status for rejections that have a more specific one (413, 415).
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        reason: str | None = None,
        domain: str = CONTRACT,
        retry_after_s: int | None = None,
        http: int | None = None,
    ):
        if code is Code.OK:
            raise ValueError("OK is not a failure")
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.domain = domain
        self.retry_after_s = retry_after_s
        self.http = http or code.http

    def body(self, execution_id: str = "") -> bytes:
        details = []
        if self.reason:
            info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": self.reason, "domain": self.domain}
            details.append(info)
        if execution_id:
            details.append({"@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": execution_id})
        error = {"code": self.http, "status": self.code.name, "message": self.message, "details": details}
        return json.dumps({"error": error}, separators=(",", ":")).encode()


def invalid(message: str, reason: str, *, http: int | None = None) -> Failure:
    """Rejects an invalid request permanently: retrying it cannot succeed."""
    return Failure(Code.INVALID_ARGUMENT, message, reason=reason, http=http)


def too_large(message: str) -> Failure:
    """Rejects a request permanently because it exceeds a size limit."""
    return Failure(Code.OUT_OF_RANGE, message, reason="BODY_TOO_LARGE", http=413)
