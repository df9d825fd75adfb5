"""What a worker does for front ends and for the supervisor: calls on its detector, and its activation."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from engine.runtime.activation.detector_queue import DetectorQueue, Submission
from engine.runtime.contract.calls import LEFT, REPORT, Activated, Held, Report, encode_report
from engine.runtime.contract.figures import ProcessFigures, WorkerAnswer
from engine.runtime.contract.measures import Measures
from engine.runtime.contract.ports import DetectorPort
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.process.usage import usage
from engine.runtime.transport.link import Link
from engine.runtime.transport.link_server import MOVED, LinkServer, Outcome
from engine.runtime.transport.messages import Batch, Note

MAKE_ROOM = "make room"


class Node(NamedTuple):
    """Where the worker runs, and how it is reached."""

    id: str = ""
    address: str = ""
    transport: str = "unix"


class DetectorService:
    """Serves any number of connections. The supervisor's is the one that last activated or adopted.

    A batch names the epoch of the activation that it is meant for. One for another epoch has to go elsewhere.
    The worker outlives its supervisor: what it was told to do goes on, and a successor adopts it.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        port: DetectorPort,
        measures: Measures,
        node: Node = Node(),  # noqa: B008 -- it is immutable
    ) -> None:
        self._settings = settings
        self._port = port
        self._measures = measures
        self._node = node
        self.queue: DetectorQueue | None = None
        """The queue of the active detector, or of the last one."""
        self.servers: set[LinkServer] = set()
        self._supervisor: LinkServer | None = None
        self._activating: asyncio.Task[Activated] | None = None

    def link(self) -> Link:
        """Make the link for a connection that is about to be made."""
        server = LinkServer({}, self._submit, noted=self._noted, lost=lambda: self.servers.discard(server))
        server.methods = {
            "activate": partial(self._activate, server),
            "adopt": partial(self._adopt, server),
            "delete": self._delete,
            "close": self._close,
            "ping": self._ping,
            "figures": self._figures,
        }
        self.servers.add(server)
        return server.link()

    def _submit(self, batch: Batch, settled: Callable[[Outcome], None]) -> Submission | None:
        queue = self.queue
        if queue is None or queue.epoch != batch.epoch:
            settled(MOVED)
            return None
        return queue.submit(batch.operations, settled)

    async def _activate(self, supervisor: LinkServer, detector_id: str, epoch: int) -> Activated:
        self._supervisor = supervisor
        self._activating = asyncio.create_task(self._begin(detector_id, epoch))
        # If the supervisor is gone meanwhile, its successor finds the detector here, or none.
        self._activating.add_done_callback(_heed_no_error)
        return await asyncio.shield(self._activating)

    async def _begin(self, detector_id: str, epoch: int) -> Activated:
        queue = DetectorQueue(detector_id, epoch, self._port, self._settings, partial(self._report, epoch))
        activated = await queue.activation.activate()
        self.queue = queue
        queue.start()
        return activated

    def _report(self, epoch: int, report: Report) -> None:
        told = encode_report(report)
        if report.ended is None:
            self._tell(told)
            return
        for server in self.servers:
            server.note(LEFT, str(epoch).encode())
        # The supervisor may end the process at once: answers and notes go first.
        asyncio.get_running_loop().call_soon(self._tell, told)

    def _tell(self, report: bytes) -> None:
        if self._supervisor is not None:
            self._supervisor.note(REPORT, report)

    async def _adopt(self, supervisor: LinkServer) -> Held | None:
        """Report to another supervisor from now on; return the active detector."""
        self._supervisor = supervisor
        if self._activating is not None:
            await asyncio.wait({self._activating})
        return None if self.queue is None else self.queue.held

    async def _delete(self) -> None:
        if self.queue is not None:
            await self.queue.delete()

    async def _close(self) -> str | None:
        return None if self.queue is None else await self.queue.close()

    async def _ping(self) -> int:
        return os.getpid()

    async def _figures(self) -> WorkerAnswer:
        queue, node = self.queue, self._node
        return WorkerAnswer(
            ProcessFigures(*usage()),
            node.id,
            node.address,
            {node.transport: len(self.servers)},
            [] if queue is None or not queue.serves else [queue.figures(self._port.figures())],
            self._measures.histograms,
            self._measures.keys_evicted,
        )

    def _noted(self, note: Note) -> None:
        if note.name == MAKE_ROOM and self.queue is not None:
            self.queue.make_room()


def _heed_no_error(activating: asyncio.Task[Activated]) -> None:
    if not activating.cancelled():
        activating.exception()
