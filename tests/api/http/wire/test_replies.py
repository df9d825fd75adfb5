"""Requests of every form and what is written in reply, to the byte."""

import asyncio
import re

import pytest

from api.http.app import Application
from api.schema.envelope import Headers
from api.server import hypercorn_config as server
from api.server.exchange import Exchange
from api.settings import Settings
from engine.evaluation.wire.events import Answer, Done
from engine.runtime.contract.requests.operations import Operation
from tests.api.http.wire.connections import good
from tests.api.scripted import TOKEN, ScriptedBackend
from tests.api.streaming import NDJSON
from tests.api.wire import EVALUATE, EVENT, Wire, chunked, request, served


async def test_head_is_a_method_that_no_path_takes(wire: Wire) -> None:
    connection = await wire.connect()
    reply = await (await connection.send(request("HEAD", token=TOKEN))).receive("HEAD")
    assert (reply.status, reply.headers["allow"], reply.body) == (405, "GET, POST", b"")
    assert await good(connection)


@pytest.mark.parametrize(
    ("target", "token", "code"),
    [
        ("//api/detectors", None, 1004),
        ("/api/../api/detectors", None, 1100),
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


async def test_a_host_that_no_router_can_read_does_no_harm(wire: Wire) -> None:
    data = request("GET", token=TOKEN).replace(b"Host: localhost", b"Host: " + b"x" * 100)
    assert (await wire.once(data)).status == 200


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


@pytest.mark.parametrize(
    "asked",
    [
        request("POST", EVALUATE, EVENT, token=TOKEN),
        request("GET", EVALUATE.replace("/evaluate", "/state"), token=TOKEN),
    ],
    ids=["by the fast path", "by Quart"],
)
async def test_a_long_result_is_not_copied_behind_head_and_envelope(
    wire: Wire, scripted: ScriptedBackend, written: list[bytes], asked: bytes
) -> None:
    result = b'{"actions":["' + b"x" * 100_000 + b'"]}'

    async def long_answer(_: str, operation: Operation) -> Answer:
        return Done(result)

    scripted.answers = long_answer
    reply = await wire.once(asked)
    assert reply.body.endswith(result + b"}")
    assert b"".join(written[1:]).endswith(b"\r\n\r\n" + reply.body)
    assert any(piece is result for piece in written)


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


async def test_a_stream_over_http_1_0_has_no_chunks_and_ends_with_the_connection(wire: Wire) -> None:
    asked = request("POST", f"{EVALUATE}/batch", EVENT + b"\n", token=TOKEN, headers=(NDJSON,))
    connection = await wire.connect()
    await connection.send(asked.replace(b"HTTP/1.1", b"HTTP/1.0"))
    reply = await connection.receive()
    assert (reply.status, reply.headers.get("transfer-encoding")) == (200, None)
    async with asyncio.timeout(5):
        assert (await connection.reader.read()).endswith(b'}\n{"done":1}\n')


async def test_a_connection_that_had_as_many_requests_as_it_may_is_ended(
    scripted: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
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
async def test_whatever_comes_behind_the_last_request_is_not_read(
    wire: Wire, scripted: ScriptedBackend, behind: bytes, sent_late: bool
) -> None:
    go, asked = asyncio.Event(), asyncio.Event()

    async def in_its_time(_: str, operation: Operation) -> Answer:
        asked.set()
        await go.wait()
        return Done(b'{"actions":[]}')

    scripted.answers = in_its_time
    last = request("POST", EVALUATE, EVENT, token=TOKEN, headers=("Connection: close",))
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
