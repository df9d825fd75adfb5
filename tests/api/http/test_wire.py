"""What only shows on real sockets: bodies refused early, framing, disconnects."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from api.http.app import Application
from api.http.request import timeout
from api.schema.envelope import Headers
from api.server import hypercorn_config as server
from api.server.http1.exchange import Exchange
from api.settings import Settings
from engine.evaluation.wire.events import Answer, Done
from engine.runtime.contract.requests.operations import Operation
from tests.api.scripted import DETECTOR, NO_ACTIONS, TOKEN, ScriptedFleet
from tests.api.wire import EVALUATE, EVENT, Connection, Wire, chunked, request, served


@pytest.fixture
async def hasty_wire(scripted: ScriptedFleet, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wire]:
    """The same as `wire`, with little time for a request."""
    monkeypatch.setattr(timeout, "BACKSTOP_S", 0.1)
    settings = Settings(deadline_s=0.1)
    async with served(Application(settings, scripted), settings) as wire:
        yield wire


async def good(connection: Connection) -> bool:
    """Tell whether a connection still serves."""
    reply = await (await connection.send(request("GET", token=TOKEN))).receive()
    return reply.status == 200


async def test_an_evaluation_is_answered_in_the_envelope(wire: Wire, scripted: ScriptedFleet) -> None:
    reply = await wire.once(request("POST", EVALUATE, EVENT, token=TOKEN))
    assert reply.status == 200
    assert reply.body == b'{"success":true,"errors":[],"messages":[],"result":{"actions":[]}}'
    assert [operation.payload for operation in scripted.operations] == [EVENT]


async def test_a_body_in_chunks_arrives_whole(wire: Wire, scripted: ScriptedFleet) -> None:
    head = request("POST", EVALUATE, token=TOKEN, headers=("Transfer-Encoding: chunked",))
    connection = await wire.connect()
    await connection.send(head)
    for byte in EVENT:
        await connection.send(b"1\r\n" + bytes([byte]) + b"\r\n")
    reply = await (await connection.send(b"0\r\n\r\n")).receive()
    assert reply.status == 200
    assert scripted.operations[0].payload == EVENT
    assert await good(connection)


@pytest.mark.parametrize("path", [EVALUATE, "/api/detectors", "/api/nowhere", "/nowhere"])
async def test_many_early_refusals_leave_connections_usable_and_no_task_behind(wire: Wire, path: str) -> None:
    head = request("POST", path, headers=("Transfer-Encoding: chunked",))
    connections = [await wire.connect() for _ in range(50)]
    for connection in connections:
        await connection.send(head + chunked(*[b"x" * 10] * 40))
    for connection in connections:
        assert (await connection.receive()).status == (404 if path == "/nowhere" else 401)
    for connection in connections:
        assert await good(connection)
    assert await wire.comes_to_rest()


async def test_a_refusal_overtakes_a_body_that_is_still_being_sent(wire: Wire) -> None:
    connection = await wire.connect()
    await connection.send(request("POST", EVALUATE, headers=("Content-Length: 1000",)) + b"x" * 10)
    reply = await connection.receive()
    assert (reply.status, reply.codes) == (401, [1100])
    await connection.send(b"x" * 990)
    assert await good(connection)


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [
        (EVALUATE, 100_000, 200),
        (EVALUATE, 100_001, 413),
        (EVALUATE + "/batch", 200_000, 200),
        (EVALUATE + "/batch", 200_001, 413),
        ("/api/detectors", 100_001, 413),
        ("/api/detectors", 100_000, 400),
    ],
)
@pytest.mark.parametrize("in_chunks", [False, True])
async def test_size_is_limited_to_the_byte_and_the_rest_is_discarded(
    wire: Wire, path: str, size: int, status: int, in_chunks: bool
) -> None:
    body = b" " * size
    if in_chunks:
        head = request("POST", path, token=TOKEN, headers=("Transfer-Encoding: chunked",))
        data = head + chunked(*[body[at : at + 5_000] for at in range(0, size, 5_000)])
    else:
        data = request("POST", path, body, token=TOKEN)
    connection = await wire.connect()
    reply = await (await connection.send(data)).receive()
    assert reply.status == status
    if status == 413:
        assert reply.codes == [1003]
    assert await good(connection)


async def test_a_body_past_the_discard_is_answered_and_cut_off(wire: Wire) -> None:
    connection = await wire.connect()
    head = request("POST", EVALUATE, token=TOKEN, headers=("Content-Length: 50000000",))
    await connection.send(head)
    reply = await connection.receive()
    assert (reply.status, reply.codes) == (413, [1003])
    with pytest.raises((ConnectionError, TimeoutError)):  # noqa: PT012 -- which write fails is open
        async with asyncio.timeout(5):
            while True:
                await connection.send(b"x" * 100_000)
                await asyncio.sleep(0)
    assert await wire.comes_to_rest()


async def test_an_endless_body_past_the_discard_leaves_no_task_behind(scripted: ScriptedFleet) -> None:
    settings = Settings(max_discard_bytes=2_000)
    async with served(Application(settings, scripted), settings) as wire:
        connections = [await wire.connect() for _ in range(10)]
        for connection in connections:
            await connection.send(request("POST", EVALUATE, headers=("Transfer-Encoding: chunked",)))
            # So many chunks at once that the server's own queue is full whenever we look.
            await connection.send(b"1\r\nx\r\n" * 10_000)
            reply = await connection.receive()
            assert (reply.status, reply.codes) == (401, [1100])
        assert await wire.comes_to_rest()


async def test_a_head_of_four_times_the_limit_is_refused_before_it_ends(scripted: ScriptedFleet) -> None:
    settings = Settings(max_header_bytes=1024)
    async with served(Application(settings, scripted), settings) as wire:
        # Never ended: only the size can be what is answered.
        reply = await wire.once(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 5_000)
        assert (reply.status, reply.codes) == (400, [1006])
        assert "is too large" in reply.body.decode()


async def test_a_body_that_nobody_wants_is_ignored(wire: Wire) -> None:
    connection = await wire.connect()
    data = request(
        "GET", "/api/detectors", b"\xff not json" * 1_000, token=TOKEN, headers=("Content-Type: x/y",)
    )
    assert (await (await connection.send(data)).receive()).status == 200
    assert await good(connection)


@pytest.mark.parametrize(
    ("path", "token", "expected"),
    [
        (EVALUATE, TOKEN, (400, [1006])),
        ("/api/detectors", TOKEN, (400, [1006])),
        # Nothing else is judged of what may be two requests.
        (EVALUATE, "unknown", (400, [1006])),
        ("/healthz", TOKEN, (400, [1006])),
    ],
)
async def test_two_ways_to_tell_the_end_of_a_body_are_refused_and_the_connection_closed(
    wire: Wire, path: str, token: str, expected: tuple[int, list[int]]
) -> None:
    headers = ("Transfer-Encoding: chunked", "Content-Length: 5")
    connection = await wire.connect()
    await connection.send(request("POST", path, token=token, headers=headers) + chunked(EVENT))
    reply = await connection.receive()
    assert (reply.status, reply.codes) == expected
    assert reply.headers["connection"] == "close"
    assert await connection.at_end()


@pytest.mark.parametrize("path", [EVALUATE, "/api/detectors", "/healthz"])
async def test_a_header_block_past_the_cap_is_refused_however_it_comes(wire: Wire, path: str) -> None:
    headers = tuple(f"X-{number}: {'x' * 990}" for number in range(20))
    method = "GET" if path == "/healthz" else "POST"
    data = request(method, path, EVENT, token=TOKEN, headers=headers)
    reply = await wire.once(data)
    assert (reply.status, reply.codes) == (400, [1006])
    in_pieces = await wire.connect()
    for at in range(0, len(data), 1_000):
        await in_pieces.send(data[at : at + 1_000])
        await asyncio.sleep(0)
    assert (await in_pieces.receive()).codes == [1006]


@pytest.mark.parametrize("path", [EVALUATE, f"/api/detectors/{DETECTOR}/rules"])
@pytest.mark.parametrize("pause_s", [0, 0.15])
async def test_a_caller_who_goes_away_cancels_the_work(
    wire: Wire, scripted: ScriptedFleet, path: str, pause_s: float
) -> None:
    started = asyncio.Event()

    async def never(*_: object) -> Answer:
        started.set()
        await asyncio.sleep(60)
        return NO_ACTIONS

    scripted.answers = never
    connection = await wire.connect()
    body = EVENT if path == EVALUATE else b'{"name": "n", "condition": "a == 1"}'
    data = request("POST", path, body, token=TOKEN)
    await connection.send(data[:-1])
    await asyncio.sleep(pause_s)
    await connection.send(data[-1:])
    await started.wait()
    await connection.close()
    assert await wire.comes_to_rest()
    assert (scripted.cancelled, scripted.under_way) == (1, 0)


async def test_a_caller_who_goes_away_amid_the_body_leaves_nothing(
    wire: Wire, scripted: ScriptedFleet
) -> None:
    connection = await wire.connect()
    await connection.send(request("POST", EVALUATE, token=TOKEN, headers=("Content-Length: 100",)) + b"{")
    await asyncio.sleep(0.02)
    assert await wire.comes_to_rest()
    assert not scripted.operations


async def test_a_body_that_does_not_come_meets_the_deadline(hasty_wire: Wire) -> None:
    data = request("POST", EVALUATE, token=TOKEN, headers=("Content-Length: 100",)) + b"{"
    reply = await hasty_wire.once(data)
    assert (reply.status, reply.codes) == (504, [1502])


@pytest.mark.parametrize("path", [EVALUATE, EVALUATE.replace("a", "%61", 1)])
async def test_work_that_does_not_end_meets_the_deadline(
    hasty_wire: Wire, scripted: ScriptedFleet, path: str
) -> None:
    async def never(*_: object) -> Answer:
        await asyncio.sleep(60)
        return NO_ACTIONS

    scripted.answers = never
    connection = await hasty_wire.connect()
    reply = await (await connection.send(request("POST", path, EVENT, token=TOKEN))).receive()
    assert (reply.status, reply.codes) == (504, [1502])
    assert (scripted.cancelled, scripted.under_way) == (1, 0)
    assert await good(connection)


async def test_requests_sent_one_behind_the_other_are_answered_in_order(wire: Wire) -> None:
    connection = await wire.connect()
    one = request("POST", EVALUATE, EVENT, token=TOKEN)
    await connection.send(one + request("GET", "/nowhere") + request("POST", EVALUATE, EVENT) + one)
    assert [(await connection.receive()).status for _ in range(4)] == [200, 404, 401, 200]


async def test_who_asks_before_sending_the_body_is_told_to_go_on(wire: Wire) -> None:
    connection = await wire.connect()
    headers = ("Expect: 100-continue", f"Content-Length: {len(EVENT)}")
    await connection.send(request("POST", EVALUATE, token=TOKEN, headers=headers))
    assert (await connection.receive()).status == 100
    assert (await (await connection.send(EVENT)).receive()).status == 200


async def test_head_is_a_method_that_no_path_takes(wire: Wire) -> None:
    connection = await wire.connect()
    reply = await (await connection.send(request("HEAD", token=TOKEN))).receive("HEAD")
    assert (reply.status, reply.headers["allow"], reply.body) == (405, "GET, POST", b"")
    assert await good(connection)


async def test_a_connection_is_let_go_of_when_its_caller_closes_it(
    wire: Wire, scripted: ScriptedFleet
) -> None:
    for _ in range(20):
        await wire.once(request("GET", "/healthz"))
        await wire.once(request("POST", EVALUATE, EVENT, token=TOKEN))
    assert await wire.comes_to_rest()

    async def slow(*_: object) -> Answer:
        await asyncio.sleep(0.02)
        return NO_ACTIONS

    # A caller who has gone by the time that the reply is ready, too.
    scripted.answers = slow
    connection = await wire.connect()
    await connection.send(request("POST", EVALUATE, EVENT, token=TOKEN))
    assert await wire.comes_to_rest()


async def test_the_absolute_form_of_a_target_is_understood(wire: Wire) -> None:
    reply = await wire.once(request("GET", "http://localhost/api/detectors", token=TOKEN))
    assert reply.status == 200
    reply = await wire.once(request("GET", "http://localhost/api/detectors"))
    assert reply.codes == [1100]


@pytest.mark.parametrize(
    ("target", "token", "code"),
    [
        ("//api/detectors", None, 1004),
        ("//api/detectors", TOKEN, 1004),
        ("/api//detectors", TOKEN, 1004),
        ("/api/../api/detectors", None, 1100),
        ("/api/../api/detectors", TOKEN, 1004),
        ("/../api/detectors", TOKEN, 1004),
        ("/api/detectors/.", TOKEN, 1200),
        ("/api/detectors#x", TOKEN, 1004),
        ("/api/detectors;x", TOKEN, 1004),
        ("*", TOKEN, 1004),
        ("api/detectors", TOKEN, 1004),
        ("http://api/detectors", TOKEN, 1004),
        ("/" + "x" * 5_000, TOKEN, 1004),
    ],
)
async def test_targets_are_taken_as_they_are_written(
    wire: Wire, target: str, token: str | None, code: int
) -> None:
    connection = await wire.connect()
    reply = await (await connection.send(request("GET", target, token=token))).receive()
    assert reply.codes == [code]
    assert await good(connection)


async def test_http_1_0_is_answered(wire: Wire) -> None:
    reply = await wire.once(request("GET", token=TOKEN).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert reply.status == 200


async def test_a_host_that_no_router_can_read_does_no_harm(wire: Wire) -> None:
    data = request("GET", token=TOKEN).replace(b"Host: localhost", b"Host: " + b"x" * 100)
    assert (await wire.once(data)).status == 200


async def test_bytes_that_are_not_http_end_the_connection(wire: Wire) -> None:
    connection = await wire.connect()
    reply = await (await connection.send(b"\x16\x03\x01 hello\r\n\r\n")).receive()
    assert reply.status == 400
    assert await connection.at_end()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the callers and the server write to connections, each piece by itself."""
    pieces: list[bytes] = []
    transport = asyncio.selector_events._SelectorSocketTransport
    write = transport.write

    def noted(to: asyncio.WriteTransport, data: bytes) -> None:
        pieces.append(bytes(data))
        write(to, data)

    monkeypatch.setattr(transport, "write", noted)
    return pieces


