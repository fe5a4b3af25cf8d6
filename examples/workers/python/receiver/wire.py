"""Encodes and decodes the bodies of the wires `rest` and `envelope`. Independent of HTTP connections and the database.

A failure looks the same on both wires (status.py), so only the bodies of successful responses differ.
"""

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from . import metadata
from .metadata import Metadata
from .status import invalid

JSON_DEPTH_MAX = 64
INPUT_BYTES_MAX = 7 * 512 * 1024
OUTPUT_BYTES_MAX = 1024 * 1024
#: How much an envelope may add around its payload.
ENVELOPE_BYTES_MAX = 64 * 1024
PROTOCOL = "tpf.envelope.v1"

#: The metadata key of each member of the envelope's context.
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
    """A decoded request body. `text` is the JSON text of the input; it identifies the work if there is no metadata.
    `control` belongs to the envelope and is copied into the response."""

    metadata: Metadata | None
    input: Any
    text: bytes
    control: Any = None


class Rest:
    """The request body is the input, the response body is the output, and metadata is in the headers."""

    content_type = "application/json"
    body_bytes_max = INPUT_BYTES_MAX

    def decode(self, headers: list[tuple[str, str]], body: bytes) -> Decoded:
        # Metadata is checked first, so that every receiver rejects a request with several faults for the same one.
        return Decoded(metadata.decode(headers), decode_json(body), body)

    def wrap(self, output: bytes, _control: Any) -> bytes:
        return output


class Envelope:
    """Metadata, input and output are parts of one JSON document."""

    content_type = "application/vnd.tpf.envelope.v1+json"
    body_bytes_max = INPUT_BYTES_MAX + ENVELOPE_BYTES_MAX

    def decode(self, headers: list[tuple[str, str]], body: bytes) -> Decoded:
        in_headers = metadata.decode(headers)
        # The input is nested two levels deep in the envelope.
        envelope = decode_json(body, _MEMBERS, JSON_DEPTH_MAX + 2)
        if not isinstance(envelope, dict) or envelope.get("protocolVersion") != PROTOCOL:
            raise invalid(f"the protocol version is not {PROTOCOL}", "PROTOCOL_UNSUPPORTED")
        control, payload = envelope.get("control") or {}, envelope.get("payload")
        if not isinstance(control, dict) or not isinstance(payload, dict):
            raise invalid("control and payload must be objects", "BODY_MALFORMED")
        if payload.get("kind") != "json":
            raise invalid("this worker supports payloads of kind json only", "BODY_MALFORMED")
        in_context = metadata.decode(_context_pairs(control.get("context")))
        # The context is the metadata of this wire, and headers are optional. If both are present and differ, one of
        # them would identify the wrong work.
        if in_headers is not None and in_headers != in_context:
            raise metadata.malformed("headers and context disagree")
        text = _data_text(body.decode()) if in_context is None else b""
        return Decoded(in_context, payload.get("data"), text, control)

    def wrap(self, output: bytes, control: Any) -> bytes:
        head = encode_json({"protocolVersion": PROTOCOL, "control": control or {}})[:-1]
        return head + b',"payload":{"kind":"json","contentType":"application/json","data":' + output + b"}}"


Wire = Rest | Envelope
BY_CONTENT_TYPE: dict[str, Wire] = {wire.content_type: wire for wire in (Rest(), Envelope())}


def encode_json(value: Any) -> bytes:
    return _ENCODER.encode(value).encode()


def is_deeper(value: Any, depth: int) -> bool:
    """Whether the JSON text of a value is nested deeper than `depth`. Stops there, so it also returns true for a
    value that contains itself."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    return depth == 0 or any(is_deeper(item, depth - 1) for item in value)


class Members(dict):
    """An object that records its duplicate names. Only the last value of a duplicate name is kept."""

    def __init__(self, pairs: list[tuple[str, Any]]):
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs) if len(pairs) > len(self) else {}
        self.duplicates = {name for name, count in counts.items() if count > 1}


def decode_json(body: bytes, decoder: json.JSONDecoder | None = None, depth: int = JSON_DEPTH_MAX) -> Any:
    """Strict: UTF-8, finite numbers, no lone surrogates, limited depth. Every accepted value can be encoded again."""
    try:
        value = (decoder or _DECODER).decode(body.decode())
        _check(value, depth)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is not valid JSON: {error}", "BODY_MALFORMED") from None
    return value


def _context_pairs(context: Any) -> list[tuple[str, str]]:
    if context is None:
        return []
    if not isinstance(context, dict):
        raise metadata.malformed("the context is not an object")
    pairs = []
    for name, key in _CONTEXT_KEYS.items():
        value = context.get(name)
        if name in context.duplicates:
            raise metadata.malformed(f"duplicate {name}")
        if value is None:
            continue
        if type(value) is not (int if key in metadata.NUMBERS else str):
            raise metadata.malformed(f"{name} is not {'an integer' if key in metadata.NUMBERS else 'a string'}")
        pairs.append((key, str(value)))
    return pairs


def _data_text(text: str) -> bytes:
    """The JSON text of /payload/data in an envelope that has been decoded already."""
    start, end = 0, len(text)
    for wanted in ("payload", "data"):
        spans = [span for name, span in _members(text, start) if name == wanted]
        if not spans:
            return b"null"
        start, end = spans[-1]
    return text[start:end].encode()


def _members(text: str, at: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """The names in the object at this position, with the start and end of each value's text."""
    at = _past_blank(text, _past_blank(text, at) + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        start = _past_blank(text, _past_blank(text, at) + 1)
        _, end = _DECODER.raw_decode(text, start)
        yield name, (start, end)
        at = _past_blank(text, end)
        if text[at] == ",":
            at = _past_blank(text, at + 1)


def _past_blank(text: str, at: int) -> int:
    return _BLANK.match(text, at).end()


def _check(value: Any, depth: int) -> None:
    if isinstance(value, str):
        value.encode()  # fails for a lone surrogate: UnicodeEncodeError is a ValueError
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


# Created once: with custom options, json.loads and json.dumps would create a new one for every call.
_DECODER = json.JSONDecoder(parse_constant=_not_json, parse_float=_finite)
_MEMBERS = json.JSONDecoder(parse_constant=_not_json, parse_float=_finite, object_pairs_hook=Members)
_BLANK = re.compile(r"[ \t\n\r]*")
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
