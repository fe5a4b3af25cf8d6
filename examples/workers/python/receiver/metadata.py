"""Strict parsing of the seven x-tpf keys. One decoder serves all wires, wherever the pairs come from.

A typo in metadata must not create different work, so malformed metadata is rejected before anything runs.
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterable

from .status import Failure, invalid

CORRELATION_ID = "x-tpf-correlation-id"
EXECUTION_ID = "x-tpf-execution-id"
IDEMPOTENCY_KEY = "x-tpf-idempotency-key"
RETRY_ATTEMPT = "x-tpf-retry-attempt"
DEADLINE = "x-tpf-deadline-epoch-ms"
DISPATCHED_AT = "x-tpf-dispatch-ts-epoch-ms"
PARENT_ITEM_ID = "x-tpf-parent-item-id"
KEYS = frozenset(
    {CORRELATION_ID, EXECUTION_ID, IDEMPOTENCY_KEY, RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT, PARENT_ITEM_ID}
)
#: The keys whose values are numbers.
NUMBERS = frozenset({RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT})

VALUE_BYTES_MAX = 512
_U32_MAX = 2**32 - 1
_I64_MAX = 2**63 - 1
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_DECIMAL = re.compile(r"[0-9]+")


@dataclasses.dataclass(frozen=True)
class Metadata:
    execution_id: str
    idempotency_key: str
    correlation_id: str
    retry_attempt: int = 0
    deadline_epoch_ms: int | None = None
    dispatched_at_epoch_ms: int | None = None
    parent_item_id: str | None = None


def decode(pairs: Iterable[tuple[str, str]]) -> Metadata | None:
    """Returns None if no key is present (see `fallback`). Names are case-insensitive; blank values are absent."""
    found: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower()
        if key not in KEYS:
            continue
        if key in found:
            raise malformed(f"duplicate {key}")
        found[key] = _value(key, value)
    present = {key: value for key, value in found.items() if value}
    if not present:
        return None
    for required in (EXECUTION_ID, IDEMPOTENCY_KEY):
        if required not in present:
            raise malformed(f"{required} is missing")
    return Metadata(
        execution_id=present[EXECUTION_ID],
        idempotency_key=present[IDEMPOTENCY_KEY],
        correlation_id=present.get(CORRELATION_ID, present[EXECUTION_ID]),
        retry_attempt=_number(present, RETRY_ATTEMPT, _U32_MAX) or 0,
        deadline_epoch_ms=_number(present, DEADLINE, _I64_MAX),
        dispatched_at_epoch_ms=_number(present, DISPATCHED_AT, _I64_MAX),
        parent_item_id=present.get(PARENT_ITEM_ID),
    )


def fallback(activity: str, text: bytes) -> Metadata:
    """Metadata for a caller that sends none: inputs with the same JSON text are the same work."""
    digest = hashlib.sha256(activity.encode() + b"\0" + text).hexdigest()
    return Metadata(execution_id="", idempotency_key=digest, correlation_id="")


def malformed(message: str) -> Failure:
    return invalid(message, "METADATA_MALFORMED")


def _value(key: str, value: str) -> str:
    # HTTP strips blanks around a value. Stripping them here makes equal values equal on every wire.
    value = value.strip(" \t")
    if len(value) > VALUE_BYTES_MAX or not _PRINTABLE.fullmatch(value):
        raise malformed(f"{key} is longer than {VALUE_BYTES_MAX} bytes or not printable ASCII")
    return value


def _number(present: dict[str, str], key: str, maximum: int) -> int | None:
    value = present.get(key)
    if value is None:
        return None
    # int() alone would accept signs, blanks, underscores and digits of other scripts.
    if not _DECIMAL.fullmatch(value) or int(value) > maximum:
        raise malformed(f"{key} is not a decimal number up to {maximum}")
    return int(value)
