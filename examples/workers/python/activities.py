"""The activities that this worker serves. Replace them by your own; `ledger.add` is the one to copy from.

They know their input and the database, nothing of deliveries, duplicates or HTTP: the receiver has sorted those out.
"""

import asyncio
import json
import sqlite3
import time
from typing import Any

from receiver import Activity, Call, Code, Failure, Prepared, Transactional

WAIT_MS_MAX = 30_000
#: Whole numbers up to here are the same in every JSON implementation.
AMOUNT_MAX = 2**53 - 1

SCHEMA = """
CREATE TABLE IF NOT EXISTS accounts (account TEXT PRIMARY KEY, balance INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS effects (
    execution_id TEXT NOT NULL,
    activity TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    body TEXT NOT NULL,
    at INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS runs (tag TEXT PRIMARY KEY, runs INTEGER NOT NULL) WITHOUT ROWID;
"""


def ledger_add(call: Call, tx: sqlite3.Connection) -> Any:
    """Adds to an account. `effects` has no unique key: if something ever took effect twice, two rows would show it."""
    account = _text(call, "account")
    amount = _whole(call, "amount", -AMOUNT_MAX, AMOUNT_MAX)
    tx.execute(
        "INSERT INTO effects (execution_id, activity, idempotency_key, attempt, body, at) VALUES (?, ?, ?, ?, ?, ?)",
        (*call.identity().row(), call.metadata.retry_attempt, json.dumps(call.input), time.time_ns() // 1_000_000),
    )
    upsert = (
        "INSERT INTO accounts VALUES (?, ?)"
        " ON CONFLICT (account) DO UPDATE SET balance = balance + excluded.balance RETURNING balance"
    )
    ((balance,),) = tx.execute(upsert, (account, amount)).fetchall()
    if abs(balance) > AMOUNT_MAX:
        # Raising undoes both rows; the failure is final, so it is recorded and repeated to duplicates.
        raise Failure(Code.OUT_OF_RANGE, "the balance would be too large", reason="BALANCE_TOO_LARGE", domain="ledger")
    return {"balance": balance}


def echo(call: Call, _tx: sqlite3.Connection) -> Any:
    return call.input


async def conformance(call: Call) -> Any:
    """What `abide conform` talks to. An example of `prepare`: the wait is outside of any transaction."""
    match _text(call, "op"):
        case "run":
            tag = _text(call, "tag")
            return lambda tx: {"runs": _add_run(tx, tag)}
        case "count":
            tag = _text(call, "tag")
            return lambda tx: {"runs": _runs(tx, tag)}
        case "wait":
            tag = _text(call, "tag")
            wait_ms = _whole(call, "ms", 0, WAIT_MS_MAX)
            await asyncio.sleep(wait_ms / 1000)
            return lambda tx: {"runs": _add_run(tx, tag)}
        case "fail":
            return await fail(call)
        case "echo" if "value" in call.input:
            return lambda _tx: {"value": call.input["value"]}
    raise _invalid("op is none of run, fail, wait, count, echo, or its value is missing")


async def fail(call: Call) -> Any:
    """Fails with the wanted status `times` times, then succeeds."""
    tag = _text(call, "tag")
    times = _whole(call, "times", 0, AMOUNT_MAX)
    code = Code.__members__.get(_text(call, "status"), Code.OK)
    if code is Code.OK:
        raise _invalid("status is not the name of a failure")
    # A transaction of its own, because what a failing effect writes is undone.
    runs = await call.database.transaction(lambda tx: _add_run(tx, tag))
    if runs <= times:
        raise Failure(code, f"run {runs} was asked to fail", reason="CONFORMANCE", domain="conformance")
    return lambda _tx: {"runs": runs}


ACTIVITIES: dict[str, Activity] = {
    "ledger.add": Transactional(ledger_add),
    "echo": Transactional(echo),
    "fail": Prepared(fail),
    "conformance": Prepared(conformance),
}


def _runs(tx: sqlite3.Connection, tag: str) -> int:
    row = tx.execute("SELECT runs FROM runs WHERE tag = ?", (tag,)).fetchone()
    return row[0] if row else 0


def _add_run(tx: sqlite3.Connection, tag: str) -> int:
    tx.execute("INSERT INTO runs VALUES (?, 1) ON CONFLICT (tag) DO UPDATE SET runs = runs + 1", (tag,))
    return _runs(tx, tag)


def _text(call: Call, name: str) -> str:
    value = _field(call, name)
    if not isinstance(value, str):
        raise _invalid(f"{name} has to be a text")
    return value


def _whole(call: Call, name: str, minimum: int, maximum: int) -> int:
    value = _field(call, name)
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise _invalid(f"{name} has to be a whole number from {minimum} to {maximum}")
    return value


def _field(call: Call, name: str) -> Any:
    return call.input.get(name) if isinstance(call.input, dict) else None


def _invalid(message: str) -> Failure:
    return Failure(Code.INVALID_ARGUMENT, message, reason="INPUT_INVALID", domain="worker")
