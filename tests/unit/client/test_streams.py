"""Streams of the client, to a service that a test plays on a socket: what is sent, and how a stream ends."""

import asyncio
import itertools
import json
import math
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rule_detector_client import AsyncClient, Client, Event, ServiceError
from rule_detector_client import stream as streaming
from tests.certificates import certificates

WAIT_S = 10.0
"""How long the service goes on, if what must come does not come."""
QUIET_S = 0.05
"""How long it watches for what must not come."""

BLANK, END = b"1\r\n\n\r\n", b"0\r\n\r\n"
FIRED = b'{"actions":[{"type":"match","ruleId":"r","name":"n","priority":1,"notify":false}]}\n'
SILENT = b'{"actions":[]}\n'
TWO_EVENTS = [Event({"a": 1}, 1), Event({"a": 10**30}, 2.5)]


class Connection:
    """The service's end of a stream."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._ends_s = time.monotonic() + WAIT_S
        self.received = b""

    def _read(self, wait_s: float = math.inf) -> bytes:
        self._socket.settimeout(max(0.001, min(wait_s, self._ends_s - time.monotonic())))
        try:
            data = self._socket.recv(1 << 20)
        except ConnectionResetError:
            return b""
        self.received += data
        return data

    def until(self, end: bytes, times: int = 1) -> None:
        """Read until this has come so many times."""
        while self.received.count(end) < times:
            assert self._read(), self.received

    def more(self) -> None:
        """Read what comes next."""
        assert self._read()

    def until_closed(self) -> None:
        while self._read():
            pass

    def stays_quiet(self) -> bool:
        """Return whether nothing comes for a while."""
        try:
            return not self._read(QUIET_S)
        except TimeoutError:
            return True

    def answer(self, *parts: bytes, status: int = 200) -> None:
        """Send the head of an answer, and parts of its body, which is not over."""
        self._socket.sendall(b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n" % status)
        self.go_on(*parts)

    def go_on(self, *parts: bytes) -> None:
        """Send more parts of the body of an answer."""
        for part in parts:
            self._socket.sendall(b"%x\r\n%b\r\n" % (len(part), part))

    def end(self, *, well: bool = True) -> None:
        """End the answer, or else only the connection."""
        if well:
            self._socket.sendall(END)
        self._socket.shutdown(socket.SHUT_WR)

    def lines(self) -> list[Any]:
        """Return the events that have come."""
        _, _, body = self.received.partition(b"\r\n\r\n")
        lines = [line for line in body.split(b"\r\n") if line.endswith(b"}\n")]
        return [json.loads(line) for line in lines]


Play = Callable[[Connection], object]


@contextmanager
def service(play: Play, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Yield the address of a service that has one connection. What it finds wrong is raised at the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:
        listener.settimeout(WAIT_S)

        def serve() -> None:
            connected, _ = listener.accept()
            connected.settimeout(WAIT_S)
            if context:
                connected = context.wrap_socket(connected, server_side=True)
            with connected:
                play(Connection(connected))

        served = thread.submit(serve)
        yield f"{'https' if context else 'http'}://127.0.0.1:{listener.getsockname()[1]}/base"
        served.result()


Stream = Callable[[str, Iterable[Event], list[int]], None]
"""Streams events, and appends to a list how many rules fired at each."""


def _sync(url: str, events: Iterable[Event], fired: list[int]) -> None:
    with Client(url, "rd_x") as client:
        for result in client.stream("d", events):
            fired += [len(result.actions)]


def _async(url: str, events: Iterable[Event], fired: list[int]) -> None:
    async def source() -> AsyncIterator[Event]:
        given = iter(events)
        while (event := await asyncio.to_thread(next, given, None)) is not None:
            yield event

    async def run() -> None:
        async with AsyncClient(url, "rd_x") as client, asyncio.timeout(2 * WAIT_S):
            async for result in client.stream("d", source()):
                fired.extend([len(result.actions)])

    asyncio.run(run())


@pytest.fixture(params=[_sync, _async], ids=["sync", "async"])
def stream(request: pytest.FixtureRequest) -> Stream:
    return request.param


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank lines come quickly."""
    monkeypatch.setattr(streaming, "_IDLE_S", 0.01)


