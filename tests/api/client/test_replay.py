"""A replay over a line that loses requests and replies: every event is evaluated, and none twice."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from rich.console import Console

from api.cli.recordings.reading import RecordedEvent
from api.cli.replaying.replay import FiringsReport, Replay
from api.http.app import Application
from api.settings import Settings
from rule_detector_client import Client
from rule_detector_client.sending import Batches
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.wire import served
from tests.local_runtime.service import LocalService

EVENTS = 60
PASSED, REQUEST_LOST, REPLY_LOST = "passed", "request lost", "reply lost"


async def message(reader: asyncio.StreamReader) -> bytes:
    """One request or reply, whole."""
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head + await reader.readexactly(int(lengths[0].split(b":")[1]) if lengths else 0)


@asynccontextmanager
async def line(port: int, fates: Iterator[str]) -> AsyncIterator[int]:
    """Yield the port of a line to a server, on which each request meets the next fate."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await message(reader)
            fate = next(fates)
            if fate == REQUEST_LOST:
                return
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
            upstream_writer.write(request)
            reply = await message(upstream_reader)
            upstream_writer.close()
            # Half of a reply is none.
            writer.write(reply if fate == PASSED else reply[: len(reply) // 2])
            await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def fates(seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    return iter(lambda: chance.choice((PASSED, REQUEST_LOST, REPLY_LOST)), None)


def events() -> list[RecordedEvent]:
    return [RecordedEvent("e", n, {"a": n % 2}, n * 1000) for n in range(EVENTS)]


async def detector_of(caller: Caller) -> str:
    detector = await caller.detector()
    await caller.rule(detector, "a == 1")
    return detector


def seen(service: LocalService, detector: str) -> int:
    handle = service.actors.with_detector(detector)
    assert handle is not None
    active = handle.actor._active
    assert active is not None
    return active.detector.events_seen


@pytest.mark.parametrize("service", ["apart"], indirect=True)
@pytest.mark.parametrize("seed", range(3))
async def test_every_event_is_evaluated_and_none_twice(
    caller: Caller, service: LocalService, settings: Settings, seed: int
) -> None:
    detector = await detector_of(caller)
    report = FiringsReport()

    def replayed(port: int) -> None:
        with Client(f"http://127.0.0.1:{port}", BOOTSTRAP, sleep=lambda _: None) as there:
            batches = Batches[RecordedEvent](lambda event: len(event.json), events_max=4)
            replay = Replay(there, detector, Console(), report)
            for event in events():
                replay.send(batches.add(event))
            replay.send(batches.take())

    async with (
        served(Application(settings, service.backend), settings) as wire,
        line(wire.port, fates(seed)) as port,
    ):
        await asyncio.to_thread(replayed, port)
    assert (report.events, seen(service, detector)) == (EVENTS, EVENTS)
    assert [firing.count for firing in report.fired()] == [EVENTS // 2]
    assert report.refusals() == []