async def test_head_and_body_of_a_reply_go_out_in_one_piece_and_nothing_behind_them(
    wire: Wire, written: list[bytes]
) -> None:
    connection = await wire.connect()
    for _ in range(3):
        written.clear()
        asked = request("POST", EVALUATE, EVENT, token=TOKEN)
        reply = await (await connection.send(asked)).receive()
        await asyncio.sleep(0.01)
        (question, answer) = written
        assert question == asked
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"\r\n\r\n" + reply.body)


async def test_a_long_body_is_not_copied_behind_its_head(
    wire: Wire, scripted: ScriptedFleet, written: list[bytes]
) -> None:
    result = b'{"actions":["' + b"x" * 100_000 + b'"]}'

    async def long_answer(_: str, operation: Operation) -> Answer:
        return Done(result)

    scripted.answers = long_answer
    reply = await wire.once(request("POST", EVALUATE, EVENT, token=TOKEN))
    assert reply.body.endswith(result + b"}")
    _, head, body = written
    assert head.endswith(b"\r\n\r\n")
    assert body == reply.body


BY_EITHER_WAY = {
    "an evaluation": request("POST", EVALUATE, EVENT, token=TOKEN),
    "an evaluation, the last one": request(
        "POST", EVALUATE, EVENT, token=TOKEN, headers=("Connection: close",)
    ),
    "over HTTP/1.0": request("POST", EVALUATE, EVENT, token=TOKEN).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "a refusal": request("POST", f"/api/detectors/{'b' * 32}/evaluate", EVENT, token=TOKEN),
    "the head of a refusal": request("HEAD", EVALUATE, token=TOKEN),
    "what comes in chunks": request("POST", EVALUATE, token=TOKEN, headers=("Transfer-Encoding: chunked",))
    + chunked(EVENT),
}


