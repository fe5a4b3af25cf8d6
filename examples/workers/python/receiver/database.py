"""SQLite with one writer: transactions wait in a queue, and those that wait together share one commit and one fsync.

Each transaction is still atomic, because it has its own savepoint: the commit contains all of it or none of it. No
result is returned before its commit is on disk. Everything runs on the event loop's thread. A commit blocks the loop
for one fsync; requests that arrive meanwhile form the next batch.

One process owns the database. Each start increments the incarnation. A process that finds a newer incarnation has been
replaced and stops, so two processes never both treat their claims as valid.
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
        """Opens the file, creates the tables of `schemas` and takes ownership by incrementing the incarnation."""
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=5)
        self._queue: deque[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future]] = deque()
        self._connection.execute("PRAGMA journal_mode = WAL")
        # In WAL mode only FULL syncs at every commit; with NORMAL a power cut could lose acknowledged work.
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript("BEGIN IMMEDIATE;" + _SCHEMA + "".join(schemas) + "COMMIT;")
        raised = "UPDATE incarnation SET number = number + 1 RETURNING number"
        (self.incarnation,) = self._connection.execute(raised).fetchall()[0]

    def transaction(self, job: Callable[[sqlite3.Connection], T]) -> Awaitable[T]:
        """Queues `job` to run in a transaction. Its result or exception is delivered after the commit.

        Every other request waits while `job` runs, so `job` must only read and write this database.
        """
        loop = asyncio.get_running_loop()
        result = loop.create_future()
        if not self._queue:
            loop.call_soon(self._commit_batch)
        self._queue.append((job, result))
        return result

    def close(self) -> None:
        """Commits the queued transactions, then closes the file."""
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
            # The lock is held or the disk is full. SQLite has rolled back the whole batch, so all of it can be retried.
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
                raise sqlite3.OperationalError(f"the whole transaction was rolled back by: {error}") from error
            return error

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            # The commit may or may not be on disk, and no later fsync can tell. The next start reads the actual state.
            stop_process(f"the commit failed: {error}")

    def _stop_if_replaced(self) -> None:
        (number,) = self._connection.execute("SELECT number FROM incarnation").fetchone()
        if number != self.incarnation:
            stop_process(f"incarnation {number} now owns the database; this process is incarnation {self.incarnation}")


class Savepoint:
    """A part of a transaction that an exception rolls back without affecting the rest."""

    def __init__(self, connection: sqlite3.Connection):
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("SAVEPOINT part")

    def __exit__(self, kind, _error, _traceback) -> None:
        if kind is None:
            self._connection.execute("RELEASE part")
        elif self._connection.in_transaction:  # after some errors SQLite rolls back everything itself
            self._connection.execute("ROLLBACK TO part")
            self._connection.execute("RELEASE part")


def _unavailable() -> Failure:
    return Failure(Code.UNAVAILABLE, "the database is not available", reason="STORE_UNAVAILABLE", retry_after_s=1)


def stop_process(why: str) -> None:
    """Exits like a crash, which this design tolerates: nothing more is written and no response is sent."""
    print(f"stopping immediately: {why}", file=sys.stderr, flush=True)
    os._exit(1)
