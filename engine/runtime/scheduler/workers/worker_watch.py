"""Watches started workers: which of them die, hang, or are stopped or cut off with their nodes.

Each worker is also compared with what it should have: activations, and who waits for their slots.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from engine.runtime.concurrency.beats import Beats
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.requests.calls import Ended, Held, Report
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.workers.cluster_nodes import Nodes
from engine.runtime.scheduler.workers.detector_worker import BEATS, DetectorWorker, look_s

_log = logging.getLogger(__name__)

_SHOWN: Final = 10
"""How many detectors of a dead worker a log line names."""

_REAPED_S: Final = 0.2


_ACTIVATING_FACTOR: Final = 4
"""During an activation, a worker may be silent for so many times as long: reading a large snapshot may block
all of its threads."""

_Mends = dict[tuple[int, str], Callable[[], object]]
"""What mends the differences between what a worker should have and what it has, by epochs and kinds."""


@dataclass(eq=False)
class WorkerWatch:
    """Watches each worker in three ways, until one of them finds it dead."""

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
        worker.watchers = [asyncio.create_task(watch(worker)) for watch in watches]

    async def _await_end(self, worker: DetectorWorker) -> None:
        await worker.port.watch()
        await self._found_dead(worker, "died")

    async def _compare(self, worker: DetectorWorker) -> None:
        """Compare the worker, and detect that its event loop hangs, for example in a call to a disk.

        What differs may be on its way. So only what still differs at the next look is mended.
        """
        hung_s, pace_s = self._settings.hung_s, look_s(self._settings)
        turns = worker.turns = Beats()
        before: _Mends = {}

        async def look() -> None:
            nonlocal before
            found = self._differences(worker, await worker.port.held())
            for key, mend in found.items():
                if key in before:
                    mend()
            before = found

        try:
            await turns.count(look, pace_s, lambda: turns.missed * pace_s >= hung_s)
        except ActorDied as error:
            await self._found_dead(worker, f"cannot be reached: {error}")
        else:
            await self._found_dead(worker, f"has not answered for {hung_s:g} s")

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

    async def _count_beats(self, worker: DetectorWorker) -> None:
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

        try:
            await worker.heartbeat.count(worker.port.beat, timeout_s / BEATS, lost, counted)
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
