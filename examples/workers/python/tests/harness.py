"""Starts, kills and calls a worker process, and reads its database."""

import contextlib
import http.client
import json
import os
import pathlib
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).parent
WAIT_S = 20
REST = "application/json"
ENVELOPE = "application/vnd.tpf.envelope.v1+json"


class Response:
    def __init__(self, response: http.client.HTTPResponse):
        self.status = response.status
        self.content_type = response.headers["content-type"]
        self.retry_after = response.headers["retry-after"]
        self.body = response.read()

    def json(self):
        return json.loads(self.body)

    def code(self) -> str:
        return self.json()["error"]["status"]

    def reason(self) -> str | None:
        details = self.json()["error"]["details"]
        return next((detail["reason"] for detail in details if "reason" in detail), None)


class Worker:
    """A worker process with a database that outlives it."""

    def __init__(self, directory: str, **settings: str):
        self.db = os.path.join(directory, "worker.db")
        self._settings = settings
        self.start()

    def start(self) -> None:
        env = {**os.environ, "DB": self.db, "PORT": "0", "HOST": "127.0.0.1", **self._settings}
        program = [sys.executable, str(HERE / "extended_worker.py")]
        self.process = subprocess.Popen(program, env=env, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("listening on"), f"the worker did not start: {line!r}"
        self.port = int(line.split()[2].rpartition(":")[2])

    def is_up(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), WAIT_S).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        self.process.stdout.close()

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(WAIT_S)
        self.process.stdout.close()
        return code

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)

    def post(self, activity: str, body, headers=(), content_type: str | None = REST) -> Response:
        """`headers` is a dictionary, or pairs to send one twice; `body` is bytes, or a value to encode."""
        connection = self.connect()
        try:
            send(connection, f"/activities/{activity}", body, headers, content_type)
            return Response(connection.getresponse())
        finally:
            connection.close()

    def rows(self, sql: str, *values) -> list[tuple]:
        with contextlib.closing(sqlite3.connect(self.db, timeout=WAIT_S)) as connection:
            return connection.execute(sql, values).fetchall()

    def effects(self, key: str) -> int:
        return self.rows("SELECT count(*) FROM effects WHERE idempotency_key = ?", key)[0][0]


def send(connection: http.client.HTTPConnection, path: str, body, headers=(), content_type: str | None = REST) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.putrequest("POST", path, skip_accept_encoding=True)
    for name, value in headers.items() if isinstance(headers, dict) else headers:
        connection.putheader(name, value)
    if content_type:
        connection.putheader("Content-Type", content_type)
    connection.putheader("Content-Length", str(len(data)))
    connection.endheaders(data)


def metadata(key: str, execution: str = "execution-1", **more) -> dict[str, str]:
    """`more` omits the prefix of the keys: deadline_epoch_ms=5 is x-tpf-deadline-epoch-ms."""
    extra = {f"x-tpf-{name.replace('_', '-')}": str(value) for name, value in more.items()}
    return {"x-tpf-execution-id": execution, "x-tpf-idempotency-key": key, **extra}


def until(condition, what: str):
    """Polls until the condition holds. Tests do not depend on the polling interval."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.005)
    raise AssertionError(f"timed out waiting for: {what}")


class WorkerTest(unittest.TestCase):
    """Tests that share one worker; each test uses its own keys."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.worker = Worker(cls.directory.name)
        cls.addClassCleanup(cls.worker.kill)

    def key(self, name: str = "") -> str:
        return self.id() + name
