"""Worker processes: each holds at most one active detector, and is reused for others."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.ports import WorkerPort, WorkerStarter
from engine.runtime.contract.settings import RuntimeSettings

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class DetectorWorker:
    """A started worker and its state."""

    port: WorkerPort
    activations: int = 0
    dead: bool = False
    on_death: Callable[[], None] | None = None
    """Called once if the worker dies while a detector is active in it."""
    watchers: list[asyncio.Task[None]] = field(default_factory=list, repr=False)


class DetectorWorkers:
    """A pool of workers: a few are started ahead, and worn or dead ones are replaced.

    A taker holds an activation slot, so `max_resident` bounds the workers in use. The pool bounds the spare
    workers, and how many start at once: more than there are cores would slow each other down.
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
        self._unused: deque[DetectorWorker] = deque()
        self._takers: deque[asyncio.Future[DetectorWorker]] = deque()
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

    async def take(self) -> DetectorWorker:
        """Return a spare worker, or wait until one has started; first come, first served."""
        taker: asyncio.Future[DetectorWorker] = asyncio.get_running_loop().create_future()
        self._takers.append(taker)
        self._serve()
        self._fill()
        try:
            return await taker
        except asyncio.CancelledError:
            if taker.done() and not taker.cancelled():
                self.give_back(taker.result())
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._takers.remove(taker)

    def adopt(self, port: WorkerPort) -> DetectorWorker:
        """Add a worker that is started already, as one in use."""
        return self._add(DetectorWorker(port, activations=1))

    def give_back(self, worker: DetectorWorker, resident_bytes: int = 0) -> None:
        """Return a worker that has no detector to the pool."""
        worker.on_death = None
        worn = (
            worker.activations >= self._settings.activations_max
            or resident_bytes > self._settings.actor_bytes_max
        )
        if worn or self._surplus or self._closed or worker.dead:
            self.lose(worker)
            return
        self._unused.append(worker)
        self._serve()

    def lose(self, worker: DetectorWorker) -> None:
        """End a worker at once: it is worn out, dead, or its state must not answer."""
        worker.on_death = None
        worker.dead = True
        if worker not in self._all:
            return
        self._all.discard(worker)
        self._changed(len(self._all))
        with contextlib.suppress(ValueError):
            self._unused.remove(worker)
        for watcher in worker.watchers:
            watcher.cancel()
        ending = asyncio.create_task(self._end(worker))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        self._fill()

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

    def _serve(self) -> None:
        """Hand spare workers to those who wait for one."""
        while self._unused and self._takers:
            taker = self._takers.popleft()
            if taker.done():
                continue
            # Last in, first out: the workers unused longest stay unused, and have grown least.
            worker = self._unused.pop()
            worker.activations += 1
            taker.set_result(worker)

    def _fill(self) -> None:
        """Start the workers that are waited for or wanted as spares, unless they are starting already."""
        if self._closed:
            return
        waited_for = sum(not taker.done() for taker in self._takers)
        used = len(self._all) - len(self._unused)
        room = max(0, self._settings.max_resident - used - waited_for)
        wanted = waited_for + min(self._settings.spares, room) - len(self._unused) - len(self._starts)
        for _ in range(min(wanted, self._settings.starts_at_once - len(self._starts))):
            start = asyncio.create_task(self._start())
            self._starts.add(start)
            start.add_done_callback(self._start_over)

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
        self._unused.append(self._add(worker))
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
        on_death = worker.on_death
        # One of the watchers is this task, which ends now.
        worker.watchers = [one for one in worker.watchers if one is not asyncio.current_task()]
        self.lose(worker)
        if on_death is not None:
            on_death()

    async def _end(self, worker: DetectorWorker) -> None:
        with contextlib.suppress(ActorDied):
            await worker.port.end()
