"""A started worker with its active detectors, and how it is watched."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from engine.runtime.concurrency.beats import Beats, answer_within
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.requests.calls import Ended, Held, Report
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.workers.cluster_nodes import Nodes
from engine.runtime.scheduler.workers.worker_port import WorkerPort

BEATS: Final = 4
"""A silent worker counts as dead after this many beats."""

_DOUBTFUL_BEATS: Final = 2
_ACTIVATING_FACTOR: Final = 4
"""During an activation, a worker may be silent this many times longer, because reading a large snapshot may
block all of its threads."""
_LOOK_S: Final = 1.0
_SHOWN: Final = 10
"""How many detectors of a dead worker a log record names."""
_REAPED_S: Final = 0.2

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The callbacks for an active detector in a worker."""

    reported: Callable[[Report], None]
    on_death: Callable[[], None]
    """Called once if the worker dies while the detector is active in it."""
    detector_id: str = ""
    room_wanted: Callable[[], bool] = lambda: False
    """Returns whether another detector waits for the slot."""


@dataclass(eq=False, slots=True)
class DetectorWorker:
    """A started worker, and the detectors that are active in it or about to be activated."""

    port: WorkerPort
    activations: int = 0
    taken: int = 0
    """The number of detectors that are active in it or about to be activated."""
    alone: bool = False
    """Whether it is reserved for its only detector."""
    worn: bool = False
    """Whether it takes no more detectors, and ends with its last one."""
    dead: bool = False
    active: dict[int, Callbacks] = field(default_factory=dict, repr=False)
    """The active detectors, by the epochs of their activations."""
    pending: set[int] = field(default_factory=set, repr=False)
    """The epochs of the activations that are beginning or being dropped."""
    watchers: list[asyncio.Task[None]] = field(default_factory=list, repr=False)
    heartbeat: Beats = field(default_factory=Beats, repr=False)
    """Whether its process answers."""
    turns: Beats = field(default_factory=Beats, repr=False)
    """Whether its event loop makes progress: a call to a stalled disk blocks it."""

    @property
    def doubtful(self) -> bool:
        """Whether it should not get detectors for now, because it has not answered."""
        return self.heartbeat.missed >= _DOUBTFUL_BEATS

    def stalled(self, settings: RuntimeSettings) -> str | None:
        """Return the problem that it makes no progress, long before it counts as hung; None if it does."""
        silent_s = self.turns.missed * _look_s(settings)
        if silent_s < settings.hung_s / BEATS:
            return None
        return (
            f"the detector worker {self.port.name} ({self.port.described()}) has made no progress for "
            f"{silent_s:g} s; does its disk answer?"
        )

    def enter(self, epoch: int, callbacks: Callbacks) -> None:
        """Note that a detector is active in this worker."""
        self.active[epoch] = callbacks
        self.pending.discard(epoch)

    def leave(self, epoch: int) -> None:
        self.active.pop(epoch, None)

    def reported(self, report: Report) -> None:
        """Pass a report on to its detector. WorkerWatch makes up for reports that came too early."""
        if (callbacks := self.active.get(report.epoch)) is not None:
            callbacks.reported(report)

    @property
    def activating(self) -> int:
        return self.taken - len(self.active)


def _look_s(settings: RuntimeSettings) -> float:
    """Return the interval at which a worker is compared."""
    return min(_LOOK_S, settings.hung_s / BEATS)


async def answered(call: Awaitable[T], hung_s: float) -> T:
    """Await a worker's answer. Raises ActorDied after `hung_s`."""
    try:
        return await answer_within(call, hung_s)
    except TimeoutError:
        raise ActorDied(f"it has not answered for {hung_s:g} s") from None


_Mends = dict[tuple[int, str], Callable[[], object]]
"""The repairs of differences between the activations a worker should have and has, by epoch and kind."""


_Death = Coroutine[Any, Any, str]
"""Waits until a worker is dead, and returns how that was found. Raises ActorDied."""


