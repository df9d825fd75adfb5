"""A detector queue, its worker, and what becomes of requests."""

import asyncio
from typing import Any

from engine.evaluation.wire.events import Done, Refused
from engine.language.diagnostics import Refusal
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests.operations import Operation
from tests.local_runtime.owners import event
from tests.local_runtime.service import LocalService, until
from tests.local_runtime.workers import LocalWorker


class Gate:
    """Holds calls of the kinds in `held` up until it is opened; `held_up` counts those that came to it."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.held_up = 0
        self._open = asyncio.Event()

    async def before(self, call: str) -> None:
        if call in self.held:
            self.held_up += 1
            await self._open.wait()

    def open(self) -> None:
        self.held.clear()
        self._open.set()
        self._open = asyncio.Event()


class Scene:
    """A service with one detector that has one rule, and a gate before its actors' calls."""

    def __init__(self, service: LocalService, gate: Gate, detector_id: str) -> None:
        self.service = service
        self.backend = service.backend
        self.gate = gate
        self.detector_id = detector_id

    @property
    def actor(self) -> LocalWorker:
        worker = self.service.actors.with_detector(self.detector_id)
        assert worker is not None, "the detector is active"
        return worker

    @property
    def batches(self) -> list[int]:
        return [size for one in self.service.actors.started for call, size in one.calls if call == "handle"]

    def ask(self, operation: Operation) -> asyncio.Task[Any]:
        return asyncio.create_task(self.backend.call(self.detector_id, operation))

    def asks(self, *timestamps_ms: float) -> list[asyncio.Task[Any]]:
        return [self.ask(event(timestamp_ms)) for timestamp_ms in timestamps_ms]

    async def held(self) -> None:
        """Come back when a call is held up."""
        await until(lambda: self.gate.held_up)


async def outcomes(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    """`done`, or the code of what came instead."""
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    return [outcome(result) for result in results]


def outcome(result: Any) -> Any:
    match result:
        case Done():
            return "done"
        case Refused(entries):
            return entries[0].code
        case Refusal() | DetectorUnavailable():
            return result.code
        case _:
            return result


async def clock_of(scene: Scene) -> float:
    """The time of the last event that was evaluated, in ms."""
    return scene.actor.actor._active.detector.clock_us / 1000
