"""One NDJSON stream of events: results arrive while events are still being sent.

httpx sends a whole request before it reads the answer, so a stream has its own connection, without any
proxy.
"""

import asyncio
import selectors
import socket
import ssl
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final, TypeVar

import h11
import httpx
import msgspec

from .call import path_of
from .results import Entry, Envelope, EventResult, ServiceError
from .sending import NOT_CARRIED_OUT, OUTCOME_UNKNOWN, Event

T = TypeVar("T")

_CONNECT_S: Final = 10.0
_IDLE_S: Final = 10.0
"""The interval of blank lines; without them, the service ends a stream that is silent for 30 s."""
_BLANK: Final = b"1\r\n\n\r\n"
_END: Final = b"0\r\n\r\n"
_READ_BYTES: Final = 64 * 1024
_LOOK_AGAIN_S: Final = 1.0
"""The time after which a waiting thread notices that its connection was closed."""
_OK: Final = 200


class _Line(msgspec.Struct):
    """A line of the answer: a result, or the closing line."""

    actions: list[object] | None = None
    done: int | None = None
    errors: list[Entry] = []


def _chunk(event: Event) -> bytes:
    line = b'{"event":' + event.json() + b"}\n"
    return b"%x\r\n%b\r\n" % (len(line), line)


class _Reader:
    """Parses the answer to one stream as its bytes arrive, without sockets or threads."""

    def __init__(self, url: httpx.URL, token: str, detector_id: str) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._url = url
        host = url.netloc.decode("ascii")
        base = url.raw_path.decode("ascii").rstrip("/")
        path = base + path_of("detectors", detector_id, "evaluate", "batch")
        headers = [
            ("Host", host),
            ("Authorization", f"Bearer {token}"),
            ("Content-Type", "application/x-ndjson"),
            ("Transfer-Encoding", "chunked"),
        ]
        self.head = self._http.send(h11.Request(method="POST", target=path, headers=headers))
        """The head of the request."""
        self._status = 0
        self._left = b""
        self.is_over = False

    def take(self, data: bytes) -> Iterator[EventResult]:
        """Take the next bytes of the answer, empty at their end, and yield the results in them.

        Raises ServiceError if the service ends the stream early, refuses it, or is cut off.
        """
        try:
            self._http.receive_data(data)
            while not self.is_over:
                match self._http.next_event():
                    case h11.Response() as response:
                        self._status = response.status_code
                    case h11.Data() as part:
                        yield from self._lines(bytes(part.data))
                    case h11.EndOfMessage() if self._status != _OK:
                        raise self._refused()
                    case h11.EndOfMessage() | h11.ConnectionClosed():
                        raise self._cut_off()
                    case h11.NEED_DATA:
                        return
        except h11.RemoteProtocolError:
            raise self._cut_off() from None

    def _lines(self, data: bytes) -> Iterator[EventResult]:
        *lines, self._left = (self._left + data).split(b"\n")
        if self._status != _OK:
            self._left = b"\n".join([*lines, self._left])
            return
        for line in lines:
            try:
                closing = msgspec.json.decode(line, type=_Line)
                result = None if closing.done is not None else msgspec.json.decode(line, type=EventResult)
            except ValueError as error:
                said = f"{self._url} answered the stream with something else: {error}"
                raise ServiceError(said, in_doubt=True) from None
            if result is not None:
                yield result
                continue
            self.is_over = True
            if closing.errors:
                raise _error(closing.errors, None)

    def _refused(self) -> ServiceError:
        with suppress(ValueError):
            if errors := msgspec.json.decode(self._left, type=Envelope).errors:
                return _error(errors, self._status)
        said, in_doubt = f"{self._url} answered {self._status}", self._status not in NOT_CARRIED_OUT
        return ServiceError(said, status=self._status, in_doubt=in_doubt)

    def _cut_off(self) -> ServiceError:
        return ServiceError(f"the stream to {self._url} was cut off", in_doubt=True)


def _error(errors: list[Entry], status: int | None) -> ServiceError:
    said = "\n".join(f"{entry.code} {entry.message}" for entry in errors)
    in_doubt = any(entry.code in OUTCOME_UNKNOWN for entry in errors)
    return ServiceError(said, status=status, entries=tuple(errors), in_doubt=in_doubt)


def _address(url: httpx.URL, tls: ssl.SSLContext | None) -> tuple[str, int, ssl.SSLContext | None]:
    context = tls or ssl.create_default_context() if url.scheme == "https" else None
    return url.host, url.port or (443 if context else 80), context


