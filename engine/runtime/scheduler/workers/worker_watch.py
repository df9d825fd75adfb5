"""Watches started workers: which of them die, hang, or are stopped or cut off with their nodes."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from engine.runtime.concurrency.beats import Beats
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.workers.comparison import Comparison
from engine.runtime.scheduler.workers.detector_worker import DetectorWorker, look_s
from engine.runtime.scheduler.workers.heartbeat import BEATS, AvoidedNodes

_log = logging.getLogger(__name__)

_SHOWN: Final = 10
"""How many detectors of a dead worker a log line names."""
_REAPED_S: Final = 0.2


class Died(Protocol):
    """Called when a worker turns out to be dead."""

    def __call__(self, worker: DetectorWorker, *, silent: bool) -> None:
        """`silent` says that it has stopped answering, which its whole node may have."""


class WorkerWatch:
    """Watches each worker in three ways, until one of them finds it dead.

    `doubted` is called when a worker begins to be doubtful, or no longer is, and `drop` with the epoch of an
    activation that a worker should not have.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        avoided: AvoidedNodes,
        doubted: Callable[[], None],
        died: Died,
        drop: Callable[[DetectorWorker, int], object],
    ) -> None:
        self._settings = settings
        self._avoided = avoided
        self._doubted = doubted
        self._died = died
        self._drop = drop

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
        self._died(worker, silent=silent)
        # Its connections end a moment before the kernel knows how it ended. Its successor need not wait.
        await asyncio.sleep(_REAPED_S)
        of = f"; its detectors: {', '.join(had[:_SHOWN])}" if had else ""
        more = f" and {len(had) - _SHOWN} more" if len(had) > _SHOWN else ""
        _log.warning(
            "the detector worker %s (%s) %s%s%s", worker.port.name, worker.port.described(), how, of, more
        )
