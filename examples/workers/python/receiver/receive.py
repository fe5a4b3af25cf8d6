"""The rules of a receiver, in order. Uses activities and the table of work; independent of HTTP.

    finished before   → the stored result, byte for byte
    in progress       → ABORTED, IN_PROGRESS
    deadline passed   → DEADLINE_EXCEEDED, DEADLINE_EXPIRED; nothing is recorded
    claim → handler → effect and record in one transaction → result

A retryable failure is not recorded: the claim is released and the next attempt runs. A permanent failure is recorded
and returned to duplicates. The writes of a failing effect are rolled back in both cases.
"""

import asyncio
import dataclasses
import functools
import itertools
import sqlite3
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from . import wire as wires
from . import work
from .database import Database, Savepoint
from .metadata import Metadata
from .status import Code, Failure
from .wire import Wire
from .work import Claim, Finished, Identity

HANDLER_TIMEOUT_MS = 10 * 60 * 1000
RETENTION_MS = 7 * 24 * 60 * 60 * 1000
SWEEP_MAX = 500


def epoch_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclasses.dataclass(frozen=True)
class Call:
    """One attempt of an activity call, as passed to a handler."""

    activity: str
    metadata: Metadata
    input: Any
    database: Database
    wire: Wire
    control: Any = None

    def identity(self) -> Identity:
        return Identity(self.metadata.execution_id, self.activity, self.metadata.idempotency_key)


Effect = Callable[[sqlite3.Connection], Any]


