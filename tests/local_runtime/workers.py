"""A worker without Ray. Its detectors and links are real, its process is this one."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from engine.runtime.activation.detector_service import DetectorService, Node
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.measures import Measures
from engine.runtime.contract.requests.calls import Activated, Address, Reply
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.scheduler.workers.worker_port import WorkerPort
from engine.runtime.transport.link import Link, responses
from engine.runtime.transport.link_client import LinkClient
from snapshots.files import wall_clock_us
from tests.local_runtime.connections import Before, Mortal, Pipe, no_fault, run

T = TypeVar("T")


class LocalDetector:
    """A detector of a worker in this process, as its queue calls it."""

    def __init__(self, worker: "LocalWorker", actor: OperationExecutor) -> None:
        self._worker = worker
        self.executor = actor
        self._under_way = False
        self.cpu_s = 0.0

    async def activate(self, detector_id: str, epoch: int) -> Activated:
        return await self._call("activate", lambda: self.executor.activate(detector_id, epoch))

    def handle_at_once(self, batch: Sequence[Operation]) -> Reply | None:
        assert not self._under_way, "one call at a time"
        return self._worker.call_at_once("handle", lambda: self.executor.handle(batch), size=len(batch))

    async def handle(self, batch: Sequence[Operation]) -> Reply:
        return await self._call("handle", lambda: self.executor.handle(batch), size=len(batch))

    async def call(self, work: Callable[[], T]) -> T:
        return await self._call(_name(work), work)

    async def beside(self, work: Callable[[], T]) -> T:
        return await self._worker.beside(_name(work), work)

    async def passivate(self) -> int:
        return await self._call("passivate", self.executor.passivate)

    async def discard(self) -> None:
        await self._call("discard", self.executor.discard)

    async def _call(self, what: str, work: Callable[[], T], size: int = 0) -> T:
        assert not self._under_way, "one call at a time"
        self._under_way = True
        try:
            return await self._worker.call(what, work, size)
        finally:
            self._under_way = False


def _name(work: Callable[[], object]) -> str:
    return (work.func if isinstance(work, partial) else work).__name__


class LocalWorker(Mortal, WorkerPort):
    """A worker in this process. `before` is awaited before each call, and may delay, hang or raise."""

    def __init__(
        self,
        name: str,
        make: Callable[..., OperationExecutor],
        settings: RuntimeSettings,
        node: str = "n",
        now_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        Mortal.__init__(self)
        self._make = make
        self.measures = Measures()
        self.actors: list[OperationExecutor] = []
        """One for each activation, including ended ones."""
        place = Node(node, "127.0.0.1")
        self.service = DetectorService(settings, self._hosting, self.measures, place, now_us=now_us)
        address = Address(name, node=node)
        WorkerPort.__init__(self, name, address, self.connected(), lambda: 0)
        self.silent = False
        """Whether it does not answer heartbeats, like a stopped process."""
        self.calls: list[tuple[str, int]] = []
        """The calls, with the number of operations of a batch."""
        self.in_flight = 0
        self.in_flight_most = 0
        self.before: Before = no_fault

    def _hosting(self) -> LocalDetector:
        self.actors.append(self._make(measures=self.measures))
        return LocalDetector(self, self.actors[-1])

    @property
    def actor(self) -> OperationExecutor:
        """The actor of the last activation."""
        return self.actors[-1]

    @property
    def hosts(self) -> set[str]:
        """The active detectors."""
        return {queue.detector_id for queue in self.service.queues.values()}

    def connected(self) -> LinkClient:
        """Return a new connection to it."""
        if self.dead:
            raise ConnectionRefusedError("it is dead")
        client = LinkClient(Link(responses))
        Pipe.between(client.link, self.service.link())
        return client

    def die(self) -> None:
        super().die()
        for server in list(self.service.servers):
            server.close()

    @property
    def waiting(self) -> int:
        """Return the number of batches waiting in its mailbox."""
        return sum(len(queue._waiting) for queue in self.service.queues.values())

    # -- as the scheduler calls it --------------------------------------------------------------------------

    def described(self) -> str:
        return f"pid 1 on the node {self.node}"

    async def beat(self) -> None:
        while self.silent:  # noqa: ASYNC110 -- for as long as a test wants
            await asyncio.sleep(0.001)
        if self.dead:
            raise ActorDied("it was killed")

    async def watch(self) -> None:
        await self.until_death()

    async def end(self) -> None:
        self.die()

    # -- what it does ----------------------------------------------------------------------------------------

    async def beside(self, what: str, work: Callable[[], T]) -> T:
        self.calls.append((what, 0))
        await self._alive(self._turn(what))
        return await self._alive(run(work))

    def call_at_once(self, what: str, work: Callable[[], T], size: int) -> T | None:
        """Do it now, unless the test does something before."""
        if self.before is not no_fault or self.dead:
            return None
        self.calls.append((what, size))
        return work()

    async def call(self, what: str, work: Callable[[], T], size: int = 0) -> T:
        self.calls.append((what, size))
        self.in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self.in_flight)
        try:
            await self._alive(self._turn(what))
            return await self._alive(run(work))
        finally:
            self.in_flight -= 1

    async def _turn(self, what: str) -> None:
        await asyncio.sleep(0)
        await self.before(what)
