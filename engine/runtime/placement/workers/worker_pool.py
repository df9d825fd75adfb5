"""Worker processes: each holds one active detector or several, and is reused for others."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple

from engine.runtime.concurrency.background import Background
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.ports import WorkerStarter
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.placement.workers.cluster_nodes import Nodes, NoNodes, Occupancy
from engine.runtime.placement.workers.detector_worker import DetectorWorker, best
from engine.runtime.placement.workers.heartbeat import BEATS, AvoidedNodes
from engine.runtime.placement.workers.node_choice import NodeLoad
from snapshots.errors import StorageError

_log = logging.getLogger(__name__)

_SLOW_START_S: Final = 10.0
"""A start that takes longer may wait for a node that is gone, and no longer keeps others from starting."""


class _Need(NamedTuple):
    """What kind of worker a taker needs."""

    alone: bool
    """Whether it must have no other detectors."""
    node: str | None
    """The node that it must be on; None for any."""


class WorkerPool:
    """A pool of workers: a few are started ahead, and worn or dead ones are replaced.

    A taker holds an activation slot, so `max_resident` bounds the detectors in workers. The pool bounds the
    spare workers, and how many start at once: more than there are cores would slow each other down.
    """

    def __init__(
        self,
        starter: WorkerStarter,
        settings: RuntimeSettings,
        changed: Callable[[int], None] = lambda _: None,
        nodes: Nodes | None = None,
    ) -> None:
        """Start with no worker.

        `changed` is called with the number of started workers when that changes, and when the nodes run out
        of room for workers or have room again.
        """
        self._nodes = nodes or Nodes(NoNodes(), settings)
        self.no_room: str | None = None
        """The message that no node has room for a worker that is needed; None if one has."""
        self._starter = starter
        self._settings = settings
        self._changed = changed
        self._per_worker = settings.detectors_per_worker
        self._open: list[DetectorWorker] = []
        """The workers that take detectors; the last one used is the last."""
        self._takers: dict[asyncio.Future[DetectorWorker], _Need] = {}
        """The takers that wait, in order."""
        self._all: set[DetectorWorker] = set()
        self._starts: dict[asyncio.Task[None], str | None] = {}
        """The starts in progress, with the node that each is for; None for any."""
        self._slow_starts: set[asyncio.Task[None]] = set()
        self._start_nodes: Counter[str] = Counter()
        """How many workers are starting on each node."""
        self.avoided = AvoidedNodes()
        self._endings = Background()
        self._closed = False
        self._trimming: asyncio.TimerHandle | None = None
        """Set while there are more unused workers than are kept."""
        # More than are started ahead: otherwise every passivation would end a process, and every activation
        # would start one.
        self._unused_most = max(1, 2 * settings.spares)

    @property
    def all(self) -> frozenset[DetectorWorker]:
        """All started workers, used and spare."""
        return frozenset(self._all)

    async def take(self, *, alone: bool = False, node: str | None = None) -> DetectorWorker:
        """Return a worker for a detector, or wait until one has started; first come, first served.

        With `alone` it has no other detector, with `node` it is on that one.
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
        """Add a worker that is started already, perhaps with detectors."""
        self._add(worker)
        self._reopen(worker)

    async def drop(
        self, worker: DetectorWorker, epoch: int, activating: Awaitable[object] | None = None
    ) -> None:
        """Drop an unwanted detector from a worker that others share, once its activation is complete."""
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
        """Note that a worker has one detector fewer."""
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
        """Offer a worker as the last one used if it can take detectors; end it if it is no longer useful."""
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
        """Have surplus workers ended, unless activations need them soon: starting one takes half a second."""
        surplus = len(self._unused) > self._unused_most
        if surplus and self._trimming is None:
            self._trimming = asyncio.get_running_loop().call_later(self._settings.unused_s, self._trim)
        elif not surplus and self._trimming is not None:
            self._trimming.cancel()
            self._trimming = None

    def _trim(self) -> None:
        self._trimming = None
        # Those at the front are unused longest.
        for worker in self._unused[: -self._unused_most]:
            self.lose(worker)

    def lose(self, worker: DetectorWorker) -> None:
        """End a worker at once: it is worn out or dead, or its state must not answer any more."""
        worker.dead = True
        if worker not in self._all:
            return
        self._all.discard(worker)
        self._changed(len(self._all))
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
        """End every worker."""
        self._closed = True
        if self._trimming is not None:
            self._trimming.cancel()
        starts = self._starts.keys() | self._slow_starts
        for start in starts:
            start.cancel()
        await asyncio.gather(*starts, return_exceptions=True)
        for taker in self._takers:
            taker.cancel()
        for worker in list(self._all):
            self.lose(worker)
        await asyncio.gather(*self._endings, return_exceptions=True)

    # -- nodes -----------------------------------------------------------------------------------------------

    def node_for_worker(self, but: Collection[str] = ()) -> str | None:
        """Return the node for the next worker, other than those in `but`; None if no node has room."""
        return self._nodes.for_worker(self._occupancy(), but)

    def loads(self) -> list[NodeLoad]:
        """Return the loads of the nodes that take workers."""
        return self._nodes.loads(self._occupancy())

    def _occupancy(self) -> Occupancy:
        workers, detectors = self._start_nodes.copy(), Counter[str]()
        for worker in self._all:
            workers[worker.port.node] += 1
            detectors[worker.port.node] += worker.taken
        return Occupancy(workers, detectors)

    def look_for_room(self) -> None:
        """Repeat the pending starts if there is room again, perhaps on a node that Ray had to avoid."""
        if not self._nodes.accepts_workers(None):
            self._note_room(self._nodes.no_room)
        elif self.no_room is not None and self.node_for_worker() is not None:
            self._note_room(None)
            for start in self._starts.keys() | self._slow_starts:
                start.cancel()

    def avoid(self, node: str) -> None:
        """Start no worker on a silent node for a while, as long as another one has room."""
        _log.warning("no worker of the node %s answers; none is started there for a while", node)
        self.avoided.add(node)

    def clear(self, node: str) -> bool:
        """Give the workers of a node no more detectors; return whether the node has no worker left."""
        for worker in [one for one in self._all if one.port.node == node and not one.worn]:
            worker.worn = True
            self._reopen(worker)
        return not any(worker.port.node == node for worker in self._all) and not self._start_nodes[node]

    @property
    def _unused(self) -> list[DetectorWorker]:
        return [worker for worker in self._open if not worker.taken and not worker.heartbeat.doubtful]

    def _serve(self) -> None:
        """Hand workers with room to the takers that wait."""
        takers = list(self._takers.items()) if self._open else []
        ranks = self._nodes.ranks(self._occupancy()) if takers and self._nodes.several else {}
        for taker, need in takers:
            worker = best(self._with_room(need), ranks)
            if worker is None or taker.done():
                continue
            del self._takers[taker]
            worker.activations += 1
            worker.taken += 1
            worker.alone = need.alone
            if need.alone or worker.taken == self._per_worker:
                self._open.remove(worker)
            taker.set_result(worker)
        self._trim_if_surplus()

    def _with_room(self, need: _Need) -> Sequence[DetectorWorker]:
        workers = self._unused if need.alone else [one for one in self._open if not one.heartbeat.doubtful]
        return workers if need.node is None else [one for one in workers if one.port.node == need.node]

    def fill(self) -> None:
        """Start the workers that takers or the spares need, unless enough are starting already."""
        if self._closed:
            return
        self._fill_needs()
        waiting = [need for taker, need in self._takers.items() if not taker.done() and need.node is None]
        alone = sum(need.alone for need in waiting)
        waited_for = len(waiting) - alone
        starts = sum(node is None for node in self._starts.values())
        taken = sum(worker.taken for worker in self._all)
        room = sum(self._per_worker - worker.taken for worker in self._open if worker.taken)
        more = max(0, self._settings.max_resident - taken - len(waiting) - room)
        wanted = self._workers_for(waited_for) + alone + min(self._settings.spares, self._workers_for(more))
        wanted -= len(self._unused) + starts
        for _ in range(min(wanted, self._settings.starts_at_once - starts)):
            self._begin_start()

    def _fill_needs(self) -> None:
        """Start the workers that takers need on particular nodes."""
        needs = [need.node for taker, need in self._takers.items() if not taker.done() and need.node]
        starts = Counter(node for node in self._starts.values() if node is not None)
        for node, wanted in Counter(needs).items():
            for _ in range(min(wanted, self._settings.starts_at_once) - starts[node]):
                self._begin_start(node)

    def _begin_start(self, node: str | None = None) -> None:
        start = asyncio.create_task(self._start(node))
        self._starts[start] = node
        start.add_done_callback(self._start_over)
        asyncio.get_running_loop().call_later(_SLOW_START_S, self._start_is_slow, start)

    def _workers_for(self, detectors: int) -> int:
        return -(-detectors // self._per_worker)

    def _start_over(self, start: asyncio.Task[None]) -> None:
        self._starts.pop(start, None)
        self._slow_starts.discard(start)
        self.fill()

    def _start_is_slow(self, start: asyncio.Task[None]) -> None:
        slow = self.no_room is None and len(self._slow_starts) < self._settings.starts_at_once
        if start in self._starts and slow:
            del self._starts[start]
            self._slow_starts.add(start)
            self.fill()

    async def _start(self, needed_on: str | None) -> None:
        node = needed_on or self._chosen_node()
        if not self._nodes.accepts_workers(node):
            # What is started there would be ended at once.
            await asyncio.sleep(self._settings.retry_s)
            return
        self._start_nodes.update([node] if node else [])
        try:
            port = await self._starter.start(self._nodes.draining | self.avoided.now(), node)
        except Exception as error:  # noqa: BLE001 -- takers wait for a worker: try again
            _log.warning("a detector worker did not start: %s", error)
            await asyncio.sleep(self._settings.retry_s)
            return
        finally:
            self._start_nodes.subtract([node] if node else [])
        self._note_room(None)
        worker = DetectorWorker(port)
        if self._closed or port.node in self._nodes.draining:
            await self._end(worker)
            return
        port.reported = worker.reported
        self._open.append(self._add(worker))
        self._serve()

    def _chosen_node(self) -> str | None:
        """Return the node for the next worker; None if only Ray can find one, now or later."""
        if not self._nodes.known:
            return None
        node = self.node_for_worker(but=self.avoided.now()) or self.node_for_worker()
        self._note_room(None if node else self._nodes.no_room)
        return node

    def _note_room(self, no_room: str | None) -> None:
        if (self.no_room is None) is not (no_room is None):
            _log.warning("%s", no_room or "a node has room for a worker again")
            self.no_room = no_room
            self._changed(len(self._all))

    def _add(self, worker: DetectorWorker) -> DetectorWorker:
        self._all.add(worker)
        watches = (self._watch, self._ping, self._count_beats)
        worker.watchers = [asyncio.create_task(watch(worker)) for watch in watches]
        self._changed(len(self._all))
        return worker

    async def _watch(self, worker: DetectorWorker) -> None:
        await worker.port.watch()
        self._died(worker, "died")

    async def _ping(self, worker: DetectorWorker) -> None:
        """Detect that the event loop of a worker hangs, for example in a call to a disk."""
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

    async def _count_beats(self, worker: DetectorWorker) -> None:
        """Detect that a worker was stopped, or that its node was stopped or cut off."""
        timeout_s = self._settings.node_timeout_s

        def lost() -> bool:
            # If its node counts as gone, no activation explains the silence.
            avoided = worker.port.node in self.avoided.now()
            return worker.heartbeat.dead(activating=worker.activating > 0 and not avoided)

        def doubted() -> None:
            # Others replace it, or it takes detectors again.
            self._serve()
            self.fill()

        try:
            await worker.heartbeat.count(worker.port.beat, timeout_s / BEATS, lost, doubted)
        except ActorDied as error:
            self._died(worker, f"cannot be reached: {error}")
            return
        if all(one.heartbeat.doubtful for one in self._all if one.port.node == worker.port.node):
            self.avoid(worker.port.node)
        self._died(worker, f"has not answered for {timeout_s:g} s")

    def _died(self, worker: DetectorWorker, how: str) -> None:
        _log.warning("the detector worker %s %s", worker.port.name, how)
        # One of the watchers is this task, which ends now.
        worker.watchers = [one for one in worker.watchers if one is not asyncio.current_task()]
        self.lose(worker)

    async def _end(self, worker: DetectorWorker) -> None:
        with contextlib.suppress(ActorDied):
            await worker.port.end()
