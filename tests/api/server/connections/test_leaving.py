"""The end of a service, as callers meet it who keep connections: they are told before these are closed."""

import asyncio
import time

import pytest

from api.http.app import Application
from api.server import connection as connections
from api.server.limits import ConnectionLimit
from api.settings import Settings
from tests.api.leaks import in_each_loop
from tests.api.scripted import DETECTOR, TOKEN, ScriptedBackend
from tests.api.wire import EVALUATE, EVENT, chunked, request, served

PLAIN = request(path=EVALUATE, body=EVENT, token=TOKEN)
RULES = request("GET", f"/api/detectors/{DETECTOR}/rules", token=TOKEN)
CHUNKED = request("POST", EVALUATE, token=TOKEN, headers=("Transfer-Encoding: chunked",)) + chunked(EVENT)
REFUSED = request(path=EVALUATE, body=EVENT)
STREAM = request(
    path=EVALUATE + "/batch",
    token=TOKEN,
    headers=("Content-Type: application/x-ndjson", "Transfer-Encoding: chunked"),
)


@pytest.mark.parametrize(
    "asked", [PLAIN, RULES, CHUNKED, REFUSED], ids=["plain", "by Quart", "in chunks", "refused early"]
)
@in_each_loop
async def test_a_kept_connection_is_told_by_its_next_reply_and_then_closed(asked: bytes) -> None:
    backend, settings, limit = ScriptedBackend(), Settings(), ConnectionLimit(100)
    async with served(Application(settings, backend), settings, limit) as wire:
        kept = await wire.connect()
        for _ in range(2):
            assert "connection" not in (await (await kept.send(asked)).receive()).headers
        limit.leave()
        last = await (await kept.send(asked)).receive()
        assert last.status == (401 if asked is REFUSED else 200)
        assert last.headers["connection"] == "close"
        assert await kept.at_end()


@pytest.mark.parametrize("asked", [PLAIN, RULES], ids=["plain", "by Quart"])
@in_each_loop
async def test_what_is_under_way_is_answered_and_says_that_it_is_the_last(asked: bytes) -> None:
    backend, settings, limit = ScriptedBackend(), Settings(), ConnectionLimit(100)
    begun, go_on = asyncio.Event(), asyncio.Event()
    answer = backend.answers

    async def slowly(detector_id, operation):
        begun.set()
        await go_on.wait()
        return await answer(detector_id, operation)

    backend.answers = slowly
    async with served(Application(settings, backend), settings, limit, grace_s=10) as wire:
        kept = await (await wire.connect()).send(asked)
        await begun.wait()
        wire.stop()
        await asyncio.sleep(0.05)
        go_on.set()
        last = await kept.receive()
        assert (last.status, last.headers["connection"]) == (200, "close")
        assert await kept.at_end()


@in_each_loop
async def test_an_idle_connection_that_is_used_again_soon_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "QUIET_S", 10)

    backend, settings = ScriptedBackend(), Settings()
    async with served(Application(settings, backend), settings, grace_s=10) as wire:
        kept = [await wire.connect() for _ in range(3)]
        for each in kept[:2]:
            await (await each.send(PLAIN)).receive()
        # The third has sent nothing so far, and the second part of a head.
        await kept[1].send(PLAIN[:40])
        wire.stop()
        await asyncio.sleep(0.1)
        for each, rest in zip(kept, (PLAIN, PLAIN[40:], PLAIN), strict=True):
            last = await (await each.send(rest)).receive()
            assert (last.status, last.headers["connection"]) == (200, "close")


@in_each_loop
async def test_a_connection_that_stays_idle_is_closed_a_little_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "QUIET_S", 0.3)

    backend, settings, limit = ScriptedBackend(), Settings(), ConnectionLimit(100)
    async with served(Application(settings, backend), settings, limit, grace_s=10) as wire:
        kept = await wire.connect()
        await (await kept.send(PLAIN)).receive()
        limit.leave()
        await asyncio.sleep(0.4)
        assert len(limit) == 1, "as long as connections are taken, none is closed"
        fresh = await wire.connect()
        began_s = time.monotonic()
        wire.stop()
        assert await kept.at_end()
        assert await fresh.at_end()
        assert time.monotonic() - began_s >= 0.25


@in_each_loop
async def test_a_stream_that_began_before_leaves_a_connection_that_is_answered_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The head of its reply could not say that it was the last."""
    monkeypatch.setattr(connections, "QUIET_S", 10)

    backend, settings = ScriptedBackend(), Settings()
    async with served(Application(settings, backend), settings, grace_s=10) as wire:
        kept = await (await wire.connect()).send(STREAM)
        async with asyncio.timeout(10):
            head = await kept.reader.readuntil(b"\r\n\r\n")
            assert b"connection" not in head
            wire.stop()
            said = await kept.reader.readuntil(b'"code":1503')
            assert b'"done":0' in said
            await kept.send(b"0\r\n\r\n")
            await kept.reader.readuntil(b"0\r\n\r\n")
        last = await (await kept.send(PLAIN)).receive()
        assert (last.status, last.headers["connection"]) == (200, "close")


@in_each_loop
async def test_what_has_come_by_the_time_that_a_connection_has_been_idle_too_long_is_answered() -> None:
    """Though the loop was busy and has not read it yet."""
    backend, settings = ScriptedBackend(), Settings(keep_alive_s=0.3)
    async with served(Application(settings, backend), settings) as wire:
        kept = await wire.connect()
        await (await kept.send(PLAIN)).receive()
        await kept.send(PLAIN)
        # A long step of something else: when it ends, both the request and the time-out are due.
        time.sleep(0.5)  # noqa: ASYNC251
        assert (await kept.receive()).status == 200