class _Encrypted:
    """A connection over TLS that one thread reads while others send. OpenSSL takes one call at a time."""

    def __init__(self, there: ssl.SSLSocket) -> None:
        there.setblocking(False)
        self._there = there
        self._calling = threading.Lock()

    def recv(self, bytes_max: int) -> bytes:
        """Wait for bytes and return them."""
        return self._called(lambda: self._there.recv(bytes_max))

    def sendall(self, data: bytes) -> None:
        """Send all bytes."""
        left = memoryview(data)
        while left:
            left = left[self._called(lambda: self._there.send(left)) :]  # noqa: B023 -- called at once

    def shutdown(self, how: int) -> None:
        """End the connection in these directions."""
        with self._calling:
            self._there.shutdown(how)

    def close(self) -> None:
        """Close the connection. A waiting thread gets an OSError within a second."""
        with self._calling:
            self._there.close()

    def _called(self, call: Callable[[], T]) -> T:
        while True:
            with self._calling:
                try:
                    return call()
                except ssl.SSLWantReadError:
                    wanted = selectors.EVENT_READ
                except ssl.SSLWantWriteError:
                    wanted = selectors.EVENT_WRITE
                ready = selectors.DefaultSelector()
                ready.register(self._there, wanted)
            with ready:
                ready.select(_LOOK_AGAIN_S)


def stream(
    url: httpx.URL, token: str, detector_id: str, events: Iterable[Event], tls: ssl.SSLContext | None = None
) -> Iterator[EventResult]:
    """Send events in a thread and yield their results as they arrive. Raises ServiceError."""
    reader = _Reader(url, token, detector_id)
    host, port, context = _address(url, tls)
    try:
        there: socket.socket | _Encrypted = (plain := socket.create_connection((host, port), _CONNECT_S))
        if context:
            there = _Encrypted(context.wrap_socket(plain, server_hostname=host))
        else:
            plain.settimeout(None)
    except OSError as error:
        raise ServiceError(f"no service answers at {url}: {error}", sent=False) from None
    sending = threading.Lock()
    ended = threading.Event()
    failures: list[BaseException] = []

    def sent(chunk: bytes) -> bool:
        """Send a chunk. If the service has closed the connection, return False: its answer says why."""
        try:
            there.sendall(chunk)
        except OSError:
            return False
        return True

    def feed() -> None:
        try:
            for event in events:
                chunk = _chunk(event)
                with sending:
                    if not sent(chunk):
                        return
            with sending:
                ended.set()
                sent(_END)
        except BaseException as error:  # noqa: BLE001 -- raised where the results are read
            failures.append(error)
            with suppress(OSError):
                there.shutdown(socket.SHUT_RDWR)

    def blank_lines() -> None:
        while not ended.wait(_IDLE_S):
            with sending:
                if not ended.is_set():
                    sent(_BLANK)

    try:
        there.sendall(reader.head)
        for work in (feed, blank_lines):
            threading.Thread(target=work, daemon=True).start()
        while not reader.is_over:
            yield from reader.take(_received(there))
    except ServiceError:
        if failures:
            raise failures[0] from None
        raise
    finally:
        ended.set()
        with suppress(OSError):
            there.shutdown(socket.SHUT_RDWR)
        there.close()


def _received(there: socket.socket | _Encrypted) -> bytes:
    try:
        return there.recv(_READ_BYTES)
    except OSError:
        return b""


async def stream_async(
    url: httpx.URL,
    token: str,
    detector_id: str,
    events: AsyncIterable[Event],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[EventResult]:
    """Send events in a task and yield their results as they arrive. Raises ServiceError."""
    reader = _Reader(url, token, detector_id)
    host, port, context = _address(url, tls)
    try:
        async with asyncio.timeout(_CONNECT_S):
            incoming, outgoing = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise ServiceError(f"no service answers at {url}: {error}", sent=False) from None

    async def feed() -> None:
        async for event in events:
            outgoing.write(_chunk(event))
            try:
                await outgoing.drain()
            except OSError:
                # The service has closed the connection; its answer says why.
                return
        blanks.cancel()
        outgoing.write(_END)

    async def blank_lines() -> None:
        while True:
            await asyncio.sleep(_IDLE_S)
            outgoing.write(_BLANK)

    def stop(task: asyncio.Task[None]) -> None:
        # An error in the source of the events ends the stream, and is raised below.
        if not task.cancelled() and task.exception() is not None:
            outgoing.close()

    outgoing.write(reader.head)
    blanks = asyncio.create_task(blank_lines())
    feeding = asyncio.create_task(feed())
    feeding.add_done_callback(stop)
    try:
        while not reader.is_over:
            try:
                data = await incoming.read(_READ_BYTES)
            except OSError:
                data = b""
            for result in reader.take(data):
                yield result
    except ServiceError:
        failure = feeding.exception() if feeding.done() and not feeding.cancelled() else None
        if failure is not None:
            raise failure from None
        raise
    finally:
        for task in (blanks, feeding):
            task.cancel()
        await asyncio.gather(blanks, feeding, return_exceptions=True)
        outgoing.close()
