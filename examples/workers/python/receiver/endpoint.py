"""From an HTTP request to an answer: routes, content types, the probe header. The rules are in receive.py."""

import json
import urllib.parse

from . import metadata
from .http import Request, Response
from .receive import Answer, Call, Receiver, failure_answer
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
            raise Failure(Code.NOT_FOUND, "there is nothing at this path", reason="PATH_UNKNOWN")
        except Failure as failure:
            return _response(failure_answer(failure))

    def refuse(self, status: int, message: str) -> Response:
        """Words the answer of a request that could not be read as HTTP."""
        refusal = too_large(message) if status == 413 else invalid(message, "REQUEST_REFUSED", http=status)
        return _response(failure_answer(refusal))

    def _health(self) -> Response:
        body = json.dumps({"status": "ok", "incarnation": self._receiver.database.incarnation}).encode()
        return _response(Answer(200, body))

    async def _activity(self, name: str, request: Request) -> Answer:
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
        raise invalid(f"the content type is none of {', '.join(BY_CONTENT_TYPE)}", "CONTENT_TYPE_UNSUPPORTED", http=415)
    return wire


def _is_probe(request: Request) -> bool:
    values = [value for name, value in request.headers if name == PROBE and value]
    # A probe must never run anything, so a value that is not understood is not taken for "no".
    if values not in ([], ["1"]):
        raise metadata.malformed(f"{PROBE} can only be 1, once")
    return bool(values)


def _response(answer: Answer) -> Response:
    headers = [("content-type", answer.content_type)]
    if answer.retry_after_s is not None:
        headers.append(("retry-after", str(answer.retry_after_s)))
    return Response(answer.status, answer.body, tuple(headers))
