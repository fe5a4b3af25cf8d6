"""The table of work: its claim and when that expires, then the stored result once the work is finished.

SQL only: the rules that use the rows are in receive.py.
"""

import dataclasses
import sqlite3

SCHEMA = """
CREATE TABLE IF NOT EXISTS work (
    id INTEGER PRIMARY KEY,
    execution_id TEXT NOT NULL,
    activity TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    claim INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    finished_at INTEGER,
    status INTEGER,
    body BLOB,
    UNIQUE (execution_id, activity, idempotency_key)
);
CREATE INDEX IF NOT EXISTS work_finished_at ON work (finished_at);
"""


@dataclasses.dataclass(frozen=True)
class Identity:
    """Attempts with equal identities are duplicates. The same key with another execution id is new work."""

    execution_id: str
    activity: str
    idempotency_key: str

    def row(self) -> tuple[str, str, str]:
        return self.execution_id, self.activity, self.idempotency_key


@dataclasses.dataclass(frozen=True)
class Claim:
    """The right to finish the work. `number` distinguishes claims of the same incarnation."""

    incarnation: int
    number: int
    expires_at: int


@dataclasses.dataclass(frozen=True)
class Finished:
    """A stored result. `body` is the JSON text of the output, independent of the wire, or the body of the failure."""

    status: int
    body: bytes


_IS = "execution_id = ? AND activity = ? AND idempotency_key = ?"


def find(tx: sqlite3.Connection, identity: Identity) -> Claim | Finished | None:
    columns = "incarnation, claim, expires_at, finished_at, status, body"
    row = tx.execute(f"SELECT {columns} FROM work WHERE {_IS}", identity.row()).fetchone()
    if row is None:
        return None
    incarnation, number, expires_at, finished_at, status, body = row
    return Claim(incarnation, number, expires_at) if finished_at is None else Finished(status, body)


def claim(tx: sqlite3.Connection, identity: Identity, claim: Claim) -> None:
    """Claims the work, replacing a void claim if there is one."""
    tx.execute(
        "INSERT INTO work (execution_id, activity, idempotency_key, incarnation, claim, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (execution_id, activity, idempotency_key) DO UPDATE"
        " SET incarnation = excluded.incarnation, claim = excluded.claim, expires_at = excluded.expires_at",
        (*identity.row(), claim.incarnation, claim.number, claim.expires_at),
    )


def finish(tx: sqlite3.Connection, identity: Identity, claim: Claim, finished: Finished, now: int) -> None:
    tx.execute(
        "INSERT INTO work (execution_id, activity, idempotency_key, incarnation, claim, expires_at,"
        " finished_at, status, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (execution_id, activity, idempotency_key) DO UPDATE SET finished_at = excluded.finished_at,"
        " status = excluded.status, body = excluded.body",
        (*identity.row(), claim.incarnation, claim.number, claim.expires_at)
        + (now, finished.status, finished.body),
    )


def release(tx: sqlite3.Connection, identity: Identity) -> None:
    tx.execute(f"DELETE FROM work WHERE {_IS} AND finished_at IS NULL", identity.row())


def sweep(tx: sqlite3.Connection, finished_before: int, incarnation: int, now: int, limit: int) -> int:
    """Deletes up to `limit` records past their retention, and up to `limit` void claims that no attempt replaced."""
    old = "SELECT id FROM work WHERE finished_at <= ? ORDER BY finished_at LIMIT ?"
    void = "SELECT id FROM work WHERE finished_at IS NULL AND (incarnation <> ? OR expires_at <= ?) LIMIT ?"
    deleted = tx.execute(f"DELETE FROM work WHERE id IN ({old})", (finished_before, limit)).rowcount
    return deleted + tx.execute(f"DELETE FROM work WHERE id IN ({void})", (incarnation, now, limit)).rowcount
