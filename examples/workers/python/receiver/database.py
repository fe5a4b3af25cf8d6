"""SQLite with one writer: transactions wait in a queue, and those that wait together share one commit and its fsync.

Each transaction is still atomic (a savepoint of its own): it is in the commit whole, or not at all. Nobody is told of
a result before the commit that holds it is on disk. Everything runs on the event loop's thread; a commit blocks it
for one fsync, and what arrives meanwhile is the next batch.

One process owns the database. Each start raises the incarnation; a process that finds a newer one than its own has
been replaced and stops, so two of them can never both believe in their claims.
"""

import asyncio
import os
import sqlite3
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from .status import Code, Failure

T = TypeVar("T")
BATCH_MAX = 256

_SCHEMA = """
CREATE TABLE IF NOT EXISTS incarnation (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), number INTEGER NOT NULL);
INSERT OR IGNORE INTO incarnation VALUES (1, 0);
"""


class Database:
    def __init__(self, path: str, *schemas: str):
        """Opens the file, makes the tables of `schemas` and takes ownership by raising the incarnation."""
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=5)
        self._queue: deque[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future]] = deque()
        self._connection.execute("PRAGMA journal_mode = WAL")
        # In WAL mode only FULL waits for the disk at every commit; NORMAL would lose answered work with the power.
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript("BEGIN IMMEDIATE;" + _SCHEMA + "".join(schemas) + "COMMIT;")
        raised = "UPDATE incarnation SET number = number + 1 RETURNING number"
        (self.incarnation,) = self._connection.execute(raised).fetchall()[0]

    def transaction(self, job: Callable[[sqlite3.Connection], T]) -> Awaitable[T]:
        """Runs `job` in a transaction soon; its result, or what it raised, comes after the commit.

        Every other request waits while `job` runs: it reads and writes this database and does nothing else.
        """
        loop = asyncio.get_running_loop()
        result = loop.create_future()
        if not self._queue:
            loop.call_soon(self._commit_batch)
        self._queue.append((job, result))
        return result

    def close(self) -> None:
        """What waits in the queue is committed first."""
        while self._queue:
            self._commit_batch()
        self._connection.close()

    def _commit_batch(self) -> None:
        if not self._queue:
            return
        batch = [self._queue.popleft() for _ in range(min(BATCH_MAX, len(self._queue)))]
        if self._queue:
            asyncio.get_running_loop().call_soon(self._commit_batch)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._stop_if_replaced()
            outcomes = [self._run(job) for job, _ in batch]
        except sqlite3.Error as error:
            # Somebody holds the lock, or the disk is full: SQLite has undone all of it, so all of it may be retried.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            print(f"database: {error}", file=sys.stderr)
            outcomes = [_unavailable() for _ in batch]
        else:
            self._commit()
        for (_, result), outcome in zip(batch, outcomes, strict=True):
            if result.cancelled():
                continue
            if isinstance(outcome, BaseException):
                result.set_exception(outcome)
            else:
                result.set_result(outcome)

    def _run(self, job: Callable[[sqlite3.Connection], Any]) -> Any:
        try:
            with Savepoint(self._connection):
                return job(self._connection)
        except Exception as error:
            if not self._connection.in_transaction:
                raise sqlite3.OperationalError(f"the whole transaction was undone by: {error}") from error
            return error

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            # Whether it is on disk is not known, and no later fsync could tell. The next start reads what is there.
            stop_process(f"the commit failed: {error}")

    def _stop_if_replaced(self) -> None:
        (number,) = self._connection.execute("SELECT number FROM incarnation").fetchone()
        if number != self.incarnation:
            stop_process(f"incarnation {number} owns the database now, this one was {self.incarnation}")


class Savepoint:
    """A part of a transaction that an exception undoes without touching the rest."""

    def __init__(self, connection: sqlite3.Connection):
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("SAVEPOINT part")

    def __exit__(self, kind, _error, _traceback) -> None:
        if kind is None:
            self._connection.execute("RELEASE part")
        elif self._connection.in_transaction:  # SQLite undoes the whole transaction itself after some errors
            self._connection.execute("ROLLBACK TO part")
            self._connection.execute("RELEASE part")


def _unavailable() -> Failure:
    return Failure(Code.UNAVAILABLE, "the database is not available", reason="STORE_UNAVAILABLE", retry_after_s=1)


def stop_process(why: str) -> None:
    """Like a crash, which everything here is made for: nothing more is written, no answer leaves."""
    print(f"stopping at once: {why}", file=sys.stderr, flush=True)
    os._exit(1)
