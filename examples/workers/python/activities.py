"""The activities that this worker serves. Replace them with your own; use `ledger.add` as the template.

They see their input and the database only. The receiver handles HTTP, attempts and duplicates.
"""

import asyncio
import json
import sqlite3
import time
from typing import Any

from receiver import Activity, Call, Code, Failure, Prepared, Transactional

WAIT_MS_MAX = 30_000
#: Every JSON implementation represents integers up to this limit exactly.
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
    """Adds to an account. `effects` has no unique key, so a repeated effect would show as two rows."""
    account = _string(call, "account")
    amount = _integer(call, "amount", -AMOUNT_MAX, AMOUNT_MAX)
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
        # Raising rolls back both rows. The failure is permanent, so it is stored and returned to duplicates.
        raise Failure(Code.OUT_OF_RANGE, "the balance would be too large", reason="BALANCE_TOO_LARGE", domain="ledger")
    return {"balance": balance}


def echo(call: Call, _tx: sqlite3.Connection) -> Any:
    return call.input


async def conformance(call: Call) -> Any:
    """The activity that `abide conform` calls. It also shows `prepare`: the wait runs outside any transaction."""
    match _string(call, "op"):
        case "run":
            tag = _string(call, "tag")
            return lambda tx: {"runs": _add_run(tx, tag)}
        case "count":
            tag = _string(call, "tag")
            return lambda tx: {"runs": _runs(tx, tag)}
        case "wait":
            tag = _string(call, "tag")
            wait_ms = _integer(call, "ms", 0, WAIT_MS_MAX)
            await asyncio.sleep(wait_ms / 1000)
            return lambda tx: {"runs": _add_run(tx, tag)}
        case "fail":
            return await fail(call)
        case "echo" if "value" in call.input:
            return lambda _tx: {"value": call.input["value"]}
    raise _invalid("op must be one of run, fail, wait, count, echo; echo needs a value")


async def fail(call: Call) -> Any:
    """Fails `times` times with the requested status, then succeeds."""
    tag = _string(call, "tag")
    times = _integer(call, "times", 0, AMOUNT_MAX)
    code = Code.__members__.get(_string(call, "status"), Code.OK)
    if code is Code.OK:
        raise _invalid("status is not the name of a failure code")
    # A separate transaction, because the writes of a failing effect are rolled back.
    runs = await call.database.transaction(lambda tx: _add_run(tx, tag))
    if runs <= times:
        raise Failure(code, f"run {runs} fails as requested", reason="CONFORMANCE", domain="conformance")
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


def _string(call: Call, name: str) -> str:
    value = _field(call, name)
    if not isinstance(value, str):
        raise _invalid(f"{name} must be a string")
    return value


def _integer(call: Call, name: str, minimum: int, maximum: int) -> int:
    value = _field(call, name)
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise _invalid(f"{name} must be an integer from {minimum} to {maximum}")
    return value


def _field(call: Call, name: str) -> Any:
    return call.input.get(name) if isinstance(call.input, dict) else None


def _invalid(message: str) -> Failure:
    return Failure(Code.INVALID_ARGUMENT, message, reason="INPUT_INVALID", domain="worker")