@dataclass(eq=False)
class WorkerWatch:
    """Watches each worker in three ways, until one of them finds that it died, hangs, or is silent.

    Also compares the activations of each worker, and who waits for their slots, with what they should be.
    """

    _settings: RuntimeSettings
    _nodes: Nodes
    _doubted: Callable[[], None]
    """Called when a worker becomes doubtful, or no longer is."""
    _died: Callable[[DetectorWorker, bool], None]
    """Called when a worker turns out to be dead, and whether it was silent, as its whole node may be."""
    _drop: Callable[[DetectorWorker, int], object]
    """Begins to drop an activation, by epoch, that a worker should not have."""

    def begin(self, worker: DetectorWorker) -> None:
        """Begin to watch a worker. Code that ends the worker must cancel its watchers."""
        watches = (self._await_end, self._compare, self._count_beats)
        worker.watchers = [asyncio.create_task(self._until_dead(worker, watch)) for watch in watches]

    async def _until_dead(self, worker: DetectorWorker, watch: Callable[[DetectorWorker], _Death]) -> None:
        silent = False
        try:
            how = await watch(worker)
            silent = watch == self._count_beats
        except ActorDied as error:
            how = f"cannot be reached: {error}"
        had = [one.detector_id for one in worker.active.values()]
        # This task is one of the watchers; it ends now.
        worker.watchers = [one for one in worker.watchers if one is not asyncio.current_task()]
        self._died(worker, silent)
        # Its connections end shortly before the kernel knows how; a successor need not wait.
        await asyncio.sleep(_REAPED_S)
        of = f"; its detectors: {', '.join(had[:_SHOWN])}" if had else ""
        more = f" and {len(had) - _SHOWN} more" if len(had) > _SHOWN else ""
        _log.warning(
            "the detector worker %s (%s) %s%s%s", worker.port.name, worker.port.described(), how, of, more
        )

    async def _await_end(self, worker: DetectorWorker) -> str:
        await worker.port.watch()
        return "died"

    async def _compare(self, worker: DetectorWorker) -> str:
        """Compare the worker, and detect that its event loop hangs, for example in a call to a disk.

        A difference may only mean that a message is on its way, so it is repaired if it persists.
        """
        hung_s, pace_s = self._settings.hung_s, _look_s(self._settings)
        turns = worker.turns = Beats()
        before: _Mends = {}

        async def look() -> None:
            nonlocal before
            found = self._differences(worker, await worker.port.held())
            for key, mend in found.items():
                if key in before:
                    mend()
            before = found

        await turns.count(look, pace_s, lambda: turns.missed * pace_s >= hung_s)
        return f"has not answered for {hung_s:g} s"

    def _differences(self, worker: DetectorWorker, held: Sequence[Held]) -> _Mends:
        """Pass on the state of a worker's activations, and return the repairs of those that differ.

        Activations that are beginning or being dropped may or may not be there.
        """
        over = worker.active.keys() - worker.pending - {one.epoch for one in held}
        # The report of their end was lost. The journal may have events that are in no snapshot.
        ended = {epoch: Report(epoch, ended=Ended(journal=True)) for epoch in over}
        mends: _Mends = {(epoch, "over"): partial(worker.reported, ended[epoch]) for epoch in over}
        for one in held:
            epoch = one.epoch
            if (active := worker.active.get(epoch)) is not None:
                newest = one.newest_firing
                worker.reported(Report(epoch, at_risk=one.at_risk, problem=one.problem, newest_firing=newest))
                if (wanted := active.room_wanted()) is not one.room_wanted:
                    mends[epoch, f"wanted: {wanted}"] = partial(worker.port.make_room, epoch, wanted=wanted)
            elif epoch not in worker.pending:
                mends[epoch, "unwanted"] = partial(self._drop, worker, epoch)
        return mends

    async def _count_beats(self, worker: DetectorWorker) -> str:
        """Detect that a worker was stopped, or that its node was stopped or cut off."""
        timeout_s = self._settings.node_timeout_s
        doubted_before = worker.doubtful

        def lost() -> bool:
            # Once its node counts as gone, an activation does not explain the silence.
            longer = worker.activating and worker.port.node not in self._nodes.avoided
            return worker.heartbeat.missed >= BEATS * (_ACTIVATING_FACTOR if longer else 1)

        def counted() -> None:
            nonlocal doubted_before
            if worker.doubtful is not doubted_before:
                doubted_before = worker.doubtful
                self._doubted()

        await worker.heartbeat.count(worker.port.beat, timeout_s / BEATS, lost, counted)
        return f"has not answered for {timeout_s:g} s"