@dataclasses.dataclass(frozen=True)
class Transactional:
    """Does everything in one short transaction: `run(call, tx)` returns the output."""

    run: Callable[[Call, sqlite3.Connection], Any]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Does its slow work first: `prepare(call)` runs outside any transaction and returns the effect, a function of
    `tx` that returns the output."""

    prepare: Callable[[Call], Awaitable[Effect]]


Activity = Transactional | Prepared


@dataclasses.dataclass(frozen=True)
class CallResult:
    status: int
    body: bytes
    content_type: str = "application/json"
    retry_after_s: int | None = None


def failure_result(failure: Failure, execution_id: str = "") -> CallResult:
    return CallResult(failure.http, failure.body(execution_id), retry_after_s=failure.retry_after_s)


class Receiver:
    def __init__(
        self,
        database: Database,
        activities: Mapping[str, Activity],
        *,
        handler_timeout_ms: int = HANDLER_TIMEOUT_MS,
        retention_ms: int = RETENTION_MS,
        clock: Callable[[], int] = epoch_ms,
    ):
        self.database = database
        self.activities = activities
        self._handler_timeout_ms = handler_timeout_ms
        self._retention_ms = retention_ms
        self._clock = clock
        self._claims = itertools.count(1)

    async def receive(self, call: Call) -> CallResult:
        activity = self.activities[call.activity]
        if isinstance(activity, Transactional):
            # Everything happens in one transaction, so no other attempt could see a claim: none is needed.
            run = functools.partial(activity.run, call)
            return await self._transaction(
                call, lambda tx: self._early_result(tx, call) or self._settle(tx, call, self._new_claim(call), run)
            )
        admitted = await self._transaction(call, lambda tx: self._early_result(tx, call) or self._claim_work(tx, call))
        if isinstance(admitted, CallResult):
            return admitted
        effect = await self._prepare(activity, call, admitted)
        return await self._transaction(call, lambda tx: self._settle_claimed(tx, call, admitted, effect))

    async def probe(self, call: Call) -> CallResult:
        """Returns the result that a duplicate would get, without running anything."""
        unknown = Failure(Code.NOT_FOUND, "this work is unknown here", reason="WORK_UNKNOWN")
        found = await self._transaction(call, lambda tx: self._existing_result(tx, call))
        return found or failure_result(unknown, call.metadata.execution_id)

    async def sweep(self) -> bool:
        """Deletes a bounded number of old records and void claims. Returns true if there may be more."""
        now = self._clock()
        incarnation = self.database.incarnation
        deleted = await self.database.transaction(
            lambda tx: work.sweep(tx, now - self._retention_ms, incarnation, now, SWEEP_MAX)
        )
        return deleted >= SWEEP_MAX

    async def _transaction(self, call: Call, job: Callable[[sqlite3.Connection], Any]) -> Any:
        try:
            return await self.database.transaction(job)
        except Exception as error:
            return failure_result(_as_failure(call, error), call.metadata.execution_id)

    def _early_result(self, tx: sqlite3.Connection, call: Call) -> CallResult | None:
        """The result for work that must not run now, or None if it has to run."""
        found = self._existing_result(tx, call)
        if found is not None:
            return found
        deadline = call.metadata.deadline_epoch_ms
        if deadline is not None and deadline <= self._clock():
            message = "the deadline passed before the work began"
            late = Failure(Code.DEADLINE_EXCEEDED, message, reason="DEADLINE_EXPIRED")
            return failure_result(late, call.metadata.execution_id)
        return None

    def _existing_result(self, tx: sqlite3.Connection, call: Call) -> CallResult | None:
        found = work.find(tx, call.identity())
        if isinstance(found, Finished):
            return _stored_result(found, call)
        if isinstance(found, Claim) and not self._is_void(found):
            busy = Failure(Code.ABORTED, "this work is in progress", reason="IN_PROGRESS")
            return failure_result(busy, call.metadata.execution_id)
        return None

    def _is_void(self, claim: Claim) -> bool:
        """A claim is void if its process is gone or its handler took too long."""
        return claim.incarnation != self.database.incarnation or claim.expires_at <= self._clock()

    def _new_claim(self, call: Call) -> Claim:
        deadline = call.metadata.deadline_epoch_ms
        expires_at = self._clock() + self._handler_timeout_ms if deadline is None else deadline
        return Claim(self.database.incarnation, next(self._claims), expires_at)

    def _claim_work(self, tx: sqlite3.Connection, call: Call) -> Claim:
        claim = self._new_claim(call)
        work.claim(tx, call.identity(), claim)
        return claim

    async def _prepare(self, activity: Prepared, call: Call, claim: Claim) -> Effect:
        """Failures come back as an effect that raises them, so that one place settles every outcome."""
        try:
            async with asyncio.timeout(max(0, claim.expires_at - self._clock()) / 1000):
                return await activity.prepare(call)
        except TimeoutError:
            return _raising(Failure(Code.DEADLINE_EXCEEDED, "the handler took too long", reason="HANDLER_TIMEOUT"))
        except Exception as error:
            return _raising(error)

    def _settle_claimed(self, tx: sqlite3.Connection, call: Call, claim: Claim, effect: Effect) -> CallResult:
        if work.find(tx, call.identity()) != claim:
            # The claim expired, and another attempt replaced it or finished the work. This effect must not happen too.
            lost = Failure(Code.ABORTED, "the claim was lost while the handler ran", reason="CLAIM_LOST")
            return failure_result(lost, call.metadata.execution_id)
        return self._settle(tx, call, claim, effect)

    def _settle(self, tx: sqlite3.Connection, call: Call, claim: Claim, effect: Effect) -> CallResult:
        """Runs the effect and stores its result, both in the transaction `tx`."""
        try:
            with Savepoint(tx):
                finished = Finished(200, _output(effect(tx)))
        except Exception as error:
            if not tx.in_transaction:
                raise
            failure = _as_failure(call, error)
            result = failure_result(failure, call.metadata.execution_id)
            if failure.code.is_retryable:
                work.release(tx, call.identity())
                return result
            finished = Finished(result.status, result.body)
        work.finish(tx, call.identity(), claim, finished, self._clock())
        return _stored_result(finished, call)


def _output(output: Any) -> bytes:
    """The JSON text of an output. Rejects output that no sender accepts while the effect can still be rolled back."""
    if wires.is_deeper(output, wires.JSON_DEPTH_MAX):
        message = f"the output is nested deeper than {wires.JSON_DEPTH_MAX} levels"
        raise Failure(Code.OUT_OF_RANGE, message, reason="OUTPUT_TOO_LARGE")
    text = wires.encode_json(output)
    if len(text) > wires.OUTPUT_BYTES_MAX:
        message = f"the output is longer than {wires.OUTPUT_BYTES_MAX} bytes"
        raise Failure(Code.OUT_OF_RANGE, message, reason="OUTPUT_TOO_LARGE")
    return text


def _stored_result(finished: Finished, call: Call) -> CallResult:
    if finished.status != 200:
        return CallResult(finished.status, finished.body)
    return CallResult(200, call.wire.wrap(finished.body, call.control), call.wire.content_type)


def _as_failure(call: Call, error: Exception) -> Failure:
    if isinstance(error, Failure):
        return error
    # The details go to the operator's log only; the caller gets no internals.
    print(f"{call.activity} failed unexpectedly:", file=sys.stderr)
    traceback.print_exception(error, file=sys.stderr)
    return Failure(Code.INTERNAL, "the handler failed unexpectedly", reason="HANDLER_PANICKED")


def _raising(error: Exception) -> Effect:
    def effect(_tx: sqlite3.Connection) -> Any:
        raise error

    return effect
