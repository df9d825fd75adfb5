"""A started worker, and the detectors that are active in it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from engine.runtime.concurrency.beats import Beats, answer_within
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.ports import WorkerPort
from engine.runtime.contract.requests.calls import Report
from engine.runtime.placement.workers.heartbeat import BEATS, Heartbeat

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The callbacks of a detector that is active in a worker."""

    reported: Callable[[Report], None]
    on_death: Callable[[], None]
    """Called once if the worker dies while the detector is active in it."""
    detector_id: str = ""


@dataclass(eq=False, slots=True)
class DetectorWorker:
    """A started worker, and the detectors that are active in it or about to be."""

    port: WorkerPort
    activations: int = 0
    taken: int = 0
    """The detectors that are active in it or about to be."""
    alone: bool = False
    """Whether its only detector is to share it with no other."""
    worn: bool = False
    """Whether it takes no more detectors, and is ended once it has none."""
    dead: bool = False
    active: dict[int, Callbacks] = field(default_factory=dict, repr=False)
    """The active detectors, by the epochs of their activations."""
    early: list[Report] = field(default_factory=list, repr=False)
    """Reports of detectors whose activation is not complete yet."""
    watchers: list[asyncio.Task[None]] = field(default_factory=list, repr=False)
    heartbeat: Heartbeat = field(default_factory=Heartbeat, repr=False)
    turns: Beats = field(default_factory=Beats, repr=False)
    """Whether its event loop makes progress, which a call to a stalled disk keeps it from."""

    def stalled(self, hung_s: float) -> str | None:
        """Return the problem that it makes no progress, long before it counts as hung; None if it does."""
        if not self.turns.missed:
            return None
        return (
            f"the detector worker {self.port.name} ({self.port.described()}) has made no progress for "
            f"{self.turns.missed * hung_s / BEATS:g} s; does its disk answer?"
        )

    def enter(self, epoch: int, callbacks: Callbacks) -> None:
        """Note that a detector is active in it, and pass on the reports that came early."""
        self.active[epoch] = callbacks
        early = [report for report in self.early if report.epoch == epoch]
        self.early = [report for report in self.early if report.epoch != epoch]
        for report in early:
            callbacks.reported(report)

    def leave(self, epoch: int) -> None:
        """Note that a detector is no longer active in it."""
        self.active.pop(epoch, None)

    def reported(self, report: Report) -> None:
        """Pass a report on to its detector."""
        if (callbacks := self.active.get(report.epoch)) is not None:
            callbacks.reported(report)
        elif self.activating:
            self.early.append(report)

    @property
    def activating(self) -> int:
        """The detectors that are being activated in it."""
        return self.taken - len(self.active)


def best(workers: Sequence[DetectorWorker]) -> DetectorWorker | None:
    """Return the worker for the next detector: one where no activations wait.

    Few workers are filled. Last in, first out: the workers unused longest stay unused, and have grown least.
    """
    return max(reversed(workers), key=lambda worker: (-worker.activating, worker.taken), default=None)


async def answered(call: Awaitable[T], hung_s: float) -> T:
    """Await a worker's answer. Raises ActorDied if it has not come after `hung_s`."""
    try:
        return await answer_within(call, hung_s)
    except TimeoutError:
        raise ActorDied(f"it has not answered for {hung_s:g} s") from None
