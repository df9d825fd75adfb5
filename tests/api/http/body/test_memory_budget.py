"""Answers that nobody reads, and bodies for detectors that are not there: all within one budget."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.http.app import Application
from api.server.limits import ConnectionLimit
from api.settings import Settings
from engine.runtime.front_end.memory_budget import UNREAD_S
from tests.api.conftest import BOOTSTRAP
from tests.api.http.body.deaf_callers import Caller, Callers
from tests.api.wire import request
from tests.local_runtime.service import LocalService, local_service, until

MIB = 1024 * 1024
BUDGET = 16 * MIB
HOGS = 16
EVENTS = 400
LONG = "n" * 250
BIG = b"x" * (1500 * 1024)


class World:
    """A service with one detector that answers much, and one that answers little."""

    def __init__(self, service: LocalService, settings: Settings) -> None:
        self.service = service
        self.budget = service.backend.memory
        self.now_s = 100.0
        self.budget.clock_s = lambda: self.now_s
        limit = ConnectionLimit(1_000, settings.ahead_bytes_max, self.budget)
        self.callers = Callers(Application(settings, service.backend), limit)
        self.quiet = ""

    def ask(self, method: str, path: str, body: bytes = b"", *, reads: bool, **more: Any) -> Caller:
        return self.callers.call(request(method, f"/api/{path}", body, token=BOOTSTRAP, **more), reads=reads)

    async def asked(self, method: str, path: str, document: object = None, **more: Any) -> Any:
        """Ask as someone who reads; give the result."""
        body = b"" if document is None else json.dumps(document).encode()
        caller = self.ask(method, path, body, reads=True, **more)
        assert await caller.answer() == b"200", bytes(caller.came[:500])
        head, _, came = bytes(caller.came).partition(b"\r\n\r\n")
        assert b"chunked" not in head
        return json.loads(came)["result"]

    async def detector(self) -> str:
        return (await self.asked("POST", "detectors", {"name": LONG}))["id"]

    async def loud(self) -> str:
        """Return a detector at which twenty rules with long names fire at each event."""
        detector = await self.detector()
        for _ in range(20):
            await self.asked("POST", f"detectors/{detector}/rules", {"name": LONG, "condition": "a == 1"})
        return detector

    async def others_are_served(self) -> None:
        event = {"event": {"fields": {"a": 1}, "timestamp_ms": 0}}
        assert await self.asked("POST", f"detectors/{self.quiet}/evaluate", event) == {"actions": []}

    async def settle(self) -> None:
        """Wait until nothing more happens."""
        before = -1
        while before != (now := len(asyncio.all_tasks()) + self.callers.unsent + self.budget.held):
            before = now
            await asyncio.sleep(0.2)

    async def comes_through(self, method: str, path: str, body: bytes = b"", **more: Any) -> None:
        """Ask as someone who reads until it is served; time passes."""
        for _ in range(20):
            caller = self.ask(method, path, body, reads=True, **more)
            answering = asyncio.ensure_future(caller.answer())
            while not answering.done():
                self.now_s += UNREAD_S / 2 + 0.01
                await asyncio.wait({answering}, timeout=0.2)
            status = await answering
            if status == b"200":
                return
            assert status == b"429", bytes(caller.came[:500])
            assert b'"code":1401' in caller.came
            assert b"retry-after" in caller.came
        raise AssertionError("it is refused for ever")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    settings = Settings(
        data=tmp_path / "data",
        bootstrap_token=BOOTSTRAP,
        max_memory_mb=BUDGET // MIB,
        max_body_bytes=2 * MIB,
        max_batch_body_bytes=4 * MIB,
        max_reading_bytes=8 * MIB,
        max_answer_bytes=2 * MIB,
    )
    chosen = settings.runtime_settings()
    rest = {name: value for name, value in vars(chosen).items() if name != "data"}
    rest |= {"ask_s": 0.0, "shutdown_s": 0.1}
    async with local_service(settings.data, **rest) as service:
        world = World(service, settings)
        world.quiet = await world.detector()
        await world.others_are_served()
        yield world
        await world.callers.hang_up()


def batch() -> bytes:
    event = b'{"fields":{"a":1},"timestamp_ms":0}'
    return b'{"events":[' + b",".join([event] * EVENTS) + b"]}"


async def holds(world: World, hogs: list[Caller]) -> None:
    """Check that hogs who read nothing hold what there is, no more, and not for ever."""
    await world.settle()
    assert world.callers.most_unsent <= BUDGET
    assert world.budget.held <= BUDGET
    assert world.callers.unsent > BUDGET // 16
    await world.others_are_served()
    assert not any(hog.closed for hog in hogs)


async def test_batches_that_nobody_reads_stay_within_the_budget(world: World) -> None:
    detectors = [await world.loud() for _ in range(4)]
    hogs = [
        world.ask("POST", f"detectors/{detectors[hog % 4]}/evaluate/batch", batch(), reads=False)
        for hog in range(HOGS)
    ]
    await holds(world, hogs)
    assert 0 < sum(hog.first[9:12] == b"200" for hog in hogs) < HOGS
    await world.comes_through("POST", f"detectors/{detectors[0]}/evaluate/batch", batch())
    assert any(hog.closed for hog in hogs)


async def test_lists_of_detectors_that_nobody_reads_stay_within_the_budget(world: World) -> None:
    entries = [("a" * 32, LONG)] * 7_000

    async def detectors() -> list[tuple[str, str]]:
        return entries

    world.service.backend.detectors = detectors  # type: ignore[method-assign]
    hogs = [world.ask("GET", "detectors", reads=False) for _ in range(HOGS)]
    await holds(world, hogs)
    assert any(b"429" in hog.first for hog in hogs)
    await world.comes_through("GET", "detectors")


async def test_bodies_for_cold_detectors_stay_within_the_budget_and_others_are_served(world: World) -> None:
    detectors = [await world.detector() for _ in range(HOGS)]
    channels = world.service.backend.channels

    async def never(*_: object) -> Any:
        await asyncio.Event().wait()

    channels._locate = never  # type: ignore[assignment]
    hogs = []
    for one in detectors:
        # One after another, since the memory for bodies that are being read is small.
        before = world.budget.requests
        hog = world.ask("POST", f"detectors/{one}/evaluate", BIG, reads=True)
        hogs.append(hog)
        while not hog.first and world.budget.requests == before:  # noqa: ASYNC110 -- there is no event for it
            await asyncio.sleep(0.001)
    waiting = sum(channel._mailbox.bytes for channel in channels.values())
    # Each is copied when it is sent.
    assert BUDGET // 2 < 2 * waiting == world.budget.requests <= BUDGET
    refused = [hog for hog in hogs if hog.first]
    assert 0 < len(refused) < HOGS
    assert all(b"429" in hog.first and b'"code":1401' in hog.came for hog in refused)
    await world.others_are_served()
    channels.refuse_all()
    await until(lambda: all(hog.first for hog in hogs))
    await until(lambda: world.budget.held == 0)
