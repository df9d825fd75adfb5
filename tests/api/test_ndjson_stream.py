"""Streams of events over real sockets: answered as they come, bounded both ways, ended in order."""

import asyncio
import dataclasses
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from api.http.app import Application
from api.http.authentication import Authenticator
from api.http.body import discard, ndjson_stream
from api.http.body import ndjson_reader as lines
from api.http.body.discard import BodyDiscard
from api.http.body.memory import BodyMemory
from api.http.body.ndjson_stream import NdjsonStreams
from api.server import connection as connections
from api.server import connection_timeouts, sender
from api.server import hypercorn_config as server
from api.settings import Settings
from engine.evaluation.wire.events import Answer, Done, Refused
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.scripted import DETECTOR, TOKEN, ScriptedFleet
from tests.api.streaming import NDJSON, Streaming, line, stream
from tests.api.wire import Connection, Wire, request, served
from tests.local_runtime import LocalService, local_service

PATH = f"/api/detectors/{DETECTOR}/evaluate/batch"
Begin = Callable[[str], Any]


@pytest.fixture(autouse=True)
def _linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have callers who stay not wait for long until they are left."""
    for module in (sender, discard):
        monkeypatch.setattr(module, "LINGER_S", 0.1)


def echoes(_: str, operation: Operation) -> Answer:
    """Answer each line with its length."""
    found = operation.payload.split(b"\n")
    return Done(b"\n".join(b'{"actions":[],"length":%d}' % len(one) for one in found))


@pytest.fixture
def echo(scripted: ScriptedFleet) -> ScriptedFleet:
    async def answers(detector_id: str, operation: Operation) -> Answer:
        return echoes(detector_id, operation)

    scripted.answers = answers
    return scripted


@pytest.fixture
async def real(settings: Settings, service: LocalService) -> AsyncIterator[Wire]:
    """Real sockets to an application over a real fleet."""
    async with served(Application(settings, service.fleet), settings) as wire:
        yield wire


@pytest.fixture
async def hasty(scripted: ScriptedFleet) -> AsyncIterator[Wire]:
    """Real sockets to an application of little patience."""
    settings = Settings(deadline_s=0.5)
    async with served(Application(settings, scripted), settings) as wire:
        yield wire


async def test_each_line_is_answered_while_others_are_still_to_come(caller: Caller, real: Wire) -> None:
    detector = await caller.detector()
    await caller.rule(detector, "once a == 1 and user in $list")
    one = await stream(real, detector, BOOTSTRAP)
    begun = await one.begun()
    assert (begun.status, begun.headers["content-type"]) == (200, "application/x-ndjson")
    await one.send(line(0, {"vars": {"list": ["ada"]}}, a=1, user="ada"))
    assert [action["name"] for action in (await one.next())["actions"]] == ["r"]
    # The context is that of the line alone, and half a line is none.
    await one.send(line(1, user="ada") + line(2, {"vars": {"list": ["ada"]}}, user="ada")[:10])
    assert await one.next() == {"actions": []}
    await one.send(line(2, {"vars": {"list": ["ada"]}}, user="ada")[10:-1])
    await one.end()
    assert len((await one.next())["actions"]) == 1
    assert await one.rest() == [{"done": 3}]
    assert await good(one)


async def good(one: Streaming) -> bool:
    """Tell whether the connection still serves."""
    reply = await (await one.connection.send(request("GET", "/healthz"))).receive()
    return reply.status == 200


async def test_a_bad_line_is_answered_in_its_place_and_the_others_go_on(caller: Caller, real: Wire) -> None:
    detector = await caller.detector()
    await caller.rule(detector, "a == 1")
    one = await stream(real, detector, BOOTSTRAP)
    await one.begun()
    bad = [
        b"{\n", b"\xff\n", b'{"event":{"fields":{"a":NaN},"timestamp_ms":0}}\n',
        line(0) + line(0)[:-2] + b"\n",
        b'{"event":{"fields":{"a":' + b"[" * 70 + b"]" * 70 + b'},"timestamp_ms":0}}\n',
    ]  # fmt: skip
    shapes = [b"[]\n", b'{"event":5,"z":1}\n', line(9e15)]
    sent = [
        line(0, a=1), *bad[:3], line(0, a=1), b"\n \r\n", bad[4], *shapes, line(-1e15),
        line(1, long="x" * 30_000), line(-1, a=1),
    ]  # fmt: skip
    await one.send(b"".join(sent))
    await one.end()
    *results, closing = await one.rest()
    assert closing == {"done": 12}
    codes = [[entry["code"] for entry in result.get("errors", [])] for result in results]
    assert codes == [[], [1000], [1000], [1000], [], [1000], [1001], [1001] * 2, [1001], [1402], [1003], []]
    assert [len(result["actions"]) for result in results] == [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    assert [entry["code"] for entry in results[-1]["messages"]] == [2001]
    assert results[7]["errors"][0]["message"] == "event: expected an object, got a number"
    messages = [results[number]["errors"][0]["message"].split(": ")[0] for number in (1, 3, 6)]
    assert messages == ["the line is not JSON", "the line is not JSON", "line"]


async def test_lines_past_the_bound_on_an_answer_are_evaluated_in_pieces(
    tmp_path: Path, settings: Settings
) -> None:
    """Nothing of a stream is lost, and each line is evaluated once."""
    count = 300
    sent = [line(number, a=number % 3) for number in range(count)]
    sent[7] = line(1, long="x" * 30_000)
    sent[50] = b"{\n"
    sent[-1] = line(1, long="x" * 30_000)
    told: list[list[Any]] = []
    asked: list[list[int]] = []
    for answer_bytes_max in (1_000, 1 << 20):
        limits = dataclasses.replace(settings.limits(), answer_bytes_max=answer_bytes_max)
        async with local_service(tmp_path / str(answer_bytes_max), limits=limits) as bounded:
            app = Application(settings, bounded.fleet)
            caller = Caller(app, BOOTSTRAP)
            detector = await caller.detector()
            for _ in range(3):
                await caller.rule(detector, "once a == 1")
            real = bounded.fleet.call
            sizes: list[int] = []

            async def counted(*call: Any, real: Any = real, sizes: list[int] = sizes) -> Answer:
                answer: Answer = await real(*call)
                sizes.append(len(answer.result) if isinstance(answer, Done) else 0)
                return answer

            bounded.fleet.call = counted  # type: ignore[method-assign]
            async with served(app, settings) as wire:
                one = await stream(wire, detector, BOOTSTRAP)
                await one.send(b"".join(sent))
                await one.end()
                await one.begun()
                told.append(await one.rest())
            asked.append(sizes)
    narrow, roomy = told
    assert roomy[-1] == {"done": count}
    codes = [[entry["code"] for entry in result.get("errors", [])] for result in roomy[:-1]]
    assert [place for place, each in enumerate(codes) if each] == [7, 50, count - 1]
    assert [len(result["actions"]) for result in roomy[:3]] == [0, 3, 3]

    def nameless(results: list[Any]) -> list[Any]:
        return [[len(result.get("actions", [])), result.get("errors")] for result in results]

    assert nameless(narrow) == nameless(roomy)
    assert narrow[-1] == roomy[-1]
    assert len(asked[0]) > 50 > len(asked[1])
    assert max(asked[0]) < 1_500 < max(asked[1])


@pytest.mark.parametrize("service", ["here"], indirect=True)
async def test_lines_are_answered_the_same_wherever_they_are_cut(caller: Caller, real: Wire) -> None:
    text = line(1, a="\u00e4\U0001f600") + b"{\n" + b"\n" + line(2, a=1)[:-1]
    told = []
    for at in range(0, len(text), 3):
        detector = await caller.detector()
        one = await stream(real, detector, BOOTSTRAP)
        for part in (text[:at], text[at : at + 1], text[at + 1 :]):
            if part:
                await one.send(part)
        await one.end()
        await one.begun()
        told.append(await one.rest())
    assert len(told[0]) == 4
    assert told == [told[0]] * len(told)


@pytest.mark.storm
async def test_200_000_lines_pass_with_no_more_than_two_batches_held(
    wire: Wire, echo: ScriptedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    most = [0]

    class Counted(lines.NdjsonReader):
        async def take(self) -> list[bytes | None]:
            batch = await super().take()
            # What is taken is under way; beside it there is what has been read ahead.
            held.append(len(batch) + len(self._ready))
            most[0] = max(most[0], self.held_bytes)
            return batch

    monkeypatch.setattr("api.http.body.ndjson_stream.NdjsonReader", Counted)
    one = await stream(wire)
    await one.begun()
    text = line(0, a=1) * 500

    async def sends() -> None:
        for _ in range(400):
            await one.send(text)
        await one.end()

    sending = asyncio.create_task(sends())
    answered = 0
    while "done" not in (told := await one.next()):
        assert told["length"] == len(line(0, a=1)) - 1
        answered += 1
    await sending
    assert (answered, told) == (200_000, {"done": 200_000})
    assert max(held) <= 2 * lines.LINES_MAX
    assert most[0] <= 1024 * 1024 + 2 * 65_536
    assert max(one.payload.count(b"\n") for one in echo.operations) < lines.LINES_MAX
    assert len(echo.operations) < 4_000


async def test_a_caller_who_takes_no_replies_is_not_read_from_until_he_does(
    wire: Wire, scripted: ScriptedFleet
) -> None:
    async def long_answers(_: str, operation: Operation) -> Answer:
        count = operation.payload.count(b"\n") + 1
        return Done(b"\n".join([b'{"actions":[],"x":"' + b"x" * 5_000 + b'"}'] * count))

    scripted.answers = long_answers
    one = await stream(wire)
    text = line(0, a="y" * 100) * 1_000
    with pytest.raises(TimeoutError):  # noqa: PT012 -- which write waits is open
        async with asyncio.timeout(0.7):
            while True:
                await one.send(text)
    done = len(scripted.operations)
    await asyncio.sleep(0.1)
    assert len(scripted.operations) == done
    # What is read of 160 bytes each is bounded by what waits of 5 000 bytes each, in the sockets.
    assert sum(one.payload.count(b"\n") + 1 for one in scripted.operations) < 20_000
    # To close would be to wait until all that was written has been read.
    one.connection.writer.transport.abort()
    assert await wire.comes_to_rest()


async def test_a_caller_who_never_takes_replies_is_cut_off(
    scripted: ScriptedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_timeouts, "STALLED_S", 0.2)

    async def long_answers(_: str, operation: Operation) -> Answer:
        return Done(b"\n".join([b"x" * 5_000] * (operation.payload.count(b"\n") + 1)))

    scripted.answers = long_answers
    settings = Settings(deadline_s=0.3)
    async with served(Application(settings, scripted), settings) as wire:
        one = await stream(wire)
        with pytest.raises(ConnectionError):  # noqa: PT012 -- which write fails is open
            async with asyncio.timeout(20):
                while True:
                    await one.send(line(0, a="y" * 100) * 1_000)
        assert await wire.comes_to_rest()
        assert scripted.under_way == 0


async def test_a_reply_that_waits_for_a_caller_who_is_gone_waits_no_longer(scripted: ScriptedFleet) -> None:
    """A server may be unable to tell us of it before it has got rid of the body that came before."""
    messages = [{"type": "http.request", "body": line() * 3_000, "more_body": True}] * 20
    messages.append({"type": "http.disconnect"})
    told = asyncio.Event()

    async def receive() -> Any:
        await asyncio.sleep(0)
        if len(messages) == 1:
            told.set()
        return messages.pop(0)

    async def send(message: Any) -> None:
        if message.get("body"):
            await told.wait()

    streams = NdjsonStreams(
        Settings(deadline_s=0.2),
        scripted,  # type: ignore[arg-type]
        BodyDiscard(1),
        authenticator=Authenticator(scripted, None),
        memory=BodyMemory(100_000_000),
        deadline_s=1,
    )
    opened = streams.open(DETECTOR, f"Bearer {TOKEN}".encode())
    async with asyncio.timeout(5):
        await opened.serve(receive, send)
    assert messages == []


@pytest.mark.parametrize("amid", ["a line", "work", "silence", "after the end"])
async def test_a_caller_who_vanishes_leaves_nothing(wire: Wire, scripted: ScriptedFleet, amid: str) -> None:
    started = asyncio.Event()

    async def never(detector_id: str, operation: Operation) -> Answer:
        started.set()
        if amid in {"work", "after the end"}:
            await asyncio.sleep(60)
        return echoes(detector_id, operation)

    scripted.answers = never
    one = await stream(wire)
    await one.begun()
    await one.send(line() * 3 + (line()[:9] if amid == "a line" else b""))
    if amid == "after the end":
        await one.end()
    await started.wait()
    await one.connection.close()
    assert await wire.comes_to_rest()
    assert scripted.under_way == 0
    assert scripted.cancelled == (amid in {"work", "after the end"})


async def test_a_silent_caller_is_told_and_may_go_on_with_another_request(hasty: Wire, echo: Any) -> None:
    one = await stream(hasty)
    await one.begun()
    for _ in range(8):
        # A blank line is a sign of life.
        await asyncio.sleep(0.1)
        await one.send(b"\n")
    await one.send(line())
    assert (await one.next())["length"] == len(line()) - 1
    closing = await one.next()
    assert (closing["done"], [entry["code"] for entry in closing["errors"]]) == (1, [1502])
    await one.end()
    assert await one.rest() == []
    assert await good(one)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DetectorUnavailable(1401, "too many wait"), 1401),
        (DetectorUnavailable(1501, "it recovers"), 1501),
        (DetectorUnavailable(1502, "it died"), 1502),
        (DetectorUnavailable(1503, "shutting down"), 1503),
        (Refusal(Entry(1200, "it was deleted")), 1200),
        (Refused((Entry(1501, "no room"),)), 1501),
        (RuntimeError("a secret"), 1500),
        (None, 1502),
    ],
)
async def test_what_ends_a_stream_is_in_its_closing_line(
    hasty: Wire,
    scripted: ScriptedFleet,
    monkeypatch: pytest.MonkeyPatch,
    error: Any,
    code: int,
) -> None:
    async def then_fails(detector_id: str, operation: Operation) -> Answer:
        if len(scripted.operations) == 1:
            return echoes(detector_id, operation)
        if error is None:
            await asyncio.sleep(60)
        if isinstance(error, Refused):
            return error
        raise error

    scripted.answers = then_fails
    one = await stream(hasty)
    await one.send(line() * 2)
    await one.begun()
    assert [await one.next(), await one.next()] == [{"actions": [], "length": len(line()) - 1}] * 2
    await one.send(line())
    closing = await one.next()
    assert list(closing) == ["done", "errors"]
    assert (closing["done"], [entry["code"] for entry in closing["errors"]]) == (2, [code])
    assert "secret" not in json.dumps(closing)
    # What is still being sent is read past, so that the reply can be read.
    await one.send(line() * 1_000)
    await one.end()
    assert await one.rest() == []
    assert await good(one)


@pytest.mark.parametrize(
    ("path", "token", "headers", "expected"),
    [
        (PATH, None, (), (401, [1100])),
        (PATH, "unknown", (), (401, [1101])),
        (PATH + "/", TOKEN, (), (404, [1004])),
        (PATH, TOKEN, ("Idempotency-Key: k",), (400, [1006])),
        (PATH, TOKEN, ("Content-Encoding: gzip",), (400, [1006])),
        (PATH.replace(DETECTOR, "0" * 32), TOKEN, (), (404, [1200])),
        (PATH.replace(DETECTOR, "x"), TOKEN, (), (404, [1200])),
        (PATH.removesuffix("/batch"), TOKEN, (), (415, [1002])),
        (f"/api/detectors/{DETECTOR}/rules", TOKEN, (), (415, [1002])),
    ],
)
async def test_what_is_refused_before_it_begins_has_its_status_and_the_envelope(
    wire: Wire, path: str, token: str | None, headers: tuple[str, ...], expected: tuple[int, list[int]]
) -> None:
    connection = await wire.connect()
    sent = ("Transfer-Encoding: chunked", NDJSON, *headers)
    one = Streaming(await connection.send(request(path=path, token=token, headers=sent)))
    for _ in range(30):
        await one.send(line())
    reply = await one.begun()
    assert (reply.status, reply.codes) == expected
    await one.end()
    assert await good(one)


async def test_a_body_of_known_length_is_a_stream_too_however_large(wire: Wire, echo: ScriptedFleet) -> None:
    body = line(0, a="z" * 1_000) * 3_000
    connection = await wire.connect()
    one = Streaming(connection)
    sending = asyncio.create_task(
        connection.send(request(path=PATH, body=body, token=TOKEN, headers=(NDJSON,)))
    )
    assert (await one.begun()).status == 200
    assert (await one.rest())[-1] == {"done": 3_000}
    await sending
    assert await good(one)


async def test_streams_end_in_order_where_nothing_was_sent(wire: Wire) -> None:
    one = await stream(wire)
    await one.end()
    assert (await one.begun()).status == 200
    assert await one.rest() == [{"done": 0}]
    assert await wire.comes_to_rest()


async def test_what_was_answered_outlives_the_death_of_its_process(
    caller: Caller, service: LocalService, real: Wire
) -> None:
    detector = await caller.detector()
    await caller.rule(detector, "once a == 1")
    one = await stream(real, detector, BOOTSTRAP)
    await one.begun()
    await one.send(b"{\n" + line(1e15) + line(0, a=1))
    codes = [[entry["code"] for entry in (await one.next()).get("errors", [])] for _ in range(3)]
    assert codes == [[1000], [1402], []]
    worker = service.actors.with_detector(detector)
    assert worker is not None
    worker.die()
    while service.broker.active_detectors:  # noqa: ASYNC110 -- until its death is known
        await asyncio.sleep(0.001)
    await one.send(line(1))
    assert len((await one.next())["actions"]) == 1
    await one.end()
    assert await one.rest() == [{"done": 4}]


async def test_many_streams_at_once_are_each_answered_in_order(
    caller: Caller, settings: Settings, real: Wire
) -> None:
    assert settings.max_batch_events == 10
    detectors = [await caller.detector() for _ in range(3)]
    for detector in detectors:
        await caller.rule(detector, "per k once first == true")

    async def run(number: int) -> None:
        one = await stream(real, detectors[number % 3], BOOTSTRAP)
        await one.begun()
        for count in range(50):
            await one.send(line(0, k=number, first=count == 20, n=count))
        await one.end()
        *results, closing = await one.rest()
        assert closing == {"done": 50}
        assert [len(result["actions"]) for result in results] == [0] * 20 + [1] * 30

    await asyncio.gather(*(run(number) for number in range(9)))


@pytest.mark.parametrize("amid", ["silence", "a line", "work", "work, with more to come"])
async def test_when_the_service_ends_a_stream_is_told_so_after_what_is_under_way(
    scripted: ScriptedFleet, amid: str
) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def waits(detector_id: str, operation: Operation) -> Answer:
        if len(scripted.operations) > 1:
            started.set()
            await go_on.wait()
        return echoes(detector_id, operation)

    scripted.answers = waits
    settings = Settings(deadline_s=1_000)
    async with served(app := Application(settings, scripted), settings) as wire:
        one = await stream(wire)
        await one.begun()
        await one.send(line() * 3)
        assert [len(await one.next()) for _ in range(3)] == [2] * 3
        if amid == "a line":
            await one.send(line()[:9])
        elif amid != "silence":
            await one.send(line() * 2)
            await started.wait()
            if amid == "work, with more to come":
                await one.send(line() * 5)
                await asyncio.sleep(0.02)
        app.end_streams()
        go_on.set()
        *results, closing = await one.rest()
        assert len(results) == (0 if amid in {"silence", "a line"} else 2)
        assert (closing["done"], [entry["code"] for entry in closing["errors"]]) == (3 + len(results), [1503])
        # It never said that it was done; nothing more is read for its sake.
        assert await one.connection.at_end()
        late = await (
            await (await wire.connect()).send(request(path=PATH, token=TOKEN, headers=(NDJSON,)))
        ).receive()
        assert (late.status, late.codes) == (503, [1503])
        assert await wire.comes_to_rest()


async def test_a_stream_whose_body_has_come_is_answered_to_its_end_though_the_service_ends(
    scripted: ScriptedFleet,
) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def waits(detector_id: str, operation: Operation) -> Answer:
        started.set()
        await go_on.wait()
        return echoes(detector_id, operation)

    scripted.answers = waits
    settings = Settings(deadline_s=1_000)
    async with served(app := Application(settings, scripted), settings) as wire:
        one = await stream(wire)
        await one.send(line())
        await started.wait()
        await one.send(line() * 900)
        await one.end()
        await asyncio.sleep(0.05)
        app.end_streams()
        go_on.set()
        await one.begun()
        assert (await one.rest())[-1] == {"done": 901}


@pytest.mark.parametrize(
    "waits", ["for lines", "for the rest of a refused body", "for a request", "for a head"]
)
async def test_the_server_ends_at_once_though_callers_wait(
    scripted: ScriptedFleet, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    # Nothing ends by itself before the test's own time-out.
    monkeypatch.setattr(connections, "HEAD_S", 1_000)
    monkeypatch.setattr(connections, "QUIET_S", 0.1)
    monkeypatch.setattr(discard, "DISCARD_S", 1_000)
    settings = Settings(deadline_s=1_000, keep_alive_s=1_000)
    app = Application(settings, scripted)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    config = server.server_config(settings)
    config.errorlog = None
    config.graceful_timeout = 1_000
    config.bind = [f"fd://{listener.detach()}"]
    stop = asyncio.Event()

    async def until_stopped() -> None:
        await stop.wait()
        app.end_streams()

    serving = asyncio.create_task(
        server.serve(app, config, until_stopped, head_bytes_max=server.head_bytes_max(settings))
    )
    connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
    one = Streaming(connection)
    chunked = ("Transfer-Encoding: chunked", NDJSON)
    match waits:
        case "for lines":
            await connection.send(request(path=PATH, token=TOKEN, headers=chunked))
            assert (await one.begun()).status == 200
        case "for the rest of a refused body":
            await connection.send(request(path=PATH, headers=chunked))
            assert (await one.begun()).status == 401
        case "for a request":
            await connection.send(request("GET", "/healthz"))
            assert (await connection.receive()).status == 200
        case "for a head":
            await connection.send(request("GET", "/healthz")[:20])
            await asyncio.sleep(0.02)
    silent = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.sleep(0.02)
    stop.set()
    async with asyncio.timeout(20):
        await serving
        while await connection.reader.read(65_536):
            pass
        assert await silent[0].read() == b""
    await connection.close()
    silent[1].close()


@pytest.mark.parametrize("by", ["this front end", "another"])
async def test_a_stream_ends_where_its_token_is_revoked(
    settings: Settings, service: LocalService, caller: Caller, real: Wire, by: str
) -> None:
    detector = await caller.detector()
    minted = (await caller("POST", "/api/token")).result
    revoked = await stream(real, detector, minted["token"])
    other = await stream(real, detector, BOOTSTRAP)
    for one in (revoked, other):
        await one.send(line())
        await one.begun()
        assert await one.next() == {"actions": []}
    if by == "another":
        await service.broker.revoke_token(minted["id"])
    else:
        await caller("DELETE", f"/api/token/{minted['id']}")
    closing = await revoked.next()
    assert (closing["done"], [entry["code"] for entry in closing["errors"]]) == (1, [1101])
    await other.send(line())
    assert await other.next() == {"actions": []}
    assert (
        ndjson_stream.TOKEN_CHECK_S
        + RuntimeSettings(data=settings.data).poll_s
        + RuntimeSettings(data=settings.data).ask_s
        < 1
    )


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("why", ["revoked", "no word"])
async def test_a_stream_whose_token_is_not_good_any_more_answers_what_is_under_way_and_nothing_else(
    wire: Wire, scripted: ScriptedFleet, monkeypatch: pytest.MonkeyPatch, why: str, *, ended: bool
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def answers(detector_id: str, operation: Operation) -> Answer:
        asked.set()
        await go.wait()
        return echoes(detector_id, operation)

    scripted.answers = answers
    monkeypatch.setattr(ndjson_stream, "TOKEN_CHECK_S", 0.05)
    one = await stream(wire)
    await one.send(line())
    await asked.wait()
    for _ in range(3):
        await one.send(line())
    if ended:
        await one.end()
    looked = asyncio.Event()
    if why == "revoked":

        def token_known(_: bytes) -> bool:
            looked.set()
            return False

        monkeypatch.setattr(scripted, "token_known", token_known)
    else:
        scripted.stale = DetectorUnavailable(1501, "there was no word", 1)
        asyncio.get_running_loop().call_later(0.15, looked.set)
    async with asyncio.timeout(10):
        await looked.wait()
    go.set()
    await one.begun()
    assert (await one.next())["actions"] == []
    closing = await one.next()
    code = 1101 if why == "revoked" else 1501
    assert (closing["done"], [entry["code"] for entry in closing["errors"]]) == (1, [code])
    assert len(scripted.operations) == 1
    assert await one.next() is None
