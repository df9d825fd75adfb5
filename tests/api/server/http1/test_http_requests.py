"""Requests on one connection: in pieces, one behind the other, and with whatever stands between them."""

import asyncio
from typing import Any

import pytest

from api.http.app import Application
from api.server import sender
from api.server.connection import Connection as Served
from api.server.limits import AHEAD_BYTES_MAX, READ_BYTES, UNCOUNTED_BYTES, ConnectionLimit
from api.settings import Settings
from engine.evaluation.wire.events import Answer, Done
from engine.runtime.contract.requests.operations import Operation
from tests.api.scripted import NO_ACTIONS, TOKEN, ScriptedBackend
from tests.api.wire import EVALUATE, EVENT, Connection, Wire, chunked, request, served

PLAIN = request("POST", EVALUATE, EVENT, token=TOKEN)
HEAD, _, _ = PLAIN.partition(EVENT)
LARGE = (PLAIN * 1_000)[:200_000]
"""A body, though it does not look like one."""


class Held:
    """Answers that wait until they are let go."""

    def __init__(self, scripted: ScriptedBackend) -> None:
        self.asked = asyncio.Semaphore(0)
        self.go = asyncio.Semaphore(0)
        scripted.answers = self._answer

    async def _answer(self, _: str, operation: Operation) -> Answer:
        self.asked.release()
        await self.go.acquire()
        return Done(b'{"of":%d}' % len(operation.payload))


@pytest.fixture
def held(scripted: ScriptedBackend) -> Held:
    return Held(scripted)


async def result(connection: Connection) -> Any:
    reply = await connection.receive()
    assert reply.status == 200, reply
    return reply.envelope["result"]


async def test_a_head_may_come_in_pieces(wire: Wire) -> None:
    connection = await wire.connect()
    for cut in (1, 30, len(HEAD) - 3, len(HEAD) - 1, len(HEAD)):
        await connection.send(PLAIN[:cut])
        await asyncio.sleep(0.02)
        assert await result(await connection.send(PLAIN[cut:])) == {"actions": []}
    headers = ("Transfer-Encoding: chunked",)
    await connection.send(request("POST", EVALUATE, token=TOKEN, headers=headers) + chunked(EVENT))
    assert await result(connection) == {"actions": []}
    assert await result(await connection.send(PLAIN)) == {"actions": []}


@pytest.mark.parametrize("sent", [0, 1, 70_000, 150_000, 199_999])
async def test_what_is_refused_before_its_end_is_read_past(
    wire: Wire, scripted: ScriptedBackend, sent: int
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


async def test_a_connection_is_not_idle_amid_a_plain_request_and_is_after_it(
    scripted: ScriptedBackend, held: Held
) -> None:
    settings = Settings(keep_alive_s=0.3)
    async with served(Application(settings, scripted), settings) as wire:
        connection = await wire.connect()
        await connection.send(PLAIN)
        await asyncio.sleep(0.6)
        held.go.release()
        assert await result(connection) == {"of": len(EVENT)}
        assert await connection.at_end()


async def test_several_in_one_piece_are_as_many(wire: Wire, scripted: ScriptedBackend) -> None:
    connection = await wire.connect()
    events = [EVENT.replace(b"0", b"%d" % number) for number in range(5)]
    asked = [request("POST", EVALUATE, event, token=TOKEN) for event in events]
    asked.insert(3, request("GET", token=TOKEN))
    await connection.send(b"".join(asked))
    for _ in asked:
        assert (await connection.receive()).status == 200
    assert [operation.payload for operation in scripted.operations] == events


async def app_of(scope: Any, receive: Any, send: Any, *, at_once: bool) -> None:
    """Answer without a look at the body, which may still be coming."""
    if scope["type"] != "http":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
    elif at_once:
        await scope["state"]["respond"](200, ((b"content-type", b"application/json"),), b"{}")
    else:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})


@pytest.mark.parametrize("at_once", [True, False])
async def test_the_rest_of_a_body_that_is_not_read_is_not_the_next_request(*, at_once: bool) -> None:
    asked = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal asked
        asked += scope["type"] == "http"
        await app_of(scope, receive, send, at_once=at_once)

    app.end_streams = lambda: None
    async with served(app, Settings()) as wire:
        asked = 0
        connection = await wire.connect()
        await connection.send(HEAD + EVENT[:3])
        assert (await connection.receive()).status == 200
        await connection.send(EVENT[3:] + PLAIN)
        assert (await connection.receive()).status == 200
        assert asked == 2


