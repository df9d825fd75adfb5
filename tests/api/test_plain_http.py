"""The short way of plain evaluations, beside the way of all others: nobody can tell them apart."""

import asyncio
import re
from typing import Any

import h11
import pytest
from hypercorn.asyncio.task_group import TaskGroup
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.events import Closed, Event, RawData
from hypercorn.typing import ConnectionState

from api.http.app import create_app
from api.schema.envelope import Headers
from api.server import connection as connections
from api.server import http1 as plain_http
from api.server import hypercorn_config as server
from api.server.fast_heads import read_plain
from api.server.response_headers import Heads
from api.settings import Settings
from engine.evaluation.wire.events import Answer, Done
from engine.runtime.contract.operations import Operation
from tests.api.scripted import DETECTOR, NO_ACTIONS, TOKEN, ScriptedFleet
from tests.api.wire import EVALUATE, EVENT, Connection, Wire, chunked, request, served

PLAIN = request("POST", EVALUATE, EVENT, token=TOKEN)
HEAD, _, _ = PLAIN.partition(EVENT)
LARGE = (PLAIN * 1_000)[:200_000]
"""A body, though it does not look like one."""
LINES = ("Content-Type: application/x-ndjson", "Content-Length: 0")

ASKED = {
    "an evaluation": PLAIN,
    "a batch": request("POST", f"{EVALUATE}/batch", b'{"events":[]}', token=TOKEN),
    "with a key": request("POST", EVALUATE, EVENT, token=TOKEN, headers=("Idempotency-Key: k",)),
    "to stay, as is said": request("POST", EVALUATE, EVENT, token=TOKEN, headers=("Connection: keep-alive",)),
    "no token": request("POST", EVALUATE, EVENT),
    "an unknown token": request("POST", EVALUATE, EVENT, token="rd_other"),
    "an unknown detector": request("POST", f"/api/detectors/{'b' * 32}/evaluate", EVENT, token=TOKEN),
    "another type": request("POST", EVALUATE, EVENT, token=TOKEN, headers=("Content-Type: text/plain",)),
    "an empty body": request("POST", EVALUATE, token=TOKEN, headers=("Content-Length: 0",)),
    "a type that came twice": request(
        "POST", EVALUATE, EVENT, token=TOKEN, headers=("Content-Type: a/b", "Content-Type: application/json")
    ),
    "a wrong key": request("POST", EVALUATE, EVENT, token=TOKEN, headers=("Idempotency-Key: a b",)),
    "lines": request(
        "POST",
        f"{EVALUATE}/batch",
        b"",
        token=TOKEN,
        headers=LINES,
    ),
}


