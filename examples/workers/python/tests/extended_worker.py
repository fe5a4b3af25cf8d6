"""The real worker, with extra activities that wait for a gate or crash at a chosen point."""

import asyncio
import collections
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import worker  # noqa: E402
from activities import ACTIVITIES, ledger_add  # noqa: E402
from receiver import Database, Prepared, Transactional  # noqa: E402

gates: dict[str, asyncio.Event] = collections.defaultdict(asyncio.Event)


async def gate_add(call):
    """Runs `ledger.add` once the gate is open."""
    await gates[call.input["gate"]].wait()
    return lambda tx: ledger_add(call, tx)


def gate_open(call, _tx):
    gates[call.input["gate"]].set()


def crash_add(call, tx):
    """Runs `ledger.add`, but the first call kills the process: before the commit or just after it."""
    output = ledger_add(call, tx)
    marker = pathlib.Path(call.input["marker"])
    if not marker.exists():
        marker.touch()
        if call.input["at"] == "before commit":
            die()
        commit = Database._commit
        Database._commit = lambda database: (commit(database), die())
    return output


def crash_handler(_call, _tx):
    raise RuntimeError("an internal secret")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


asyncio.run(
    worker.main(
        {
            **ACTIVITIES,
            "gate.add": Prepared(gate_add),
            "gate.open": Transactional(gate_open),
            "crash.add": Transactional(crash_add),
            "bug": Transactional(crash_handler),
        }
    )
)