@pytest.mark.parametrize("asked", BY_EITHER_WAY.values(), ids=BY_EITHER_WAY)
async def test_a_whole_reply_is_the_same_as_one_by_the_usual_way(
    wire: Wire, asked: bytes, written: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = Exchange.respond
    outcomes = []

    async def in_parts(exchange: Exchange, status: int, headers: Headers, body: bytes) -> None:
        length = (b"content-length", b"%d" % len(body))
        await exchange.send({"type": "http.response.start", "status": status, "headers": (*headers, length)})
        await exchange.send({"type": "http.response.body", "body": body})

    for way in (at_once, in_parts):
        monkeypatch.setattr(Exchange, "respond", way)
        connection = await wire.connect()
        written.clear()
        await connection.send(asked)
        reply = await connection.receive(asked.split()[0].decode())
        goes_on = b"connection: close" not in b"".join(written[1:]).lower() and await good(connection)
        said = re.sub(rb"(date|x-request-id): [^\r]+", rb"\1: its own", b"".join(written[1:2]))
        head, _, body = said.partition(b"\r\n\r\n")
        outcomes.append((sorted(head.split(b"\r\n")), body, reply.status, goes_on))
    assert outcomes[0] == outcomes[1]
    assert b"date: its own" in outcomes[0][0]


async def test_a_connection_that_had_as_many_requests_as_it_may_is_ended(
    scripted: ScriptedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_KEEP_ALIVE_REQUESTS_MAX", 3)
    settings = Settings()
    async with served(Application(settings, scripted), settings) as wire:
        connection = await wire.connect()
        asked = request("POST", EVALUATE, EVENT, token=TOKEN)
        for _ in range(3):
            assert (await (await connection.send(asked)).receive()).status == 200
        assert await connection.at_end()


async def test_a_head_without_a_body_behind_it_goes_out_alone(wire: Wire, written: list[bytes]) -> None:
    headers = ("Transfer-Encoding: chunked", "Content-Type: application/x-ndjson")
    connection = await wire.connect()
    await connection.send(request("POST", f"{EVALUATE}/batch", token=TOKEN, headers=headers))
    async with asyncio.timeout(5):
        head = await connection.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert written[1:] == [head]


BEHIND_THE_LAST = {
    "a line end": b"\r\n",
    "another request": request("POST", EVALUATE, EVENT, token=TOKEN),
    "no HTTP": b"\0" * 100,
    "more than is read in one go": b"x" * 300_000,
}


@pytest.mark.parametrize("sent_late", [False, True], ids=["in one piece", "while it is answered"])
@pytest.mark.parametrize("behind", BEHIND_THE_LAST.values(), ids=BEHIND_THE_LAST)
@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
async def test_whatever_comes_behind_the_last_request_is_not_read(
    wire: Wire, scripted: ScriptedFleet, version: bytes, behind: bytes, sent_late: bool
) -> None:
    go, asked = asyncio.Event(), asyncio.Event()

    async def in_its_time(_: str, operation: Operation) -> Answer:
        asked.set()
        await go.wait()
        return Done(b'{"actions":[]}')

    scripted.answers = in_its_time
    last = request("POST", EVALUATE, EVENT, token=TOKEN, headers=("Connection: close",))
    last = last.replace(b"HTTP/1.1", version)
    connection = await wire.connect()
    if sent_late:
        await connection.send(last)
        await asked.wait()
        await connection.send(behind)
    else:
        await connection.send(last + behind)
    async with asyncio.timeout(5):
        await asked.wait()
    await asyncio.sleep(0.02)
    go.set()
    assert (await connection.receive()).envelope["result"] == {"actions": []}
    assert await connection.at_end()
    assert len(scripted.operations) == 1
    assert await wire.comes_to_rest()
