"""The part of HTTP/1.1 that a worker needs, over asyncio: POST and GET with a length, keep-alive, limits.

Independent of activities. Chunked requests, folded headers, upgrades and other unusual input are rejected.
"""

import asyncio
import dataclasses
import http
import re
from collections.abc import Awaitable, Callable

HEAD_BYTES_MAX = 32 * 1024
CONNECTIONS_MAX = 2048
#: Longer than clients keep idle connections (often 90 s), so that the client closes first.
IDLE_S = 120
BODY_S = 30
#: Limits for reading and discarding input after a rejection. Closing immediately would reset the connection, and the
#: client might never see the response.
LINGER_BYTES_MAX = 16 * 1024 * 1024
LINGER_S = 5

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) ([\x21-\x7e]{1,8192}) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_LENGTH = re.compile(rb"[0-9]{1,15}")


@dataclasses.dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


@dataclasses.dataclass(frozen=True)
class Response:
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Refused(Exception):
    """The request is not read any further: the server responds, then closes the connection."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status
        self.message = message


class HttpServer:
    """`handle` responds to requests; `refuse` builds the response to a request that could not be parsed."""

    def __init__(
        self,
        handle: Callable[[Request], Awaitable[Response]],
        refuse: Callable[[int, str], Response],
        body_bytes_max: int,
    ):
        self._handle = handle
        self._refuse = refuse
        self._body_bytes_max = body_bytes_max
        self._connections: dict[asyncio.Task, asyncio.StreamWriter] = {}
        self._idle: set[asyncio.Task] = set()
        self._stopping = False

    async def start(self, host: str, port: int) -> int:
        """Returns the port. The system chooses one if `port` is 0."""
        self._server = await asyncio.start_server(self._connection, host, port, limit=HEAD_BYTES_MAX, backlog=1024)
        return self._server.sockets[0].getsockname()[1]

    async def stop(self, grace_s: float) -> None:
        """Accepts no new connections and closes idle ones. The others close after their response or after `grace_s`."""
        self._stopping = True
        self._server.close()
        for task in self._idle:
            self._connections[task].close()
        if self._connections:
            _, late = await asyncio.wait(list(self._connections), timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._stopping or len(self._connections) >= CONNECTIONS_MAX:
            writer.close()
            return
        task = _current_task()
        self._connections[task] = writer
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client is gone or too slow; its work is recorded, and it may retry
        finally:
            del self._connections[task]
            self._idle.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serves one request and response. Returns false if it was the last one on the connection."""
        try:
            request, keep_alive = await self._read(reader, writer)
        except Refused as refused:
            await _write(writer, self._refuse(refused.status, refused.message), keep_alive=False)
            await _linger(reader, writer)
            return False
        response = await self._handle(request)
        keep_alive = keep_alive and not self._stopping
        await _write(writer, response, keep_alive)
        return keep_alive

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[Request, bool]:
        method, target, minor, headers = _parse_head(await self._read_head(reader))
        names = [name for name, _ in headers]
        lengths = {value for name, value in headers if name == "content-length"}
        if method not in ("GET", "POST"):
            raise Refused(405, "only GET and POST are supported")
        if "transfer-encoding" in names:
            raise Refused(411, "a request needs a Content-Length; transfer encodings are not supported")
        if len(lengths) > 1 or not all(_LENGTH.fullmatch(value.encode("latin-1")) for value in lengths):
            raise Refused(400, "the Content-Length is not a single number")
        if method == "POST" and not lengths:
            raise Refused(411, "a request needs a Content-Length")
        length = int(lengths.pop()) if lengths else 0
        if length > self._body_bytes_max:
            raise Refused(413, f"the body is longer than {self._body_bytes_max} bytes")
        if ("expect", "100-continue") in headers:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with asyncio.timeout(BODY_S):
            request = Request(method, target, headers, await reader.readexactly(length))
        connection = (request.header("connection") or "").lower()
        return request, connection != "close" and (minor == 1 or connection == "keep-alive")

    async def _read_head(self, reader: asyncio.StreamReader) -> bytes:
        task = _current_task()
        self._idle.add(task)
        try:
            async with asyncio.timeout(IDLE_S):
                return await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise Refused(431, f"the head is longer than {HEAD_BYTES_MAX} bytes") from None
        finally:
            self._idle.discard(task)


def _parse_head(head: bytes) -> tuple[str, str, int, list[tuple[str, str]]]:
    request_line, *lines = head[:-4].split(b"\r\n")
    matched = _REQUEST_LINE.fullmatch(request_line)
    if not matched:
        raise Refused(400, "this is not an HTTP/1.1 request")
    headers = []
    for line in lines:
        header = _HEADER.fullmatch(line)
        if not header:
            raise Refused(400, "a header is malformed")
        headers.append((header[1].decode().lower(), header[2].decode("latin-1")))
    return matched[1].decode(), matched[2].decode(), int(matched[3]), headers


def _current_task() -> asyncio.Task:
    task = asyncio.current_task()
    assert task is not None, "must be called from a coroutine"
    return task


async def _write(writer: asyncio.StreamWriter, response: Response, keep_alive: bool) -> None:
    head = [f"HTTP/1.1 {response.status} {_PHRASES.get(response.status, 'Unknown')}"]
    head += [f"{name}: {value}" for name, value in response.headers]
    head.append(f"content-length: {len(response.body)}")
    head.append("connection: keep-alive" if keep_alive else "connection: close")
    writer.write("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + response.body)
    await writer.drain()


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write_eof()
    async with asyncio.timeout(LINGER_S):
        left = LINGER_BYTES_MAX
        while left > 0 and (piece := await reader.read(64 * 1024)):
            left -= len(piece)


_PHRASES = {status.value: status.phrase for status in http.HTTPStatus}
