"""The pool of worker processes, each of which has one or several active detectors, and is reused."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.runtime.concurrency.background import Background
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.workers.cluster_nodes import Nodes
from engine.runtime.scheduler.workers.detector_worker import DetectorWorker, WorkerWatch, answered
from engine.runtime.scheduler.workers.worker_port import WorkerPort, WorkerStarter
from engine.runtime.scheduler.workers.worker_starts import WorkerStarts


class _Need(NamedTuple):
    """The kind of worker that a taker needs."""

    alone: bool
    """Whether the worker must have no other detectors."""
    node: str | None
    """The node that the worker must be on; None for any."""


class WorkerPool:
    """A pool of workers: a few are started ahead, and worn-out or dead ones are replaced.

    A taker has an activation slot, so `max_resident` bounds the number of detectors in workers. The pool
    bounds the number of spare workers, and of concurrent starts, which would slow each other down.
    """

    def __init__(
        self,
        starter: WorkerStarter,
        settings: RuntimeSettings,
        nodes: Nodes,
        changed: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`changed` is called with the number of started workers when that changes.

        It is also called when the nodes run out of room for workers or have room again.
        """
        self._nodes = nodes
        self._settings = settings
        self._changed = changed
        self._per_worker = settings.detectors_per_worker
        self._open: list[DetectorWorker] = []
        """The workers that take detectors, most recently used last."""
        self._takers: dict[asyncio.Future[DetectorWorker], _Need] = {}
        """The takers that wait, in order."""
        self._all: set[DetectorWorker] = set()
        self.starts = WorkerStarts(
            starter,
            settings,
            self._nodes,
            started=self._started,
            over=self.fill,
            room_changed=self._tell_change,
        )
        self._endings = Background()
        self._watch = WorkerWatch(
            settings,
            self._nodes,
            self._doubted,
            self._died,
            lambda worker, epoch: self._endings.begin(self.drop(worker, epoch)),
        )
        self._closed = False
        self._trimming: asyncio.TimerHandle | None = None
        """Set while there are too many unused workers."""
        # This is more than are started ahead: otherwise every passivation would end a process, and every
        # activation would start one.
        self._unused_most = max(1, 2 * settings.spares)

    @property
    def all(self) -> frozenset[DetectorWorker]:
        """All started workers, used and spare."""
        return frozenset(self._all)

    @property
    def no_room(self) -> str | None:
        """The message that no node has room for a needed worker; None if one has."""
        return self.starts.no_room

    async def take(self, *, alone: bool = False, node: str | None = None) -> DetectorWorker:
        """Return a worker for a detector, or wait in turn until one has started.

        `alone` asks for a worker without other detectors, `node` for one on that node.
        """
        taker: asyncio.Future[DetectorWorker] = asyncio.get_running_loop().create_future()
        self._takers[taker] = _Need(alone, node)
        self._serve()
        self.fill()
        try:
            return await taker
        except asyncio.CancelledError:
            if taker.done() and not taker.cancelled():
                self.give_back(taker.result())
            raise
        finally:
            self._takers.pop(taker, None)

    def adopt(self, worker: DetectorWorker) -> None:
        """Add a running worker, perhaps with detectors."""
        self._add(worker)
        self._reopen(worker)

    async def drop(self, worker: DetectorWorker, epoch: int) -> None:
        """Drop an unwanted detector from a worker, unsaved; end the worker if that is impossible."""
        worker.pending.add(epoch)
        try:
            await answered(worker.port.delete(epoch), self._settings.activation_hung_s)
        except ActorDied:
            self.lose(worker)
        finally:
            worker.pending.discard(epoch)

    async def drop_taken(self, worker: DetectorWorker, epoch: int) -> None:
        """Drop a detector that the worker's count includes."""
        await self.drop(worker, epoch)
        self.give_back(worker)

    def give_back(self, worker: DetectorWorker, resident_bytes: int = 0) -> None:
        """Note that a worker has one detector fewer."""
        if worker.dead:
            return
        worker.taken -= 1
        worker.alone = worker.alone and worker.taken > 0
        worker.worn = (
            worker.worn
            or worker.activations >= self._settings.activations_max * self._per_worker
            or resident_bytes > self._settings.actor_bytes_max
        )
        self._reopen(worker)

    def _reopen(self, worker: DetectorWorker) -> None:
        """Offer a worker as the most recently used if it can take detectors; end it if it is worn out."""
        with contextlib.suppress(ValueError):
            self._open.remove(worker)
        if not worker.taken and (worker.worn or self._closed):
            self.lose(worker)
        elif worker.worn or worker.alone or worker.taken >= self._per_worker:
            self.fill()
        else:
            self._open.append(worker)
            self._serve()

    def _trim_if_surplus(self) -> None:
        """Stop surplus workers after a while; activations may need them, and a start takes half a second."""
        surplus = len(self._unused) > self._unused_most
        if surplus and self._trimming is None:
            self._trimming = asyncio.get_running_loop().call_later(self._settings.unused_s, self._trim)
        elif not surplus and self._trimming is not None:
            self._trimming.cancel()
            self._trimming = None

    def _trim(self) -> None:
        self._trimming = None
        # Workers at the front have been unused longest.
        for worker in self._unused[: -self._unused_most]:
            self.lose(worker)

    def lose(self, worker: DetectorWorker) -> None:
        """End a worker at once, because it is worn out or dead, or its state must not answer any more."""
        worker.dead = True
        if worker not in self._all:
            return
        self._all.discard(worker)
        self._tell_change()
        with contextlib.suppress(ValueError):
            self._open.remove(worker)
        for watcher in worker.watchers:
            watcher.cancel()
        self._endings.begin(self._end(worker))
        self.fill()
        active, worker.active = worker.active, {}
        for one in active.values():
            one.on_death()

    async def close(self) -> None:
        self._closed = True
        await self.starts.close()
        for taker in self._takers:
            taker.cancel()
        for worker in list(self._all):
            self.lose(worker)
        await asyncio.gather(*self._endings, return_exceptions=True)

    # -- nodes -----------------------------------------------------------------------------------------------

    def clear(self, node: str) -> bool:
        """Stop giving detectors to the workers of a node; return whether it has no worker left."""
        for worker in [one for one in self._all if one.port.node == node and not one.worn]:
            worker.worn = True
            self._reopen(worker)
        return not any(worker.port.node == node for worker in self._all)

    # -- takers ----------------------------------------------------------------------------------------------

    @property
    def _unused(self) -> list[DetectorWorker]:
        return [worker for worker in self._open if not worker.taken and not worker.doubtful]

    def _serve(self) -> None:
        """Hand workers with room to the takers that wait."""
        for taker, need in list(self._takers.items()):
            workers = self._with_room(need)
            if not workers or taker.done():
                continue
            # Prefer a worker without pending activations, then the fullest one, then the most recently used:
            # the workers unused longest stay unused, and have grown least.
            worker = max(reversed(workers), key=lambda one: (-one.activating, one.taken))
            del self._takers[taker]
            worker.activations += 1
            worker.taken += 1
            worker.alone = need.alone
            if need.alone or worker.taken == self._per_worker:
                self._open.remove(worker)
            taker.set_result(worker)
        self._trim_if_surplus()

    def _with_room(self, need: _Need) -> Sequence[DetectorWorker]:
        workers = self._unused if need.alone else [one for one in self._open if not one.doubtful]
        return workers if need.node is None else [one for one in workers if one.port.node == need.node]

    def fill(self, besides: int = 0) -> None:
        """Start the workers that takers need, and spare ones, unless enough are starting already.

        `besides` is the number of unused workers that do not count as spare.
        """
        if self._closed:
            return
        self._fill_needs()
        waiting = [need for taker, need in self._takers.items() if not taker.done() and need.node is None]
        alone = sum(need.alone for need in waiting)
        waited_for = len(waiting) - alone
        starts = self.starts.pending(None)
        taken = sum(worker.taken for worker in self._all)
        room = sum(self._per_worker - worker.taken for worker in self._open if worker.taken)
        more = max(0, self._settings.max_resident - taken - len(waiting) - room)
        ready = min(self._settings.spares + besides, self._workers_for(more))
        wanted = self._workers_for(waited_for) + alone + ready
        wanted -= len(self._unused) + starts
        for _ in range(min(wanted, self._settings.starts_at_once - starts)):
            self.starts.begin()

    def _fill_needs(self) -> None:
        """Start the workers that takers need on particular nodes."""
        needs = [need.node for taker, need in self._takers.items() if not taker.done() and need.node]
        for node, wanted in Counter(needs).items():
            for _ in range(min(wanted, self._settings.starts_at_once) - self.starts.pending(node)):
                self.starts.begin(node)

    def _workers_for(self, detectors: int) -> int:
        return -(-detectors // self._per_worker)

    # -- workers ---------------------------------------------------------------------------------------------

    def _started(self, port: WorkerPort) -> None:
        worker = DetectorWorker(port)
        port.reported = worker.reported
        self._add(worker)
        self._open.append(worker)
        self._serve()

    def _add(self, worker: DetectorWorker) -> None:
        self._all.add(worker)
        self._watch.begin(worker)
        self._tell_change()

    def _doubted(self) -> None:
        # Other workers replace it, or it takes detectors again.
        self._serve()
        self.fill()

    def _died(self, worker: DetectorWorker, silent: bool) -> None:
        node = worker.port.node
        if silent and all(one.doubtful for one in self._all if one.port.node == node):
            self._nodes.avoid(node)
        self.lose(worker)

    async def _end(self, worker: DetectorWorker) -> None:
        with contextlib.suppress(ActorDied):
            await worker.port.end()

    def _tell_change(self) -> None:
        self._changed(len(self._all))