def streamed(stream: Stream, url: str, events: Iterable[Event]) -> tuple[list[int], Exception | None]:
    """Return how many rules fired at each event, and how the stream failed."""
    fired: list[int] = []
    try:
        stream(url, events, fired)
    except (ServiceError, LookupError, OSError) as failure:
        return fired, failure
    return fired, None


def failed(stream: Stream, url: str, events: Iterable[Event]) -> tuple[list[int], ServiceError]:
    fired, failure = streamed(stream, url, events)
    assert isinstance(failure, ServiceError), failure
    return fired, failure


@pytest.mark.usefixtures("hasty")
def test_each_event_is_a_line_and_each_line_of_the_answer_a_result(stream: Stream) -> None:
    def play(there: Connection) -> None:
        there.until(END)
        assert there.stays_quiet(), "after the end nothing may follow"
        # Lines and parts are cut at different places.
        there.answer(FIRED + SILENT + FIRED[:9], FIRED[9:], b'{"done":3}\n')
        there.until_closed()
        head = there.received.partition(b"\r\n\r\n")[0].decode().split("\r\n")
        assert head[0] == "POST /base/api/detectors/d/evaluate/batch HTTP/1.1"
        assert "Authorization: Bearer rd_x" in head
        assert "Content-Type: application/x-ndjson" in head
        assert there.lines() == [
            {"event": {"fields": {"a": 1}, "timestamp_ms": 1}},
            {"event": {"fields": {"a": 10**30}, "timestamp_ms": 2.5}},
        ]

    with service(play) as url:
        assert streamed(stream, url, TWO_EVENTS) == ([1, 0, 1], None)


@pytest.mark.usefixtures("hasty")
def test_blank_lines_are_sent_while_no_event_comes(stream: Stream) -> None:
    go = threading.Event()

    def events() -> Iterator[Event]:
        yield from TWO_EVENTS
        go.wait(WAIT_S)

    def play(there: Connection) -> None:
        there.until(BLANK, times=3)
        go.set()
        there.until(END)
        there.answer(SILENT, SILENT, b'{"done":2}\n')
        assert len(there.lines()) == 2

    with service(play) as url:
        assert streamed(stream, url, events()) == ([0, 0], None)


def test_no_blank_line_follows_the_end_even_if_it_was_due_at_that_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone_by = threading.Event()

    class Missed(threading.Event):
        """Is said not to have been set in time, once."""

        told = False

        def wait(self, timeout: float | None = None) -> bool:
            super().wait(WAIT_S)
            if self.told:
                gone_by.set()
            self.told, told = True, self.told
            return told

    def play(there: Connection) -> None:
        there.until(END)
        gone_by.wait(WAIT_S)
        there.answer(b'{"done":0}\n')
        there.until_closed()
        assert there.received.endswith(END)

    with service(play) as url:
        monkeypatch.setattr(streaming.threading, "Event", Missed)
        assert streamed(_sync, url, []) == ([], None)


@pytest.mark.parametrize(
    ("parts", "code", "said"),
    [
        (
            [
                b'{"success":false,\n"errors":[{"code":1200,"message":"no detector"},',
                b'\n{"code":1,"message":"and more"}],\n"messages":[],\n"result":{}}\n',
            ],
            1200,
            r"1200 no detector\n1 and more",
        ),
        ([b"<html>\n</html>"], None, "http://127.0.0.1:[0-9]+/base answered 404"),
    ],
)
def test_a_refused_stream_says_why(stream: Stream, parts: list[bytes], code: int | None, said: str) -> None:
    def play(there: Connection) -> None:
        there.until(b"\r\n\r\n")
        there.answer(*parts, status=404)
        there.end()
        there.until_closed()

    with service(play) as url:
        fired, error = failed(stream, url, TWO_EVENTS)
    assert (fired, error.code, error.status, error.in_doubt) == ([], code, 404, False)
    with pytest.raises(ServiceError, match=said):
        raise error


