"""The Python worker, but logs every attempt first, as one line in the format of `abide-receiver`."""

import asyncio
import os
import sys

sys.path.insert(0, os.environ["WORKER"])

import worker  # noqa: E402
from receiver import Endpoint  # noqa: E402

log = os.open(os.environ["DELIVERIES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


class Logged(Endpoint):
    async def handle(self, request):
        values = [request.header(f"x-tpf-{name}") or "" for name in ("execution-id", "idempotency-key", "retry-attempt")]
        kind = "probe" if request.header("x-abide-probe") else "delivery"
        os.write(log, ("\t".join([*values, kind]) + "\n").encode())
        return await super().handle(request)


worker.Endpoint = Logged
asyncio.run(worker.main())
