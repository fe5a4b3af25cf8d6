"""The bodies of the wires `rest` and `envelope`, both ways. Knows nothing of HTTP connections or the database.

A failure looks the same on both wires (status.py), so only the answers of success differ.
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
    """A request body, read. `text` is the input's JSON text, if there is no metadata to know the work by; `control`
    is the envelope's, to be copied into its answer."""

    metadata: Metadata | None
    input: Any
    text: bytes
    control: Any = None


class Rest:
    """The body is the input, the answer's body is the output, metadata is in the headers."""

    content_type = "application/json"
    body_bytes_max = PAYLOAD_BYTES_MAX

    def decode(self, headers: list[tuple[str, str]], body: bytes) -> Decoded:
        # Metadata first: a request with several faults is refused for the same one everywhere.
        return Decoded(metadata.decode(headers), decode_json(body), body)

    def wrap(self, output: bytes, _control: Any) -> bytes:
        return output


class Envelope:
    """Metadata, input and output are parts of one JSON document."""

    content_type = "application/vnd.tpf.envelope.v1+json"
    body_bytes_max = PAYLOAD_BYTES_MAX + ENVELOPE_BYTES_MAX

    def decode(self, headers: list[tuple[str, str]], body: bytes) -> Decoded:
        in_headers = metadata.decode(headers)
        # The input is two levels down.
        envelope = decode_json(body, _MEMBERS, JSON_DEPTH_MAX + 2)
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
    """Whether the JSON text of a value is nested deeper. Looks no further than that, so a value that is within itself
    is deeper as well."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    return depth == 0 or any(is_deeper(item, depth - 1) for item in value)


class Members(dict):
    """An object, and which of its names were there more than once: of those only the last value is left."""

    def __init__(self, pairs: list[tuple[str, Any]]):
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs) if len(pairs) > len(self) else {}
        self.repeated = {name for name, count in counts.items() if count > 1}


def decode_json(body: bytes, decoder: json.JSONDecoder | None = None, depth: int = JSON_DEPTH_MAX) -> Any:
    """Strict: UTF-8, finite numbers, no lone surrogates, limited depth. What comes in can be sent out again."""
    try:
        value = (decoder or _DECODER).decode(body.decode())
        _check(value, depth)
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
        if name in context.repeated:
            raise metadata.malformed(f"{name} is there twice")
        if value is None:
            continue
        if type(value) is not (int if key in metadata.NUMBERS else str):
            raise metadata.malformed(f"{name} is not {'a whole number' if key in metadata.NUMBERS else 'a text'}")
        pairs.append((key, str(value)))
    return pairs


def _data_text(text: str) -> bytes:
    """The JSON text of /payload/data, as it stands in an envelope that has been read already."""
    start, end = 0, len(text)
    for wanted in ("payload", "data"):
        spans = [span for name, span in _members(text, start) if name == wanted]
        if not spans:
            return b"null"
        start, end = spans[-1]
    return text[start:end].encode()


def _members(text: str, at: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """The names of the object that begins there, and where the text of each value begins and ends."""
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
_MEMBERS = json.JSONDecoder(parse_constant=_not_json, parse_float=_finite, object_pairs_hook=Members)
_BLANK = re.compile(r"[ \t\n\r]*")
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
