"""A started worker with the detectors that are active in it, and how it is watched."""

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
"""During an activation, a worker may be silent for so many times as long: reading a large snapshot may block
all of its threads."""
_LOOK_S: Final = 1.0
_SHOWN: Final = 10
"""How many detectors of a dead worker a log line names."""
_REAPED_S: Final = 0.2

_log = logging.getLogger(__name__)

T = TypeVar("T")


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
        silent_s = self.turns.missed * _look_s(settings)
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


def _look_s(settings: RuntimeSettings) -> float:
    """Return the time between two looks at a worker."""
    return min(_LOOK_S, settings.hung_s / BEATS)


async def answered(call: Awaitable[T], hung_s: float) -> T:
    """Await a worker's answer. Raises ActorDied if it has not come after `hung_s`."""
    try:
        return await answer_within(call, hung_s)
    except TimeoutError:
        raise ActorDied(f"it has not answered for {hung_s:g} s") from None


_Mends = dict[tuple[int, str], Callable[[], object]]
"""What mends the differences between what a worker should have and what it has, by epochs and kinds."""


_Death = Coroutine[Any, Any, str]
"""Returns once a worker is dead, and then how that was found. Raises ActorDied."""


@dataclass(eq=False)
class WorkerWatch:
    """Watches each worker in three ways, until one of them finds it dead: it died, hangs, or is silent.

    Each worker is also compared with what it should have: activations, and who waits for their slots.
    """

    _settings: RuntimeSettings
    _nodes: Nodes
    _doubted: Callable[[], None]
    """Called when a worker begins to be doubtful, or no longer is."""
    _died: Callable[[DetectorWorker, bool], None]
    """Called when a worker turns out to be dead: perhaps silent, as its whole node may be."""
    _drop: Callable[[DetectorWorker, int], object]
    """Begins to drop the activation of an epoch that a worker should not have."""

    def begin(self, worker: DetectorWorker) -> None:
        """Watch a worker from now on. Whoever ends the worker cancels its watchers."""
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
        # One of the watchers is this task, which ends now.
        worker.watchers = [one for one in worker.watchers if one is not asyncio.current_task()]
        self._died(worker, silent)
        # Its connections end a moment before the kernel knows how it ended. Its successor need not wait.
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

        What differs may be on its way. So only what still differs at the next look is mended.
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
        """Pass on what a worker says of its activations, and return what mends those that differ.

        Activations that are being made or dropped may be there or not.
        """
        over = worker.active.keys() - worker.pending - {one.epoch for one in held}
        # The report of the end was lost. There may be events in the journal that are in no snapshot.
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
            # If its node counts as gone, no activation explains the silence.
            longer = worker.activating and worker.port.node not in self._nodes.avoided
            return worker.heartbeat.missed >= BEATS * (_ACTIVATING_FACTOR if longer else 1)

        def counted() -> None:
            nonlocal doubted_before
            if worker.doubtful is not doubted_before:
                doubted_before = worker.doubtful
                self._doubted()

        await worker.heartbeat.count(worker.port.beat, timeout_s / BEATS, lost, counted)
        return f"has not answered for {timeout_s:g} s"