class Looks:
    """What h11 has seen of requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_h11 = 0
        receive_data = h11.Connection.receive_data

        def noted(connection: h11.Connection, data: bytes) -> None:
            self.of_h11 += 1
            receive_data(connection, data)

        monkeypatch.setattr(h11.Connection, "receive_data", noted)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


class Held:
    """Answers that wait until they are let go."""

    def __init__(self, scripted: ScriptedFleet) -> None:
        self.asked = asyncio.Semaphore(0)
        self.go = asyncio.Semaphore(0)
        scripted.answers = self._answer

    async def _answer(self, _: str, operation: Operation) -> Answer:
        self.asked.release()
        await self.go.acquire()
        return Done(b'{"of":%d}' % len(operation.payload))


@pytest.fixture
def held(scripted: ScriptedFleet) -> Held:
    return Held(scripted)


async def result(connection: Connection) -> Any:
    reply = await connection.receive()
    assert reply.status == 200, reply
    return reply.envelope["result"]


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
async def test_the_reply_is_the_same_by_either_way(
    wire: Wire, looks: Looks, asked: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for read in (read_plain, lambda _: None):
        monkeypatch.setattr(plain_http, "read_plain", read)
        connection = await wire.connect()
        raw = b""
        for _ in range(2):
            await connection.send(asked)
            async with asyncio.timeout(5):
                head = await connection.reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            raw += head + await connection.reader.readexactly(int(length[1]) if length else 0)
            if b"connection: close" in head.lower() or length is None:
                break
        said.append(re.sub(rb"(date|x-request-id): [^\r]+", rb"\1: its own", raw))
    assert said[0] == said[1]


async def test_h11_sees_nothing_of_evaluations_that_are_answered_at_once(
    wire: Wire, looks: Looks, scripted: ScriptedFleet
) -> None:
    connection = await wire.connect()
    for _ in range(20):
        assert await result(await connection.send(PLAIN)) == {"actions": []}
    assert looks.of_h11 == 0
    assert len(scripted.operations) == 20
    await (await connection.send(request("GET", token=TOKEN))).receive()
    assert looks.of_h11 > 0


@pytest.mark.parametrize("size", [1, 7, 100, len(EVENT)])
async def test_a_body_may_come_in_pieces(
    wire: Wire, looks: Looks, scripted: ScriptedFleet, size: int
) -> None:
    connection = await wire.connect()
    for number in range(3):
        await connection.send(HEAD)
        for at in range(0, len(EVENT), size):
            # Each comes by itself.
            await asyncio.sleep(0.002)
            await connection.send(EVENT[at : at + size])
        assert await result(connection) == {"actions": []}
        assert scripted.operations[number].payload == EVENT
    assert looks.of_h11 == 0


async def test_a_head_in_pieces_is_read_by_h11_and_what_comes_after_it_is_not(
    wire: Wire, looks: Looks
) -> None:
    connection = await wire.connect()
    for _ in range(3):
        await connection.send(PLAIN[:30])
        await asyncio.sleep(0.02)
        seen = looks.of_h11
        assert await result(await connection.send(PLAIN[30:])) == {"actions": []}
        assert looks.of_h11 > seen
        seen = looks.of_h11
        assert await result(await connection.send(PLAIN)) == {"actions": []}
        assert looks.of_h11 == seen
    headers = ("Transfer-Encoding: chunked",)
    await connection.send(request("POST", EVALUATE, token=TOKEN, headers=headers) + chunked(EVENT))
    assert await result(connection) == {"actions": []}
    assert await result(await connection.send(PLAIN)) == {"actions": []}


@pytest.mark.parametrize("sent", [0, 1, 70_000, 150_000, 199_999])
async def test_what_is_refused_before_its_end_is_read_past(
    wire: Wire, scripted: ScriptedFleet, sent: int
) -> None:
    head = request("POST", EVALUATE, token="rd_other", headers=(f"Content-Length: {len(LARGE)}",))
    connection = await wire.connect()
    await connection.send(head + LARGE[:sent])
    reply = await connection.receive()
    assert reply.codes == [1101]
    # Whatever it looks like, it is no request of its own.
    await connection.send(LARGE[sent:])
    if reply.headers.get("connection") == "close":
        assert await connection.at_end()
    else:
        assert await result(await connection.send(PLAIN)) == {"actions": []}
    assert len(scripted.operations) <= 1


@pytest.mark.parametrize("cut", [0, 1, len(HEAD), len(HEAD) + 3, len(PLAIN)])
async def test_what_is_sent_ahead_waits_for_its_turn(wire: Wire, held: Held, cut: int) -> None:
    connection = await wire.connect()
    await connection.send(PLAIN)
    await held.asked.acquire()
    ahead = PLAIN + PLAIN.replace(EVENT, EVENT.replace(b"0", b"1"))
    await connection.send(ahead[:cut])
    await asyncio.sleep(0.02)
    assert held.asked.locked(), "one at a time is asked"
    held.go.release()
    assert await result(connection) == {"of": len(EVENT)}
    await connection.send(ahead[cut:])
    for _ in range(2):
        held.go.release()
        assert await result(connection) == {"of": len(EVENT)}
    await connection.send(PLAIN)
    held.go.release()
    assert await result(connection) == {"of": len(EVENT)}


@pytest.mark.parametrize(
    "before",
    [
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\nX: a",
        request("POST", EVALUATE, token=TOKEN, headers=("Content-Length: 1000",)),
        request("POST", EVALUATE, token=TOKEN, headers=("Transfer-Encoding: chunked",)) + b"%x\r\n" % 1000,
        b"POS",
        b"GET",
    ],
    ids=["a head", "a body", "a chunk", "a word", "another word"],
)
async def test_what_looks_like_a_request_amid_another_is_none(
    wire: Wire, scripted: ScriptedFleet, before: bytes
) -> None:
    connection = await wire.connect()
    await connection.send(before)
    await asyncio.sleep(0.05)
    await connection.send(PLAIN)
    await asyncio.sleep(0.05)
    assert scripted.operations == []


async def test_a_connection_is_not_idle_amid_a_plain_request_and_is_after_it(
    scripted: ScriptedFleet, held: Held
) -> None:
    settings = Settings(keep_alive_s=0.3)
    async with served(create_app(settings, scripted), settings) as wire:
        connection = await wire.connect()
        await connection.send(PLAIN)
        await asyncio.sleep(0.6)
        held.go.release()
        assert await result(connection) == {"of": len(EVENT)}
        assert await connection.at_end()


async def test_several_in_one_piece_are_as_many(wire: Wire, scripted: ScriptedFleet) -> None:
    connection = await wire.connect()
    events = [EVENT.replace(b"0", b"%d" % number) for number in range(5)]
    asked = [request("POST", EVALUATE, event, token=TOKEN) for event in events]
    asked.insert(3, request("GET", token=TOKEN))
    await connection.send(b"".join(asked))
    for _ in asked:
        assert (await connection.receive()).status == 200
    assert [operation.payload for operation in scripted.operations] == events


@pytest.mark.parametrize("second", ["plain", "by h11", "chunked"])
@pytest.mark.parametrize("lines", [b"\r\n", b"\r\n\r\n", b"\r\n" * 2_000])
@pytest.mark.parametrize("cut", [None, 0, 1, 2, 3])
async def test_empty_lines_before_a_request_are_ignored(
    wire: Wire, scripted: ScriptedFleet, second: str, lines: bytes, cut: int | None
) -> None:
    chunks = request("POST", EVALUATE, token=TOKEN, headers=("Transfer-Encoding: chunked",)) + chunked(EVENT)
    by_h11 = request("POST", EVALUATE, EVENT, token=TOKEN, headers=("Expect: nothing",))
    asked = {"plain": PLAIN, "by h11": by_h11, "chunked": chunks}[second]
    connection = await wire.connect()
    for before in (b"", asked, PLAIN):
        sent = before + lines + asked
        # Everything in one piece, or in two, with a pause between them.
        if cut is not None:
            await connection.send(sent[: len(before) + cut])
            await asyncio.sleep(0.02)
        await connection.send(sent[0 if cut is None else len(before) + cut :])
        for _ in range(1 + bool(before)):
            assert await result(connection) == {"actions": []}
    assert len(scripted.operations) == 5


async def test_an_empty_line_after_each_body_costs_no_look_of_h11(wire: Wire, looks: Looks) -> None:
    connection = await wire.connect()
    for _ in range(3):
        assert await result(await connection.send(PLAIN + b"\r\n")) == {"actions": []}
    assert looks.of_h11 == 0


@pytest.mark.parametrize("before", [b"\n", b"\r", b"\r\r\n", b" \r\n", b"\r\nx\r\n"])
async def test_other_lines_before_a_request_are_refused(
    wire: Wire, scripted: ScriptedFleet, before: bytes
) -> None:
    connection = await wire.connect()
    assert (await (await connection.send(before + PLAIN)).receive()).status == 400
    assert await connection.at_end()
    assert scripted.operations == []


@pytest.mark.parametrize("read", [read_plain, lambda _: None], ids=["plain", "by h11"])
async def test_an_answer_ahead_of_the_end_of_the_body_is_the_last(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever forgets to read a body must not have its rest taken for the next request."""
    monkeypatch.setattr(plain_http, "read_plain", read)
    async with asyncio.timeout(5), TaskGroup(asyncio.get_running_loop()) as tasks:
        bare = Bare(tasks, reads=False)
        bare.go.set()
        await bare.http.handle(RawData(HEAD + EVENT[:3]))
        await bare.tried.wait()
        # h11, where it has seen the request, knows itself that the connection is not to be used again.
        assert bare.at_once is (read is not read_plain)
        await bare.http.handle(RawData(PLAIN))
    assert bare.asked == 1


