"""A started worker, its heartbeat, and the detectors that are active in it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from engine.runtime.concurrency.beats import Beats, answer_within
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.requests.calls import Report
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.workers.worker_port import WorkerPort

BEATS: Final = 4
"""A silent worker counts as dead after this many beats."""

_DOUBTFUL_BEATS: Final = 2

T = TypeVar("T")

_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The callbacks of a detector that is active in a worker."""

    reported: Callable[[Report], None]
    on_death: Callable[[], None]
    """Called once if the worker dies while the detector is active in it."""
    detector_id: str = ""
    room_wanted: Callable[[], bool] = lambda: False
    """Returns whether another detector waits for the slot."""


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
    pending: set[int] = field(default_factory=set, repr=False)
    """The epochs of the activations that are being made or dropped."""
    watchers: list[asyncio.Task[None]] = field(default_factory=list, repr=False)
    heartbeat: Beats = field(default_factory=Beats, repr=False)
    """Whether its process answers."""
    turns: Beats = field(default_factory=Beats, repr=False)
    """Whether its event loop makes progress, which a call to a stalled disk keeps it from."""

    @property
    def doubtful(self) -> bool:
        """Whether it should get no detector for now, because it has not answered."""
        return self.heartbeat.missed >= _DOUBTFUL_BEATS

    def stalled(self, settings: RuntimeSettings) -> str | None:
        """Return the problem that it makes no progress, long before it counts as hung; or None."""
        silent_s = self.turns.missed * look_s(settings)
        if silent_s < settings.hung_s / BEATS:
            return None
        return (
            f"the detector worker {self.port.name} ({self.port.described()}) has made no progress for "
            f"{silent_s:g} s; does its disk answer?"
        )

    def enter(self, epoch: int, callbacks: Callbacks) -> None:
        """Note that a detector is active in it."""
        self.active[epoch] = callbacks
        self.pending.discard(epoch)

    def leave(self, epoch: int) -> None:
        self.active.pop(epoch, None)

    def reported(self, report: Report) -> None:
        """Pass a report on to its detector. One that arrives too early is made up for: see `WorkerWatch`."""
        if (callbacks := self.active.get(report.epoch)) is not None:
            callbacks.reported(report)

    @property
    def activating(self) -> int:
        return self.taken - len(self.active)


def look_s(settings: RuntimeSettings) -> float:
    """Return the time between two looks at a worker."""
    return min(_LOOK_S, settings.hung_s / BEATS)


async def answered(call: Awaitable[T], hung_s: float) -> T:
    """Await a worker's answer. Raises ActorDied if it has not come after `hung_s`."""
    try:
        return await answer_within(call, hung_s)
    except TimeoutError:
        raise ActorDied(f"it has not answered for {hung_s:g} s") from None
