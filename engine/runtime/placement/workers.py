"""Worker processes: each holds one active detector or several, and is reused for others."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from engine.runtime.contract.calls import Report
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.ports import WorkerPort, WorkerStarter
from engine.runtime.contract.settings import RuntimeSettings
from snapshots.errors import StorageError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hosted:
    """Who is told what becomes of a detector that is active in a worker."""

    reported: Callable[[Report], None]
    on_death: Callable[[], None]
    """Called once if the worker dies while the detector is active in it."""


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
    hosted: dict[int, Hosted] = field(default_factory=dict, repr=False)
    """The active detectors, by the epochs of their activations."""
    early: list[Report] = field(default_factory=list, repr=False)
    """Reports of detectors whose activation is not known to be over."""
    watchers: list[asyncio.Task[None]] = field(default_factory=list, repr=False)

    def host(self, epoch: int, hosted: Hosted) -> None:
        """Note that a detector is active in it, and pass on what was reported of it already."""
        self.hosted[epoch] = hosted
        early = [report for report in self.early if report.epoch == epoch]
        self.early = [report for report in self.early if report.epoch != epoch]
        for report in early:
            hosted.reported(report)

    def leave(self, epoch: int) -> None:
        """Note that a detector is no longer active in it."""
        self.hosted.pop(epoch, None)

    def reported(self, report: Report) -> None:
        """Pass a report on."""
        if (hosted := self.hosted.get(report.epoch)) is not None:
            hosted.reported(report)
        elif self.activating:
            self.early.append(report)

    @property
    def activating(self) -> int:
        """The detectors that are about to be active in it."""
        return self.taken - len(self.hosted)


class DetectorWorkers:
    """A pool of workers: a few are started ahead, and worn or dead ones are replaced.

    A taker holds an activation slot, so `max_resident` bounds the detectors in workers. The pool bounds the
    spare workers, and how many start at once: more than there are cores would slow each other down.
    """

    def __init__(
        self,
        starter: WorkerStarter,
        settings: RuntimeSettings,
        changed: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Start with no worker. `changed` is called with the number of started workers when it changes."""
        self._starter = starter
        self._settings = settings
        self._changed = changed
        self._per_worker = settings.detectors_per_worker
        self._open: list[DetectorWorker] = []
        """The workers that take detectors; the last one used is the last."""
        self._takers: dict[asyncio.Future[DetectorWorker], bool] = {}
        """Those who wait, in order, and whether each needs a worker to itself."""
        self._all: set[DetectorWorker] = set()
        self._starts: set[asyncio.Task[None]] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self._closed = False
        # More than are started ahead: otherwise every passivation would end a process, and every activation
        # would start one.
        self._unused_most = max(1, 2 * settings.spares)

    @property
    def started(self) -> int:
        """The number of started workers, used and spare."""
        return len(self._all)

    @property
    def all(self) -> frozenset[DetectorWorker]:
        """All started workers, used and spare."""
        return frozenset(self._all)

    def start(self) -> None:
        """Begin to start spare workers."""
        self._fill()

    async def take(self, *, alone: bool = False) -> DetectorWorker:
        """Return a worker for a detector, or wait until one has started; first come, first served.

        With `alone` it has no other detector.
        """
        taker: asyncio.Future[DetectorWorker] = asyncio.get_running_loop().create_future()
        self._takers[taker] = alone
        self._serve()
        self._fill()
        try:
            return await taker
        except asyncio.CancelledError:
            if taker.done() and not taker.cancelled():
                self.give_back(taker.result())
            raise
        finally:
            self._takers.pop(taker, None)

    def adopt(self, worker: DetectorWorker) -> None:
        """Add a worker that is started already, perhaps with detectors."""
        self._add(worker)
        self._reopen(worker)

    async def drop(
        self, worker: DetectorWorker, epoch: int, activating: Awaitable[object] | None = None
    ) -> None:
        """End an activation that nobody wants, once it is complete: others share the worker."""
        try:
            async with asyncio.timeout(self._settings.activation_hung_s):
                if activating is not None:
                    # After a StorageError nothing is active.
                    with contextlib.suppress(StorageError):
                        await activating
                await worker.port.delete(epoch)
        except (ActorDied, TimeoutError):
            self.lose(worker)
        else:
            self.give_back(worker)

    def give_back(self, worker: DetectorWorker, resident_bytes: int = 0) -> None:
        """Note that a worker has a detector less than before."""
        if worker.dead:
            return
        worker.taken -= 1
        worker.alone = worker.alone and worker.taken > 0
        if not worker.activating:
            worker.early.clear()
        worker.worn = (
            worker.worn
            or worker.activations >= self._settings.activations_max * self._per_worker
            or resident_bytes > self._settings.actor_bytes_max
        )
        self._reopen(worker)

    def _reopen(self, worker: DetectorWorker) -> None:
        """Have a worker take more detectors if it can, as the last one used; end it if it is of no use."""
        with contextlib.suppress(ValueError):
            self._open.remove(worker)
        if not worker.taken and (worker.worn or self._surplus or self._closed):
            self.lose(worker)
        elif worker.worn or worker.alone or worker.taken >= self._per_worker:
            self._fill()
        else:
            self._open.append(worker)
            self._serve()

    def lose(self, worker: DetectorWorker) -> None:
        """End a worker at once: it is worn out, dead, or its state must not answer."""
        worker.dead = True
        if worker not in self._all:
            return
        self._all.discard(worker)
        self._changed(len(self._all))
        with contextlib.suppress(ValueError):
            self._open.remove(worker)
        for watcher in worker.watchers:
            watcher.cancel()
        ending = asyncio.create_task(self._end(worker))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        self._fill()
        hosted, worker.hosted = worker.hosted, {}
        for one in hosted.values():
            one.on_death()

    async def close(self) -> None:
        """End every worker."""
        self._closed = True
        for start in list(self._starts):
            start.cancel()
        await asyncio.gather(*self._starts, return_exceptions=True)
        for taker in self._takers:
            taker.cancel()
        for worker in list(self._all):
            self.lose(worker)
        await asyncio.gather(*self._endings, return_exceptions=True)

    @property
    def _surplus(self) -> bool:
        """Whether the pool has enough spare workers."""
        return len(self._unused) >= self._unused_most and not self._takers

    @property
    def _unused(self) -> list[DetectorWorker]:
        return [worker for worker in self._open if not worker.taken]

    def _serve(self) -> None:
        """Hand workers with room to those who wait for one."""
        for taker, alone in list(self._takers.items()) if self._open else ():
            worker = self._fullest(self._unused if alone else self._open)
            if worker is None or taker.done():
                continue
            del self._takers[taker]
            worker.activations += 1
            worker.taken += 1
            worker.alone = alone
            if alone or worker.taken == self._per_worker:
                self._open.remove(worker)
            taker.set_result(worker)

    def _fullest(self, workers: Sequence[DetectorWorker]) -> DetectorWorker | None:
        """Return the worker for the next detector: few workers are filled, unless activations wait there.

        Last in, first out: the workers unused longest stay unused, and have grown least.
        """
        found = reversed(workers)
        return max(found, key=lambda worker: (-worker.activating, worker.taken), default=None)

    def _fill(self) -> None:
        """Start the workers that are waited for or wanted as spares, unless they are starting already."""
        if self._closed:
            return
        unused = len(self._unused)
        waiting = [alone for taker, alone in self._takers.items() if not taker.done()]
        waited_for, alone = len(waiting) - sum(waiting), sum(waiting)
        taken = sum(worker.taken for worker in self._all)
        room = sum(self._per_worker - worker.taken for worker in self._open if worker.taken)
        more = max(0, self._settings.max_resident - taken - len(waiting) - room)
        wanted = self._workers_for(waited_for) + alone + min(self._settings.spares, self._workers_for(more))
        wanted -= unused + len(self._starts)
        for _ in range(min(wanted, self._settings.starts_at_once - len(self._starts))):
            start = asyncio.create_task(self._start())
            self._starts.add(start)
            start.add_done_callback(self._start_over)

    def _workers_for(self, detectors: int) -> int:
        return -(-detectors // self._per_worker)

    def _start_over(self, start: asyncio.Task[None]) -> None:
        self._starts.discard(start)
        self._fill()

    async def _start(self) -> None:
        try:
            port = await self._starter.start()
        except Exception as error:  # noqa: BLE001 -- takers wait for a worker: try again
            _log.warning("a detector worker did not start: %s", error)
            await asyncio.sleep(self._settings.retry_s)
            return
        worker = DetectorWorker(port)
        if self._surplus or self._closed:
            await self._end(worker)
            return
        port.reported = worker.reported
        self._open.append(self._add(worker))
        self._serve()

    def _add(self, worker: DetectorWorker) -> DetectorWorker:
        self._all.add(worker)
        worker.watchers = [asyncio.create_task(watch(worker)) for watch in (self._watch, self._ping)]
        self._changed(len(self._all))
        return worker

    async def _watch(self, worker: DetectorWorker) -> None:
        await worker.port.watch()
        self._died(worker, "died")

    async def _ping(self, worker: DetectorWorker) -> None:
        """Find out that a worker hangs, or was stopped by a signal."""
        hung_s = self._settings.hung_s
        try:
            while True:
                await asyncio.sleep(hung_s / 2)
                async with asyncio.timeout(hung_s):
                    await worker.port.ping()
        except TimeoutError:
            self._died(worker, f"has not answered for {hung_s:g} s")
        except ActorDied as error:
            self._died(worker, f"cannot be reached: {error}")

    def _died(self, worker: DetectorWorker, how: str) -> None:
        _log.warning("the detector worker %s %s", worker.port.name, how)
        # One of the watchers is this task, which ends now.
        worker.watchers = [one for one in worker.watchers if one is not asyncio.current_task()]
        self.lose(worker)

    async def _end(self, worker: DetectorWorker) -> None:
        with contextlib.suppress(ActorDied):
            await worker.port.end()