async def test_what_comes_before_the_reply_is_taken_waits_for_it(wire: Wire, scripted: ScriptedFleet) -> None:
    large = b'{"actions":["' + b"x" * 5_000_000 + b'"]}'

    async def answer(_: str, operation: Operation) -> Answer:
        return Done(large) if len(scripted.operations) == 1 else NO_ACTIONS

    scripted.answers = answer
    connection = await wire.connect()
    await connection.send(PLAIN)
    await asyncio.sleep(0.05)
    await connection.send(PLAIN)
    await asyncio.sleep(0.05)
    assert len(scripted.operations) == 1
    assert len(str(await result(connection))) > 5_000_000
    assert await result(connection) == {"actions": []}


async def test_a_reply_after_which_the_connection_ends_says_so(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    reply = plain_http.PlainHttp.reply

    async def closing(http: plain_http.PlainHttp, status: int, headers: Headers, body: bytes) -> bool:
        said.append(await reply(http, status, (*headers, (b"connection", b"close")), body))
        return said[-1]

    monkeypatch.setattr(plain_http.PlainHttp, "reply", closing)
    connection = await wire.connect()
    answer = await (await connection.send(PLAIN)).receive()
    assert (answer.status, answer.headers["connection"], said) == (200, "close", [True])
    assert await connection.at_end()


async def test_a_caller_who_goes_amid_a_plain_request_leaves_nothing(wire: Wire, held: Held) -> None:
    connection = await wire.connect()
    await connection.send(PLAIN)
    await held.asked.acquire()
    await connection.close()
    assert await wire.comes_to_rest()
    held.go.release()


class Bare:
    """A connection without a socket, to an application that answers when it is let go."""

    def __init__(self, tasks: TaskGroup, *, reads: bool = True) -> None:
        self.sent: list[Event] = []
        self.at_once: bool | None = None
        """Whether the answer was sent in one go."""
        self.tried = asyncio.Event()
        self._reads = reads
        self.asked = 0
        self.go = asyncio.Event()
        self.back = asyncio.Event()
        """Lets the application come back once it has answered."""
        self.back.set()
        self.context = WorkerContext(None)
        self.state = ConnectionState({})
        config = server.server_config(Settings())
        self.http = plain_http.PlainHttp(
            self._app, config, self.context, tasks, self.state, False, None, None, self._send
        )
        self.http.send_at_once = self._send_at_once
        self.http.is_over = lambda: Closed() in self.sent
        self.http.is_last = self.context.terminated.is_set

    async def _send(self, event: Event) -> None:
        self.sent.append(event)

    async def _send_at_once(self, data: bytes) -> None:
        self.sent.append(RawData(data))

    async def _app(self, scope: Any, receive: Any, *_: object) -> None:
        self.asked += 1
        await self.go.wait()
        while self._reads and (await receive()).get("more_body"):
            pass
        self.at_once = await self.http.reply(200, (), b"done")
        self.tried.set()
        assert self.at_once or not self._reads
        await self.back.wait()


@pytest.mark.parametrize("read", [read_plain, lambda _: None], ids=["plain", "by h11"])
@pytest.mark.parametrize("data", [PLAIN, PLAIN * 2, PLAIN + b"P", HEAD])
async def test_what_comes_once_the_connection_is_closing_is_nobody_s(
    data: bytes, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_http, "read_plain", read)
    async with asyncio.timeout(5), TaskGroup(asyncio.get_running_loop()) as tasks:
        bare = Bare(tasks)
        bare.http.is_over = lambda: True
        bare.go.set()
        await bare.http.handle(RawData(data))
    assert (bare.sent[-1], bare.asked) == (Closed(), 0)


@pytest.mark.parametrize("read", [read_plain, lambda _: None], ids=["plain", "by h11"])
async def test_what_was_sent_ahead_does_not_hold_up_the_end(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_http, "read_plain", read)
    async with asyncio.timeout(5), TaskGroup(asyncio.get_running_loop()) as tasks:
        bare = Bare(tasks)
        await bare.http.handle(RawData(PLAIN))
        ahead = asyncio.ensure_future(bare.http.handle(RawData(PLAIN)))
        await asyncio.sleep(0.01)
        assert not ahead.done()
        await bare.context.terminated.set()
        bare.go.set()
        await ahead
    assert (bare.sent[-1], bare.asked) == (Closed(), 1)


@pytest.mark.parametrize("ends", [True, False])
async def test_what_comes_between_an_answer_and_its_end_is_taken_though_the_service_ends(
    *, ends: bool
) -> None:
    """The answer did not say that it was the last; the next one does."""
    async with asyncio.timeout(5), TaskGroup(asyncio.get_running_loop()) as tasks:
        bare = Bare(tasks)
        bare.go.set()
        bare.back.clear()
        await bare.http.handle(RawData(PLAIN))
        while not any(isinstance(event, RawData) for event in bare.sent):  # noqa: ASYNC110 -- no event for it
            await asyncio.sleep(0)
        ahead = asyncio.ensure_future(bare.http.handle(RawData(PLAIN)))
        await asyncio.sleep(0.01)
        assert not ahead.done()
        if ends:
            await bare.context.terminated.set()
        bare.back.set()
        await ahead
    assert bare.asked == 2
    assert (Closed() in bare.sent) == ends


@pytest.mark.parametrize("ends_it", ["the caller", "the service"])
async def test_a_caller_who_takes_nothing_leaves_nothing(
    wire: Wire, scripted: ScriptedFleet, ends_it: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def large(_: str, operation: Operation) -> Answer:
        return Done(b'{"actions":["' + b"x" * 20_000_000 + b'"]}')

    if ends_it == "the service":
        monkeypatch.setattr(connections, "STALLED_S", 0.2)
    scripted.answers = large
    opened = []
    for ahead in (b"", PLAIN, PLAIN * 2, PLAIN * 3, PLAIN * 1_000, request("GET", token=TOKEN) * 3_000):
        connection = await wire.connect()
        opened.append(connection)
        await connection.send(PLAIN)
        await asyncio.sleep(0.1)
        # Not all of the last two fits into what lies between the two ends.
        connection.writer.write(ahead)
    await asyncio.sleep(0.1 if ends_it == "the caller" else 1.5)
    for connection in opened:
        connection.writer.transport.abort()
    assert await wire.comes_to_rest()


@pytest.mark.parametrize("status", [200, 404, 503])
@pytest.mark.parametrize("headers", [(), ((b"retry-after", b"1"), (b"www-authenticate", b"Bearer"))])
def test_heads_are_as_h11_sends_them(status: int, headers: Headers) -> None:
    heads = Heads()
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(request("GET", f"/api/detectors/{DETECTOR}"))
    while not isinstance(connection.next_event(), h11.EndOfMessage):
        pass
    sent = connection.send(heads.of(status, headers, 3))
    assert sent == heads.bytes_of(status, headers, 3)


def test_nothing_is_kept_of_what_comes_behind_the_last_request() -> None:
    connection = plain_http.LenientConnection(h11.SERVER)
    connection.receive_data(request("POST", EVALUATE, EVENT, token=TOKEN, headers=("Connection: close",)))
    while connection.their_state is not h11.MUST_CLOSE:
        connection.next_event()
    for _ in range(100):
        connection.receive_data(b"x" * 65_536)
        assert connection.next_event() is h11.NEED_DATA
    assert connection.trailing_data == (b"", False)
    connection.receive_data(b"")
    assert isinstance(connection.next_event(), h11.ConnectionClosed)