@pytest.mark.parametrize("ends", [True, False])
def test_a_stream_that_is_cut_off_gives_its_results_first_and_may_have_been_evaluated(
    stream: Stream, *, ends: bool
) -> None:
    go = threading.Event()

    def events() -> Iterator[Event]:
        yield from TWO_EVENTS
        go.wait(WAIT_S)

    def play(there: Connection) -> None:
        there.until(b"}\n\r\n", times=2)
        there.answer(FIRED, SILENT[:-1])
        there.end(well=ends)
        # Until the client has seen it.
        there.until_closed()
        go.set()

    with service(play) as url:
        fired, error = failed(stream, url, events())
    assert (fired, error.code, error.status, error.in_doubt) == ([1], None, None, True)
    assert "was cut off" in str(error)


@pytest.mark.parametrize(("codes", "in_doubt"), [([1400], False), ([1500], True), ([1502, 1400], True)])
def test_a_stream_that_the_service_ends_early_says_why(
    stream: Stream, codes: list[int], *, in_doubt: bool
) -> None:
    closing = {"done": 1, "errors": [{"code": code, "message": "the reason"} for code in codes]}

    def play(there: Connection) -> None:
        there.until(END)
        there.answer(FIRED, json.dumps(closing).encode() + b"\n")
        there.until_closed()

    with service(play) as url:
        fired, error = failed(stream, url, TWO_EVENTS)
    assert (fired, [entry.code for entry in error.entries], error.in_doubt) == ([1], codes, in_doubt)
    assert str(error) == "\n".join(f"{code} the reason" for code in codes)


@pytest.mark.parametrize("line", [b"<html>\n", b"\n", b'{"newer": 1}\n'])
def test_a_stream_with_something_else_gives_its_results_first_and_may_have_been_evaluated(
    stream: Stream, line: bytes
) -> None:
    def play(there: Connection) -> None:
        there.until(END)
        there.answer(FIRED, line)
        there.until_closed()

    with service(play) as url:
        fired, error = failed(stream, url, TWO_EVENTS)
    assert (fired, error.code, error.in_doubt) == ([1], None, True)
    assert "something else" in str(error)


@pytest.mark.parametrize("failure", [LookupError("broken"), FileNotFoundError("the recording")], ids=repr)
def test_what_the_source_of_the_events_raises_is_raised_and_ends_the_stream_at_once(
    stream: Stream, failure: Exception
) -> None:
    def events() -> Iterator[Event]:
        yield from TWO_EVENTS
        raise failure

    def play(there: Connection) -> None:
        there.until_closed()
        assert len(there.lines()) == 2
        assert not there.received.endswith(END), "the service must not take it for whole"

    with service(play) as url:
        assert streamed(stream, url, events()) == ([], failure)


LARGE = Event(msgspec.Raw(b'{"a":"' + b"x" * (16 << 20) + b'"}'), 0)
"""More than buffers hold, so that sending it does not end while nobody reads."""


class Unread:
    """Answers an event that is still being sent, and reads it when the client has left."""

    def __init__(self) -> None:
        self.left = threading.Event()
        self.closed = threading.Event()

    def __call__(self, there: Connection) -> None:
        there.until(b"x" * 1_000)
        # Until the buffers are full.
        time.sleep(QUIET_S)
        there.answer(FIRED)
        assert self.left.wait(WAIT_S)
        there.until_closed()
        self.closed.set()


