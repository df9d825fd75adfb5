"""Watches started workers: which of them die, hang, or are stopped or cut off with their nodes.

Each worker is also compared with what it should have: activations, and who waits for their slots.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.runtime.concurrency.beats import Beats
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.requests.calls import Ended, Held, Report
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.workers.cluster_nodes import AvoidedNodes
from engine.runtime.scheduler.workers.detector_worker import BEATS, DetectorWorker, Granted, look_s

_log = logging.getLogger(__name__)

_SHOWN: Final = 10
"""How many detectors of a dead worker a log line names."""

_REAPED_S: Final = 0.2


class Over(NamedTuple):
    """The worker no longer has an activation, and its report of the end was lost."""

    epoch: int


class Drop(NamedTuple):
    """The worker has an activation that it should not have."""

    epoch: int


class Tell(NamedTuple):
    """The worker does not know whether another detector waits for the slot of an activation."""

    epoch: int
    room_wanted: bool


Mend = Over | Drop | Tell


def compare(granted: Mapping[int, Granted], held: Sequence[Held]) -> list[Mend]:
    """Return what mends the difference between what a worker should have, by epochs, and what it has."""
    epochs = {one.epoch for one in held}
    mends: list[Mend] = [Over(epoch) for epoch, one in granted.items() if one.active and epoch not in epochs]
    for one in held:
        should = granted.get(one.epoch)
        if should is None:
            mends.append(Drop(one.epoch))
        elif should.active and should.room_wanted is not one.room_wanted:
            mends.append(Tell(one.epoch, should.room_wanted))
    return mends


@dataclass(eq=False)
class Comparison:
    """Compares a worker at each look.

    What differs may be on its way. So only what still differs at the next look is mended.
    """

    _worker: DetectorWorker
    _drop: Callable[[DetectorWorker, int], object]
    """Begins to drop an activation that the worker should not have."""
    _differs: Sequence[Mend] = ()

    async def look(self) -> None:
        """Ask the worker what it has. Raises ActorDied."""
        worker = self._worker
        held = await worker.port.held()
        for one in held:
            if one.epoch in worker.active:
                newest = one.newest_firing
                worker.reported(
                    Report(one.epoch, at_risk=one.at_risk, problem=one.problem, newest_firing=newest)
                )
        before, self._differs = self._differs, compare(worker.granted(), held)
        for mend in self._differs:
            if mend in before:
                self._mend(mend)

    def _mend(self, mend: Mend) -> None:
        worker = self._worker
        match mend:
            case Over():
                # It may have events in its journal that are in no snapshot.
                worker.reported(Report(mend.epoch, ended=Ended(journal=True)))
            case Tell():
                worker.port.make_room(mend.epoch, wanted=mend.room_wanted)
            case Drop():
                self._drop(worker, mend.epoch)


@dataclass(eq=False)
class WorkerWatch:
    """Watches each worker in three ways, until one of them finds it dead."""

    _settings: RuntimeSettings
    _avoided: AvoidedNodes
    _doubted: Callable[[], None]
    """Called when a worker begins to be doubtful, or no longer is."""
    _died: Callable[[DetectorWorker, bool], None]
    """Called when a worker turns out to be dead: perhaps silent, as its whole node may be."""
    _drop: Callable[[DetectorWorker, int], object]
    """Called with the epoch of an activation that a worker should not have."""

    def begin(self, worker: DetectorWorker) -> None:
        """Watch a worker from now on. Whoever ends the worker cancels its watchers."""
        watches = (self._await_end, self._compare, self._count_beats)
        worker.watchers = [asyncio.create_task(watch(worker)) for watch in watches]

    async def _await_end(self, worker: DetectorWorker) -> None:
        await worker.port.watch()
        await self._found_dead(worker, "died")

    async def _compare(self, worker: DetectorWorker) -> None:
        """Compare the worker, and detect that its event loop hangs, for example in a call to a disk."""
        hung_s, pace_s = self._settings.hung_s, look_s(self._settings)
        turns = worker.turns = Beats()
        look = Comparison(worker, self._drop).look
        try:
            await turns.count(look, pace_s, lambda: turns.missed * pace_s >= hung_s)
        except ActorDied as error:
            await self._found_dead(worker, f"cannot be reached: {error}")
        else:
            await self._found_dead(worker, f"has not answered for {hung_s:g} s")

    async def _count_beats(self, worker: DetectorWorker) -> None:
        """Detect that a worker was stopped, or that its node was stopped or cut off."""
        timeout_s = self._settings.node_timeout_s

        def lost() -> bool:
            # If its node counts as gone, no activation explains the silence.
            avoided = worker.port.node in self._avoided.now()
            return worker.heartbeat.dead(activating=worker.activating > 0 and not avoided)

        try:
            await worker.heartbeat.watch(worker.port.beat, timeout_s / BEATS, lost, self._doubted)
        except ActorDied as error:
            await self._found_dead(worker, f"cannot be reached: {error}")
        else:
            await self._found_dead(worker, f"has not answered for {timeout_s:g} s", silent=True)

    async def _found_dead(self, worker: DetectorWorker, how: str, *, silent: bool = False) -> None:
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