async def test_what_comes_before_the_reply_is_taken_waits_for_it(
    wire: Wire, scripted: ScriptedBackend
) -> None:
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


async def test_a_caller_who_goes_amid_a_plain_request_leaves_nothing(wire: Wire, held: Held) -> None:
    connection = await wire.connect()
    await connection.send(PLAIN)
    await held.asked.acquire()
    await connection.close()
    assert await wire.comes_to_rest()
    held.go.release()


@pytest.mark.parametrize("of", ["a body", "requests"])
async def test_a_connection_is_read_no_further_ahead_than_the_application_receives(
    monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """What it has not received counts towards no other bound."""
    serving: list[Served] = []
    take_over = Served._take_over
    go = asyncio.Event()

    def noted(connection: Served, data: bytes) -> None:
        serving.append(connection)
        take_over(connection, data)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method" if scope["type"] == "http" else "type"] == "POST":
            await go.wait()
        await app_of(scope, receive, send, at_once=False)

    app.end_streams = lambda: None
    monkeypatch.setattr(Served, "_take_over", noted)
    async with served(app, Settings()) as wire:
        connection = await wire.connect()
        length = f"Content-Length: {100_000_000 if of == 'a body' else 0}"
        await connection.send(request("POST", EVALUATE, headers=(length,)))
        await asyncio.sleep(0.02)
        connection.writer.write(PLAIN * 150_000)
        await asyncio.sleep(0.1)
        left_bytes = connection.writer.transport.get_write_buffer_size()
        exchange = serving[-1]._exchange
        ahead = serving[-1]._reader.unread_bytes + (exchange.waiting_bytes if exchange is not None else 0)
        connection.writer.transport.abort()
        go.set()
        assert left_bytes > 10_000_000, "it waits with the caller"
        assert AHEAD_BYTES_MAX <= ahead <= AHEAD_BYTES_MAX + 64 * 1024
        assert await wire.comes_to_rest()


async def test_what_is_read_ahead_of_all_connections_is_bounded_together(scripted: ScriptedBackend) -> None:
    bytes_max, callers = 300_000, 8
    limit = ConnectionLimit(100, bytes_max)
    go = asyncio.Event()

    async def held(_: str, operation: Operation) -> Answer:
        await go.wait()
        return NO_ACTIONS

    scripted.answers = held
    async with served(Application(Settings(), scripted), Settings(), limit) as wire:
        connections = [await wire.connect() for _ in range(callers)]
        for connection in connections:
            await connection.send(PLAIN)
        await asyncio.sleep(0.02)
        count = 40
        for connection in connections:
            connection.writer.write(request("POST", EVALUATE, EVENT.rjust(5_000), token=TOKEN) * count)
        await asyncio.sleep(0.1)
        assert bytes_max - READ_BYTES <= limit.ahead.held_bytes <= bytes_max + callers * UNCOUNTED_BYTES
        # What none could read ahead is read once it is their turn.
        go.set()
        for connection in connections:
            for _ in range(1 + count):
                assert (await connection.receive()).status == 200
        assert limit.ahead.held_bytes == 0
        assert await wire.comes_to_rest()


@pytest.mark.parametrize("ends_it", ["the caller", "the service"])
async def test_a_caller_who_takes_nothing_leaves_nothing(
    wire: Wire, scripted: ScriptedBackend, ends_it: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def large(_: str, operation: Operation) -> Answer:
        return Done(b'{"actions":["' + b"x" * 20_000_000 + b'"]}')

    if ends_it == "the service":
        monkeypatch.setattr(sender, "STALLED_S", 0.03)
    scripted.answers = large
    opened = []
    for ahead in (b"", PLAIN, PLAIN * 2, PLAIN * 3, PLAIN * 1_000, request("GET", token=TOKEN) * 3_000):
        connection = await wire.connect()
        opened.append(connection)
        await connection.send(PLAIN)
        await asyncio.sleep(0.1)
        # Not all of the last two fits into what lies between the two ends.
        connection.writer.write(ahead)
    await asyncio.sleep(0.1 if ends_it == "the caller" else 0.8)
    for connection in opened:
        connection.writer.transport.abort()
    assert await wire.comes_to_rest()
