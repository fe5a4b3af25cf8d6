"""The services of the tour: an onboarding record, the processing of a device's events, and two channels for messages.

Each activity writes one row into `effects`, in the transaction that finishes its work, so that the tour can count what
took effect. The input decides what fails: a device named `refused` gets no record, an event that says `damaged` cannot
be processed, and one that says `busy` makes the first attempt fail.
"""

import asyncio
import json
import pathlib
import sqlite3
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "workers" / "python"))

import worker
from receiver import Call, Code, Failure, Transactional


def effect(call: Call, tx: sqlite3.Connection) -> None:
    tx.execute(
        "INSERT INTO effects (execution_id, activity, idempotency_key, attempt, body, at) VALUES (?, ?, ?, ?, ?, ?)",
        (*call.identity().row(), call.metadata.retry_attempt, json.dumps(call.input), time.time_ns() // 1_000_000),
    )


def create_onboarding_record(call: Call, tx: sqlite3.Connection) -> Any:
    device = call.input["entityId"]
    if device.startswith("refused"):
        raise Failure(Code.FAILED_PRECONDITION, "the device is blocked", reason="DEVICE_BLOCKED", domain="onboarding")
    effect(call, tx)
    return f"record-{device}"


def process_device_events(call: Call, tx: sqlite3.Connection) -> Any:
    said = [event.get("data", {}).get("says") for event in call.input["events"]]
    if "damaged" in said:
        raise Failure(Code.FAILED_PRECONDITION, "an event is damaged", reason="EVENT_DAMAGED", domain="onboarding")
    if "busy" in said and call.metadata.retry_attempt == 0:
        raise Failure(Code.UNAVAILABLE, "the database is busy", reason="BUSY", domain="onboarding")
    effect(call, tx)
    return {"processed": len(said)}


def send(call: Call, tx: sqlite3.Connection) -> Any:
    effect(call, tx)
    return {"sent": True}


ACTIVITIES = {
    "CreateOnboardingRecord": Transactional(create_onboarding_record),
    "RollbackOnboardingRecord": Transactional(send),
    "ProcessDeviceEvents": Transactional(process_device_events),
    "UpdateExternalSystem": Transactional(send),
    "NotifyOnboardingFailure": Transactional(send),
    "NotifyOperations": Transactional(send),
}

if __name__ == "__main__":
    asyncio.run(worker.main(ACTIVITIES))
