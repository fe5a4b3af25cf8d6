"""The bodies of the wires `rest` and `envelope`, both ways. Knows nothing of HTTP connections or the database.

A failure looks the same on both wires (status.py), so only the answers of success differ.
"""

import dataclasses
import json
import math
from typing import Any

from . import metadata
from .metadata import Metadata
from .status import invalid

JSON_DEPTH_MAX = 64
PAYLOAD_BYTES_MAX = 1024 * 1024
#: What an envelope may have around its payload.
ENVELOPE_BYTES_MAX = 64 * 1024
PROTOCOL = "tpf.envelope.v1"

#: Where the envelope's context holds each metadata key.
_CONTEXT_KEYS = {
    "correlationId": metadata.CORRELATION_ID,
    "executionId": metadata.EXECUTION_ID,
    "idempotencyKey": metadata.IDEMPOTENCY_KEY,
    "retryAttempt": metadata.RETRY_ATTEMPT,
    "deadlineEpochMs": metadata.DEADLINE,
    "dispatchTsEpochMs": metadata.DISPATCHED_AT,
    "parentItemId": metadata.PARENT_ITEM_ID,
}


@dataclasses.dataclass(frozen=True)
class Decoded:
    """A request body, read. `control` is the envelope's, to be copied into its answer."""

    metadata: Metadata | None
    input: Any
    control: Any = None


class Rest:
    """The body is the input, the answer's body is the output, metadata is in the headers."""

    name = "rest"
    content_type = "application/json"
    body_bytes_max = PAYLOAD_BYTES_MAX

    def decode(self, headers: list[tuple[str, str]], body: bytes) -> Decoded:
        # Metadata first: a request with several faults is refused for the same one everywhere.
        return Decoded(metadata.decode(headers), decode_json(body))

    def encode(self, output: Any, _control: Any) -> bytes:
        return encode_json(output)

    def output(self, answer: bytes) -> Any:
        return json.loads(answer)


class Envelope:
    """Metadata, input and output are parts of one JSON document."""

    name = "envelope"
    content_type = "application/vnd.tpf.envelope.v1+json"
    body_bytes_max = PAYLOAD_BYTES_MAX + ENVELOPE_BYTES_MAX

    def decode(self, headers: list[tuple[str, str]], body: bytes) -> Decoded:
        in_headers = metadata.decode(headers)
        envelope = decode_json(body)
        if not isinstance(envelope, dict) or envelope.get("protocolVersion") != PROTOCOL:
            raise invalid(f"the protocol version is not {PROTOCOL}", "PROTOCOL_UNSUPPORTED")
        control, payload = envelope.get("control") or {}, envelope.get("payload")
        if not isinstance(control, dict) or not isinstance(payload, dict):
            raise invalid("control and payload have to be objects", "BODY_MALFORMED")
        if payload.get("kind") != "json":
            raise invalid("this worker takes payloads of kind json only", "BODY_MALFORMED")
        in_context = metadata.decode(_context_pairs(control.get("context")))
        # The context is the metadata of this wire. Headers may be left out; if they are there and say something
        # else, one of the two would be the wrong work.
        if in_headers is not None and in_headers != in_context:
            raise metadata.malformed("headers and context disagree")
        return Decoded(in_context, payload.get("data"), control)

    def encode(self, output: Any, control: Any) -> bytes:
        payload = {"kind": "json", "contentType": "application/json", "data": output}
        return encode_json({"protocolVersion": PROTOCOL, "control": control or {}, "payload": payload})

    def output(self, answer: bytes) -> Any:
        return json.loads(answer)["payload"]["data"]


Wire = Rest | Envelope
BY_CONTENT_TYPE: dict[str, Wire] = {wire.content_type: wire for wire in (Rest(), Envelope())}
BY_NAME: dict[str, Wire] = {wire.name: wire for wire in BY_CONTENT_TYPE.values()}


def encode_json(value: Any) -> bytes:
    return _ENCODER.encode(value).encode()


def decode_json(body: bytes) -> Any:
    """Strict: UTF-8, finite numbers, no lone surrogates, limited depth. What comes in can be sent out again."""
    try:
        value = _DECODER.decode(body.decode())
        _check(value, JSON_DEPTH_MAX)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is not acceptable JSON: {error}", "BODY_MALFORMED") from None
    return value


def _context_pairs(context: Any) -> list[tuple[str, str]]:
    if context is None:
        return []
    if not isinstance(context, dict):
        raise metadata.malformed("the context is not an object")
    pairs = []
    for name, key in _CONTEXT_KEYS.items():
        value = context.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise metadata.malformed(f"{name} is neither text nor a whole number")
        pairs.append((key, str(value)))
    return pairs


def _check(value: Any, depth: int) -> None:
    if isinstance(value, str):
        value.encode()  # a lone surrogate cannot be encoded: UnicodeEncodeError is a ValueError
    elif isinstance(value, (dict, list)):
        if depth == 0:
            raise ValueError(f"nested deeper than {JSON_DEPTH_MAX}")
        for item in value.values() if isinstance(value, dict) else value:
            _check(item, depth - 1)
        if isinstance(value, dict):
            for key in value:
                key.encode()


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is out of range")
    return number


# Made once: json.loads and json.dumps would make new ones for every call that is not plain.
_DECODER = json.JSONDecoder(parse_constant=_not_json, parse_float=_finite)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
