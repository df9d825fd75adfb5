"""Each way of being slow has its end, while the caller is there still; a table in api/WIRE.md has them."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from api.server import connection, sender
from tests.api.conftest import BOOTSTRAP
from tests.api.leaks import World, in_each_loop, world
from tests.api.streaming import NDJSON, line
from tests.api.wire import Connection, request
from tests.waiting_clock import WaitingLoop

CALLERS = 12
"""How many callers of each kind there are, all at the same time."""
FOR_EVER_S = 1_000
CHUNKED = "Transfer-Encoding: chunked"
BYTE = b"1\r\n{\r\n"


class Slow(NamedTuple):
    """What a caller sends at once, what he then sends for as long as he is let, and what he is told."""

    first: bytes
    then: bytes
    told: tuple[bytes, ...]
    """Each of them is somewhere in what comes back, which is nothing else where there are none."""


def post(path: str = "/evaluate", *headers: str, token: str | None = BOOTSTRAP) -> bytes:
    return request(path=f"/api/detectors/DETECTOR{path}", token=token, headers=headers)


OVERDUE = (b"HTTP/1.1 504", b'"code":1502')
REFUSED = (b"HTTP/1.1 401", b'"code":1100')

ENDS: dict[str, tuple[str, Slow]] = {
    "no byte": ("head", Slow(b"", b"", ())),
    "half a head": ("head", Slow(post()[:30], b"", ())),
    "a head that trickles": ("head", Slow(b"POST /api/x", b"x", ())),
    "header lines that trickle": ("head", Slow(post()[:-2], b"A: b\r\n", ())),
    "a second head that trickles": ("head", Slow(request("GET", "/healthz"), b"x", (b"HTTP/1.1 200",))),
    "no second request": ("idle", Slow(request("GET", "/healthz"), b"", (b"HTTP/1.1 200",))),
    "no body": ("deadline", Slow(post("/evaluate", "Content-Length: 900"), b"", OVERDUE)),
    "a body that trickles": ("deadline", Slow(post("/evaluate", "Content-Length: 900"), b"{", OVERDUE)),
    "chunks that trickle": ("deadline", Slow(post("/evaluate", CHUNKED), BYTE, OVERDUE)),
    "a batch that trickles": ("deadline", Slow(post("/evaluate/batch", CHUNKED), BYTE, OVERDUE)),
    "a body that trickles, on the slow path": (
        "deadline",
        Slow(request(token=BOOTSTRAP, headers=(CHUNKED,)), BYTE, OVERDUE),
    ),
    "a body that nobody wants and that trickles": (
        "deadline",
        Slow(request("GET", "/healthz", headers=(CHUNKED,)), BYTE, OVERDUE),
    ),
    "who asks first, and sends no body": (
        "deadline",
        Slow(post("/evaluate", "Expect: 100-continue", "Content-Length: 9"), b"", (b"100", *OVERDUE)),
    ),
    "a silent stream": ("deadline", Slow(post("/evaluate/batch", CHUNKED, NDJSON), b"", (b'"code":1502',))),
    "a stream of a line that trickles": (
        "deadline",
        Slow(
            post("/evaluate/batch", CHUNKED, NDJSON) + b"%x\r\n%s\r\n" % (len(line()), line()),
            BYTE,
            (b'{"actions":[]}', b'"done":1', b'"code":1502'),
        ),
    ),
    "a refused body that does not come": (
        "discard",
        Slow(post("/evaluate", CHUNKED, token=None), b"", REFUSED),
    ),
    "a refused body that trickles": ("discard", Slow(post("/evaluate", CHUNKED, token=None), BYTE, REFUSED)),
    "a refused stream that trickles": (
        "discard",
        Slow(post("/evaluate/batch", CHUNKED, NDJSON, token=None), BYTE, REFUSED),
    ),
}
"""What callers do, each with the one time-out that ends it, and the conversation."""


def short_s() -> float:
    """Return a time-out that is short, yet long enough for callers that are not slow."""
    # The clock of the other loop runs on while a busy machine keeps it from working.
    return 0.3 if isinstance(asyncio.get_running_loop(), WaitingLoop) else 0.6


@asynccontextmanager
async def hasty(
    folder: Path, monkeypatch: pytest.MonkeyPatch, time_out: str, idle_s: float = FOR_EVER_S
) -> AsyncIterator[World]:
    """Yield a world in which one time-out is short, and no other one ends."""
    named = {
        "head": idle_s,
        "idle": idle_s,
        "deadline": FOR_EVER_S,
        "discard": FOR_EVER_S,
        "stalled": FOR_EVER_S,
    }
    named[time_out] = short_s()
    monkeypatch.setattr(connection, "HEAD_S", named["head"])
    monkeypatch.setattr(sender, "STALLED_S", named["stalled"])
    monkeypatch.setattr(connection, "LET_GO_S", FOR_EVER_S)
    monkeypatch.setattr(connection, "DISCARD_S", named["discard"])
    monkeypatch.setattr(connection, "DISCARD_S_MIN", 0.1)
    # A detector that is slow to come up on a busy machine is none of this.
    chosen = {"deadline_s": named["deadline"], "keep_alive_s": named["idle"]}
    async with world(folder, patient=True, **chosen) as given:
        yield given


async def converse(given: World, slow: Slow) -> bytes:
    """Return all that the server sends to a slow caller until it closes."""
    caller = Connection(*await asyncio.open_connection("127.0.0.1", given.wire.port))
    writer = caller.writer
    writer.write(slow.first.replace(b"DETECTOR", given.detector.encode()))

    async def trickle() -> None:
        with suppress(OSError):
            while slow.then:
                await asyncio.sleep(0.02)
                writer.write(slow.then)
                await writer.drain()

    trickling = asyncio.create_task(trickle())
    heard = b""
    with suppress(OSError):
        while came := await caller.reader.read(65_536):
            heard += came
    trickling.cancel()
    await asyncio.wait([trickling])
    writer.transport.abort()
    return heard


@pytest.mark.parametrize("time_out", sorted({time_out for time_out, _ in ENDS.values()}))
@in_each_loop
async def test_whoever_is_slow_is_told_and_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, time_out: str
) -> None:
    ended = {what: slow for what, (ends, slow) in ENDS.items() if ends == time_out}
    uncut: set[str] = set()

    async def hears(given: World, what: str) -> bytes:
        uncut.add(what)
        heard = await converse(given, ended[what])
        uncut.discard(what)
        return heard

    async with hasty(tmp_path, monkeypatch, time_out) as given:
        before = await given.at_rest()
        callers = [what for what in ended for _ in range(CALLERS)]
        try:
            async with asyncio.timeout(30):
                heard = await asyncio.gather(*(hears(given, what) for what in callers))
        except TimeoutError:
            pytest.fail(f"not cut: {uncut}")
        for what, each in zip(callers, heard, strict=True):
            told = ended[what].told
            assert all(part in each for part in told) if told else each == b"", (what, each)
        await given.comes_back_to(before)

    assert caplog.records == [], "nobody can fill the log"


@in_each_loop
async def test_an_empty_line_after_a_request_is_not_the_beginning_of_a_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hasty(tmp_path, monkeypatch, "head") as given:
        caller = Connection(*await asyncio.open_connection("127.0.0.1", given.wire.port))
        await (await caller.send(request("GET", "/healthz"))).receive()
        await caller.send(b"\r\n")
        await asyncio.sleep(2 * short_s())
        assert (await (await caller.send(request("GET", "/healthz"))).receive()).status == 200
        await caller.close()


LAST = request("GET", "/healthz", headers=("Connection: close",))
BAD_LINES = b"%x\r\n%s\r\n" % (20_000, b"{\n" * 10_000)

STREAMED = "results of a stream"
UNREAD: dict[str, tuple[bytes, bytes]] = {
    "replies that wait while it is idle": (request("GET", "/openapi.json"), b""),
    "replies that wait when it is to end": (request("GET", "/openapi.json"), LAST),
    "replies behind which there is no HTTP": (request("GET", "/openapi.json"), b"\0\r\n\r\n"),
    STREAMED: (post("/evaluate/batch", CHUNKED, NDJSON), BAD_LINES * 4),
}
"""What is asked again and again by callers who take no replies, and what comes behind it."""


async def deaf(given: World) -> Connection:
    """Return a connection that accepts almost nothing of what is sent to it."""
    plug = socket.socket()
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    plug.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plug, ("127.0.0.1", given.wire.port))
    caller = Connection(*await asyncio.open_connection(sock=plug))
    caller.writer.transport.pause_reading()
    return caller


@pytest.mark.storm
@pytest.mark.parametrize(
    ("asked", "sender_waits"),
    [*((asked, True) for asked in UNREAD), *((asked, False) for asked in UNREAD if asked != STREAMED)],
)
@in_each_loop
async def test_whoever_takes_no_replies_is_cut(
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    asked: str,
    sender_waits: bool,
) -> None:
    if not sender_waits:
        # How much the socket takes is the system's affair, so any amount may be left at the connection's end.
        monkeypatch.setattr(sender, "_UNSENT_BYTES", 1_000_000_000)
    again, then = (part.replace(b"DETECTOR", b"%s") for part in UNREAD[asked])

    async with hasty(tmp_path, monkeypatch, "stalled", idle_s=0.3) as given:
        before = await given.at_rest()
        callers = []
        for count in (1, 1, 1) if asked == STREAMED else range(1, 31):
            # Some of it fits the buffers of the socket, some what the server keeps, and some neither.
            caller = await deaf(given)
            caller.writer.write(again.replace(b"%s", given.detector.encode()) * count + then)
            callers.append(caller)
        # All are connected by now; let the server have seen them.
        await asyncio.sleep(0.1)
        async with asyncio.timeout(60):
            while len(given.limit):  # noqa: ASYNC110 -- there is no event for it
                await asyncio.sleep(0.02)
        for caller in callers:
            caller.writer.transport.abort()
        await given.comes_back_to(before)

    assert caplog.records == [], "nobody can fill the log"


@in_each_loop
async def test_what_runs_on_after_the_end_of_its_connection_is_cancelled_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with hasty(tmp_path, monkeypatch, "head") as given:
        monkeypatch.setattr(connection, "LET_GO_S", 0.1)
        before = await given.at_rest()

        async def hangs(*_: object) -> None:
            await asyncio.sleep(FOR_EVER_S)

        monkeypatch.setattr("api.http.pipeline.FastPath.answer", hangs)
        monkeypatch.setattr("api.http.request.timeout.RequestTimeout.start", lambda _: None)
        caller = Connection(*await asyncio.open_connection("127.0.0.1", given.wire.port))
        await caller.send(request("GET", "/healthz"))
        await asyncio.sleep(0.05)
        await caller.close()
        await given.comes_back_to(before)

    assert [record.getMessage() for record in caplog.records] == [
        "cancelled a request that ran on for 0.1 s after its connection ended"
    ]
