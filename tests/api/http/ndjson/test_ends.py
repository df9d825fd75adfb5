"""What ends a stream, and what its caller is told."""

import asyncio
import json
from typing import Any

import pytest

from api.http.app import Application
from api.http.body import ndjson_stream
from api.server import connection as connections
from api.settings import Settings
from engine.evaluation.wire.events import Answer, Refused
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.http.ndjson.streams import PATH, echoes, good
from tests.api.scripted import DETECTOR, TOKEN, ScriptedBackend
from tests.api.streaming import NDJSON, Streaming, line, stream
from tests.api.wire import Wire, request, served
from tests.local_runtime.service import LocalService


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
    scripted: ScriptedBackend,
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
        (PATH, TOKEN, ("Content-Encoding: br",), (415, [1002])),
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
    while service.scheduler.active_detectors:  # noqa: ASYNC110 -- until its death is known
        await asyncio.sleep(0.001)
    await one.send(line(1))
    assert len((await one.next())["actions"]) == 1
    await one.end()
    assert await one.rest() == [{"done": 4}]


@pytest.mark.parametrize("amid", ["silence", "a line", "work", "work, with more to come"])
async def test_when_the_service_ends_a_stream_is_told_so_after_what_is_under_way(
    scripted: ScriptedBackend, monkeypatch: pytest.MonkeyPatch, amid: str
) -> None:
    monkeypatch.setattr(connections, "DISCARD_S", 0.1)
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
    scripted: ScriptedBackend,
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
    scripted: ScriptedBackend, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    # Nothing ends by itself before the test's own time-out.
    monkeypatch.setattr(connections, "HEAD_S", 1_000)
    monkeypatch.setattr(connections, "QUIET_S", 0.1)
    monkeypatch.setattr(connections, "DISCARD_S", 1_000)
    settings = Settings(deadline_s=1_000, keep_alive_s=1_000)
    async with asyncio.timeout(20), served(Application(settings, scripted), settings, grace_s=1_000) as wire:
        connection, silent = await wire.connect(), await wire.connect()
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
        wire.stop()
        while await connection.reader.read(65_536):
            pass
        assert await silent.at_end()


@pytest.mark.parametrize("by", ["this front end", "another"])
async def test_a_stream_ends_where_its_token_is_revoked(
    settings: Settings, service: LocalService, caller: Caller, real: Wire, by: str
) -> None:
    detector = await caller.detector()
    minted = (await caller("POST", "/api/token")).result
    # The tokens of streams are checked again after there were none for a while.
    async with asyncio.timeout(5):
        earlier = await stream(real, detector, BOOTSTRAP)
        await earlier.begun()
        await earlier.end()
    revoked = await stream(real, detector, minted["token"])
    other = await stream(real, detector, BOOTSTRAP)
    for one in (revoked, other):
        await one.send(line(1e12))
        await one.begun()
        assert await one.next() == {"actions": []}
    if by == "another":
        await service.scheduler.catalogue.revoke_token(minted["id"])
    else:
        await caller("DELETE", f"/api/token/{minted['id']}")
    closing = await revoked.next()
    assert (closing["done"], [entry["code"] for entry in closing["errors"]]) == (1, [1101])
    await other.send(line(1e12))
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
    wire: Wire, scripted: ScriptedBackend, monkeypatch: pytest.MonkeyPatch, why: str, *, ended: bool
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

        def permit(_: bytes) -> None:
            looked.set()

        monkeypatch.setattr(scripted, "permit", permit)
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
