"""The nodes and actors of a cluster without Ray."""

import asyncio
import itertools
from functools import partial
from typing import TYPE_CHECKING

from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.figures import NodeFigures
from engine.runtime.contract.requests.calls import Address
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.scheduler.workers.worker_port import Survivor
from engine.runtime.transport.link_client import LinkClient
from snapshots.files import Files, wall_clock_us
from tests.local_runtime.connections import Before, no_fault
from tests.local_runtime.workers import LocalWorker

if TYPE_CHECKING:
    from collections.abc import Callable


MEMORY_BYTES = 2**50
"""A node's memory. Each worker on it is this process, whose size must not count."""


class LocalNodes:
    """The nodes given by a test, each with this many CPUs."""

    here = "directory's"

    def __init__(self, **cpus: float) -> None:
        self.cpus = cpus
        self.drained: set[str] = set()
        self.workers: list[LocalWorker] = []
        """The workers that have started."""
        self.demand = (0.0, 0)
        """The CPUs and bytes of memory reserved for each of them."""

    def free(self, node: str) -> tuple[float, int]:
        """Return the unreserved CPUs and bytes of memory of a node."""
        there = sum(not worker.dead and worker.node == node for worker in self.workers)
        cpus, memory_bytes = self.demand
        return self.cpus[node] - there * cpus, MEMORY_BYTES - there * memory_bytes

    def spread(self, avoid: frozenset[str]) -> str | None:
        """Return the node for another worker, like Ray: the one with the fewest workers that has room."""
        taken = [worker.node for worker in self.workers if not worker.dead]
        found = [
            one
            for one in self.cpus
            if one not in avoid
            and all(free >= asked for free, asked in zip(self.free(one), self.demand, strict=True))
        ]
        return min(found, key=taken.count, default=None)

    async def look(self) -> list[NodeFigures]:
        return [
            NodeFigures(
                name,
                "127.0.0.1",
                name,
                alive=True,
                cpus=cpus,
                memory_bytes=MEMORY_BYTES,
                cpus_free=self.free(name)[0],
                memory_free_bytes=self.free(name)[1],
                draining="operator" if name in self.drained else "",
            )
            for name, cpus in self.cpus.items()
        ]

    async def drain(self, node: str, *, draining: bool) -> None:
        (self.drained.add if draining else self.drained.discard)(node)


class LocalActors:
    """Starts actors in this process, and stores them. `before` is passed to each."""

    def __init__(
        self, settings: RuntimeSettings, *, files: Files | None = None, nodes: LocalNodes | None = None
    ) -> None:
        self._settings = settings
        self._files = files
        self._nodes = nodes
        if nodes is not None:
            nodes.demand = settings.worker_cpus, settings.worker_memory_bytes
        self._numbers = itertools.count()
        self.started: list[LocalWorker] = []
        self.before: Before = no_fault
        self.left: list[LocalWorker] = []
        """The workers that have lost their scheduler, and wait for another."""
        self._adopted: list[LocalWorker] = []
        self.lost_on = ""
        self.refuse = False
        """Whether starts fail."""
        self.avoided: list[frozenset[str]] = []
        """The nodes to avoid, for each start."""
        self.room = asyncio.Event()
        """Whether Ray starts workers."""
        self.room.set()
        self.make: Callable[..., OperationExecutor] = OperationExecutor
        self.now_us: Callable[[], int] = wall_clock_us
        """The server's clock, for workers started from now on."""
        self.term: Callable[[], int] = lambda: 0
        """The term of the directory."""

    async def start(
        self, avoid: frozenset[str] = frozenset(), node: str | None = None, within_s: float = 60.0
    ) -> LocalWorker:
        self.avoided.append(avoid)
        await asyncio.sleep(0)
        async with asyncio.timeout(within_s):
            if node is None:
                await self.room.wait()
            while node is None:
                node = self._spread(avoid)
                await asyncio.sleep(0 if node else 0.001)
        if self.refuse:
            raise ActorDied("no process can be started")
        make = partial(self.make, self._settings, files=self._files)
        if self.now_us is not wall_clock_us:
            make = partial(make, now_us=self.now_us)
        handle = LocalWorker(f"local-{next(self._numbers)}", make, self._settings, node, self.now_us)
        handle.before = self.before
        handle.term = lambda: self.term()  # noqa: PLW0108 -- a test sets it later
        self.started.append(handle)
        if self._nodes is not None:
            self._nodes.workers.append(handle)
        return handle

    def _spread(self, avoid: frozenset[str]) -> str | None:
        if self._nodes is None:
            return next((one for one in ("n", "m") if one not in avoid), "n")
        return self._nodes.spread(avoid)

    async def survivors(self) -> list[Survivor]:
        """Return all workers left by an earlier scheduler, as given by a test."""
        self._adopted += self.left
        left, self.left = self.left, []
        return [Survivor(self._found(worker), worker.node) for worker in left]

    async def _found(self, worker: LocalWorker) -> LocalWorker:
        worker.term = self.term
        worker.connect(worker.connected())
        return worker

    async def connect(self, address: Address) -> LinkClient:
        """Return a connection to one of them, like a front end."""
        found = [one for one in (*self.started, *self._adopted) if one.address == address]
        # Workers of two schedulers may have the same name, but only one of them is alive.
        return min(found, key=lambda one: one.dead).connected()

    def with_detector(self, detector_id: str) -> LocalWorker | None:
        """Return the living actor that hosts a detector."""
        return next(
            (one for one in self.started if not one.dead and detector_id in one.hosts),
            None,
        )
