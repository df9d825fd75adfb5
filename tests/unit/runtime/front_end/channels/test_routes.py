"""How a channel asks for the route of its detector, and checks the one that it has."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import Address, Route
from engine.runtime.contract.requests.operations import CurrentRequest
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.channels.detector_channel import DetectorChannel
from engine.runtime.front_end.memory_budget import SMALL_BYTES_MAX, MemoryBudget
from engine.runtime.transport.link import Response

pytestmark = pytest.mark.skipping_clock

ADDRESS = Address("place", b"token")


class Worker:
    """The connection to a worker that never answers. As in each, the first batch has the number 1."""

    def __init__(self) -> None:
        self.aborted = False
        self.sent = 0
        self.link = SimpleNamespace(usable=True, abort=self._abort)

    def _abort(self) -> None:
        self.aborted = True

    def send(self, _settled: Callable[[Response | None], None], *_: Any) -> int:
        self.sent += 1
        return self.sent

    def is_announced(self, _number: int) -> bool:
        return False

    def withdraw(self, _number: int) -> None:
        pass


class Placed:
    """A detector that is in its first worker at first, and in the second one from its second epoch on."""

    def __init__(self) -> None:
        self.epoch = 1
        self.workers = [Worker(), Worker()]
        self.asked_large: list[bool] = []
        self.answers = asyncio.Event()
        self.answers.set()
        settings, memory = RuntimeSettings(data=Path("unused")), MemoryBudget(1 << 30)
        self.channel = DetectorChannel(
            "d",
            settings,
            self._locate,
            self._reach,  # type: ignore[arg-type]
            memory,
            waiting_for_slots=lambda: 0,
        )

    async def _locate(self, _detector_id: str, _left_epoch: int, large: bool = False) -> Route:
        self.asked_large.append(large)
        await self.answers.wait()
        return Route(f"worker {self.epoch}", ADDRESS, self.epoch)

    async def _reach(self, route: Route, _channel: DetectorChannel) -> Worker:
        return self.workers[route.epoch - 1]

    async def send(self, bytes_: int) -> None:
        """Have a request of this size in flight."""
        self.channel.submit(ops.evaluate_batch(b" " * bytes_), CurrentRequest())
        await asyncio.sleep(0.01)
        assert self.workers[0].sent == 1

    async def begin_check(self) -> None:
        self.answers.clear()
        self.channel.check_route(float("inf"))
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(("bytes_", "large"), [(10, False), (SMALL_BYTES_MAX, False), (1_000_000, True)])
async def test_whoever_asks_for_a_route_says_whether_what_waits_or_is_in_flight_is_large(bytes_, large):
    placed = Placed()
    await placed.send(bytes_)
    assert placed.asked_large == [large]
    placed.channel.left(1)
    await asyncio.sleep(0.01)
    assert placed.asked_large == [large] * 2
    if bytes_ != SMALL_BYTES_MAX:
        await placed.begin_check()
        assert placed.asked_large == [large] * 3


async def test_a_worker_that_does_not_tell_that_the_detector_has_left_is_given_up():
    placed = Placed()
    await placed.send(10)
    await placed.begin_check()
    placed.epoch = 2
    placed.answers.set()
    await asyncio.sleep(1)
    assert placed.workers[0].aborted


async def test_a_worker_that_has_told_it_is_not_given_up_because_the_next_batch_has_the_same_number():
    """Other detectors are in that worker by then, and would lose their batches."""
    placed = Placed()
    await placed.send(10)
    await placed.begin_check()
    placed.epoch = 2
    placed.channel.left(1)
    placed.answers.set()
    await asyncio.sleep(1)
    assert [one.sent for one in placed.workers] == [1, 1]
    assert not any(one.aborted for one in placed.workers)
