"""Turns HTTP requests into responses: routes, content types, the probe header. The rules are in receive.py."""

import json
import urllib.parse

from . import metadata
from .http import Request, Response
from .receive import CallResult, Call, Receiver, failure_result
from .status import Code, Failure, invalid, too_large
from .wire import BY_CONTENT_TYPE, Wire

BODY_BYTES_MAX = max(wire.body_bytes_max for wire in BY_CONTENT_TYPE.values())
PROBE = "x-abide-probe"
_ACTIVITIES = "/activities/"


class Endpoint:
    def __init__(self, receiver: Receiver):
        self._receiver = receiver

    async def handle(self, request: Request) -> Response:
        path = request.target.partition("?")[0]
        try:
            if path == "/healthz":
                _allow(request, "GET")
                return self._health()
            if path.startswith(_ACTIVITIES):
                _allow(request, "POST")
                return _response(await self._activity(urllib.parse.unquote(path[len(_ACTIVITIES) :]), request))
            raise Failure(Code.NOT_FOUND, "no resource at this path", reason="PATH_UNKNOWN")
        except Failure as failure:
            return _response(failure_result(failure))

    def refuse(self, status: int, message: str) -> Response:
        """Builds the response to a request that could not be parsed as HTTP."""
        refusal = too_large(message) if status == 413 else invalid(message, "REQUEST_REFUSED", http=status)
        return _response(failure_result(refusal))

    def _health(self) -> Response:
        body = json.dumps({"status": "ok", "incarnation": self._receiver.database.incarnation}).encode()
        return _response(CallResult(200, body))

    async def _activity(self, name: str, request: Request) -> CallResult:
        wire = _wire(request)
        if len(request.body) > wire.body_bytes_max:
            raise too_large(f"the body is longer than {wire.body_bytes_max} bytes")
        decoded = wire.decode(request.headers, request.body)
        if name not in self._receiver.activities:
            raise Failure(Code.NOT_FOUND, "this activity is not served here", reason="ACTIVITY_UNKNOWN")
        call = Call(
            activity=name,
            metadata=decoded.metadata or metadata.fallback(name, decoded.text),
            input=decoded.input,
            database=self._receiver.database,
            wire=wire,
            control=decoded.control,
        )
        return await (self._receiver.probe(call) if _is_probe(request) else self._receiver.receive(call))


def _allow(request: Request, method: str) -> None:
    if request.method != method:
        raise invalid(f"only {method} is allowed here", "METHOD_NOT_ALLOWED", http=405)


def _wire(request: Request) -> Wire:
    content_type = (request.header("content-type") or "").partition(";")[0].strip().lower()
    wire = BY_CONTENT_TYPE.get(content_type)
    if wire is None:
        known = ", ".join(BY_CONTENT_TYPE)
        raise invalid(f"the content type must be one of {known}", "CONTENT_TYPE_UNSUPPORTED", http=415)
    return wire


def _is_probe(request: Request) -> bool:
    values = [value for name, value in request.headers if name == PROBE and value]
    # A probe must never run anything, so an unknown value is rejected instead of treated as "no probe".
    if values not in ([], ["1"]):
        raise metadata.malformed(f"{PROBE} may be sent once, with the value 1")
    return bool(values)


def _response(result: CallResult) -> Response:
    headers = [("content-type", result.content_type)]
    if result.retry_after_s is not None:
        headers.append(("retry-after", str(result.retry_after_s)))
    return Response(result.status, result.body, tuple(headers))