def test_a_stream_that_is_left_has_no_thread_and_no_socket_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Unread()
    made: list[socket.socket] = []
    connect = socket.create_connection

    def recorded(*to: Any) -> socket.socket:
        made.append(connect(*to))
        return made[-1]

    monkeypatch.setattr(socket, "create_connection", recorded)
    with service(play) as url:
        before = set(threading.enumerate())
        results = Client(url, "rd_x").stream("d", itertools.repeat(LARGE))
        assert len(next(results).actions) == 1
        threads = set(threading.enumerate()) - before
        assert threads
        assert all(thread.daemon for thread in threads), "a program that ends does not wait for them"
        assert made[0].gettimeout() is None, "the service may be silent for any time"
        results.close()  # type: ignore[attr-defined]
        for thread in threads:
            thread.join(WAIT_S)
        assert not any(thread.is_alive() for thread in threads)
        assert made[0].fileno() == -1
        play.left.set()


def test_an_asynchronous_stream_that_is_left_has_no_task_and_no_socket_any_more() -> None:
    play = Unread()

    async def leave(url: str) -> set[asyncio.Task[Any]]:
        async with AsyncClient(url, "rd_x") as client, asyncio.timeout(WAIT_S):
            results = client.stream("d", itertools.repeat(LARGE))
            assert len((await anext(results)).actions) == 1
            await results.aclose()  # type: ignore[attr-defined]
            return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    async def run() -> None:
        with service(play) as url:
            assert await leave(url) == set()
            play.left.set()
            # The end of the loop would close the socket.
            assert await asyncio.to_thread(play.closed.wait, 2 * WAIT_S)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("url", "to", "encrypted"),
    [
        ("http://rules.example", ("rules.example", 80), False),
        ("http://rules.example:8080", ("rules.example", 8080), False),
        ("https://rules.example", ("rules.example", 443), True),
        ("https://rules.example:8443/", ("rules.example", 8443), True),
    ],
)
def test_the_address_says_the_port_and_whether_to_encrypt(
    stream: Stream, url: str, to: tuple[str, int], monkeypatch: pytest.MonkeyPatch, *, encrypted: bool
) -> None:
    asked: list[tuple[str, int]] = []
    contexts: list[ssl.SSLContext | None] = []

    def connect(address: tuple[str, int], _: float) -> None:
        asked.append(address)
        raise ConnectionRefusedError("nobody is there")

    async def open_connection(host: str, port: int, *, ssl: ssl.SSLContext | None) -> None:
        contexts.append(ssl)
        connect((host, port), 0)

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    _, error = failed(stream, url, [])
    assert str(error).startswith(f"no service answers at {url}")
    assert (error.sent, error.in_doubt) == (False, False)
    assert asked == [to]
    assert [bool(context) for context in contexts] in ([], [encrypted])


def test_a_stream_can_be_encrypted(stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = certificates(tmp_path / "certificates")
    monkeypatch.setenv("SSL_CERT_FILE", files["RAY_TLS_CA_CERT"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["RAY_TLS_SERVER_CERT"], files["RAY_TLS_SERVER_KEY"])

    def play(there: Connection) -> None:
        there.until(END)
        there.answer(FIRED, b'{"done":1}\n')

    with service(play, context) as url:
        assert streamed(stream, url, TWO_EVENTS[:1]) == ([1], None)


@pytest.mark.slow
def test_an_encrypted_stream_is_sent_and_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL breaks a connection that one thread reads while another sends."""
    files = certificates(tmp_path / "certificates")
    monkeypatch.setenv("SSL_CERT_FILE", files["RAY_TLS_CA_CERT"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["RAY_TLS_SERVER_CERT"], files["RAY_TLS_SERVER_KEY"])
    count = 20_000

    def play(there: Connection) -> None:
        there.until(b"\r\n\r\n")
        there.answer()
        answered = 0
        while answered < count:
            more = there.received.count(b"}\n")
            # The end of a line may come in two pieces.
            there.received = there.received[-1:]
            answered += more
            if more:
                there.go_on(FIRED * more)
            if answered < count:
                there.more()
        there.go_on(b'{"done":%d}\n' % count)
        there.until_closed()

    with service(play, context) as url:
        fired, error = streamed(_sync, url, [Event({"a": 1}, number) for number in range(count)])
    assert (len(fired), error) == (count, None)
