#!/usr/bin/env python3
"""An activity worker on Python's standard library alone (3.11 or newer): `DB=worker.db PORT=8081 python3 worker.py`.

Reads the settings, starts the worker, and shuts it down gracefully at SIGTERM. The activities are in activities.py.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping

import activities
from receiver import Activity, Database, Endpoint, Failure, HttpServer, Receiver, work
from receiver.endpoint import BODY_BYTES_MAX
from receiver.receive import HANDLER_TIMEOUT_MS, RETENTION_MS

SWEEP_EVERY_S = 60
STOP_GRACE_S = 10


async def main(served: Mapping[str, Activity] = activities.ACTIVITIES) -> None:
    host = os.environ.get("HOST", "127.0.0.1")
    database = Database(os.environ.get("DB", "worker-python.db"), work.SCHEMA, activities.SCHEMA)
    receiver = Receiver(
        database,
        served,
        handler_timeout_ms=number("HANDLER_TIMEOUT_MS", HANDLER_TIMEOUT_MS),
        retention_ms=number("RETENTION_MS", RETENTION_MS),
    )
    endpoint = Endpoint(receiver)
    server = HttpServer(endpoint.handle, endpoint.refuse, BODY_BYTES_MAX)
    stop = asyncio.Event()
    for stop_signal in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(stop_signal, stop.set)

    port = await server.start(host, number("PORT", 8081))
    if host not in ("127.0.0.1", "::1", "localhost"):
        print(f"warning: {host} may be reachable from outside, and this worker has no authentication", file=sys.stderr)
    print(f"listening on http://{host}:{port} as incarnation {database.incarnation}", flush=True)

    sweeper = asyncio.create_task(sweep(receiver))
    await stop.wait()
    sweeper.cancel()
    await server.stop(STOP_GRACE_S)
    database.close()
    print("stopped", flush=True)


async def sweep(receiver: Receiver) -> None:
    """Deletes records past their retention, in bounded batches so that no request waits long."""
    while True:
        try:
            while await receiver.sweep():
                pass
        except Failure as failure:
            print(f"sweep failed, retrying later: {failure}", file=sys.stderr)
        await asyncio.sleep(SWEEP_EVERY_S)


def number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isascii() or not text.isdigit():
        sys.exit(f"{name} must be an integer, not {text!r}")
    return int(text)


if __name__ == "__main__":
    asyncio.run(main())
