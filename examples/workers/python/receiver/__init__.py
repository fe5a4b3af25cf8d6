"""The receiving side of the dispatch contract: everything a worker needs besides its activities.

http.py       HTTP/1.1 over asyncio; independent of activities
endpoint.py   requests to responses: routes, limits, content types
wire.py       the bodies of the wires `rest` and `envelope`
metadata.py   the seven x-tpf keys
status.py     status codes and failure bodies
receive.py    the order of the rules: stored result, in progress, deadline, claim, handler, record
work.py       the table of claims and stored results
database.py   SQLite: one writer, several transactions per fsync
"""

from . import work
from .database import Database
from .endpoint import Endpoint
from .http import HttpServer
from .receive import Activity, Call, Prepared, Receiver, Transactional
from .status import Code, Failure

__all__ = [
    "Activity",
    "Call",
    "Code",
    "Database",
    "Endpoint",
    "Failure",
    "HttpServer",
    "Prepared",
    "Receiver",
    "Transactional",
    "work",
]
