"""The worker process: a detector in a thread of its own, served by an event loop beside Ray's thread."""

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import ray
import uvloop

from engine.runtime.activation.detector_service import DetectorService, Node
from engine.runtime.contract.calls import Activated
from engine.runtime.contract.figures import DetectorFigures
from engine.runtime.contract.measures import Measures
from engine.runtime.contract.operations import Operation, Reply
from engine.runtime.contract.routes import Address
from engine.runtime.contract.settings import RuntimeSettings, Transport
from engine.runtime.detector.measured_actor import MeasuredActor
from engine.runtime.process.collector import FrozenHeap, collect_seldom
from engine.runtime.process.crashes import crashes_to
from engine.runtime.process.large_blocks import map_large_blocks
from engine.runtime.process.off_loop import off_loop
from engine.runtime.transport import tls
from engine.runtime.transport.listener import Listener

T = TypeVar("T")

_START_S: Final = 10.0
_SMALL_BYTES: Final = 32 * 1024
"""Payloads of this size are evaluated in a few milliseconds."""


class DetectorThread:
    """Executes the calls of a detector one at a time, in a thread: the event loop goes on meanwhile."""

    def __init__(self, actor: MeasuredActor) -> None:
        self._actor = actor
        self._frozen_heap = FrozenHeap()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="detector", daemon=True).start()

    async def activate(self, detector_id: str, epoch: int) -> Activated:
        """Activate a detector. Raises StorageError."""
        return await self._call(partial(self._activate, detector_id, epoch))

    async def handle(self, batch: Sequence[Operation]) -> Reply:
        """Execute a batch. Raises StorageError if its answers would not be durable.

        Waking a thread takes longer than a small batch does, so that one is executed in the event loop.
        """
        if sum(len(operation.payload) for operation in batch) <= _SMALL_BYTES:
            return self._actor.handle(batch)
        return await self._call(partial(self._actor.handle, batch))

    async def sync(self) -> None:
        """Sync the journal to the disk. Raises StorageError."""
        await self._call(self._actor.sync)

    async def begin_saving(self) -> bool:
        """Copy the state for a snapshot. Raises StorageError."""
        return await self._call(self._actor.begin_saving)

    async def finish_saving(self) -> None:
        """Write the snapshot that was begun, while batches continue. Raises StorageError."""
        await off_loop(self._actor.finish_saving, "saving")

    async def passivate(self) -> int:
        """Save and drop the detector; return the bytes that the process holds. Raises StorageError."""
        return await self._call(partial(self._dropping, self._actor.passivate))

    async def discard(self) -> None:
        """Drop the detector without saving it."""
        await self._call(partial(self._dropping, self._actor.discard))

    def figures(self) -> DetectorFigures | None:
        """Return what the active detector holds, even while a call is under way; None if there is none."""
        return self._actor.figures()

    def _activate(self, detector_id: str, epoch: int) -> Activated:
        activated = self._actor.activate(detector_id, epoch)
        self._frozen_heap.activated()
        return activated

    def _dropping(self, drop: Callable[[], T]) -> T:
        dropped = drop()
        self._frozen_heap.gone()
        return dropped

    def _call(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def execute() -> None:
            try:
                settle: Callable[[], None] = partial(outcome.set_result, work())
            except BaseException as error:  # noqa: BLE001 -- the awaiting task raises it
                settle = partial(outcome.set_exception, error)
            loop.call_soon_threadsafe(_unless_done, outcome, settle)

        self._calls.put(execute)
        return outcome

    def _run(self) -> None:
        while True:
            self._calls.get()()


def _unless_done(outcome: asyncio.Future[Any], settle: Callable[[], None]) -> None:
    if not outcome.done():
        settle()


class WorkerActor:
    """The Ray actor of a worker's process. Ray starts it, ends it and tells of its death; calls go beside."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = settings
        self._never = threading.Event()
        self._listeners: list[Listener] = []
        collect_seldom()
        map_large_blocks()
        self._measures = Measures()
        self._actor = MeasuredActor(settings, crashes_to=crashes_to, measures=self._measures)
        self._loop = uvloop.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="serving", daemon=True).start()

    def listen(self, node: str, way: Transport) -> Address:
        """Accept connections, and return the address for callers on that Ray node. Raises OSError."""
        own = ray.get_runtime_context().get_node_id()
        near = node == own
        host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        if near and way == "auto":
            return self._run(self._listen(None, Node(own, host, "unix")))
        encrypted = tls.required() and not near
        return self._run(self._listen(host, Node(own, host, "tls" if encrypted else "tcp")))

    def watch(self) -> None:
        """Block for as long as the worker lives, so that a caller learns of its death at once.

        Needs a thread of its own.
        """
        self._never.wait()

    def pid(self) -> int:
        """Return the id of this process."""
        return os.getpid()

    async def _listen(self, host: str | None, node: Node) -> Address:
        service = DetectorService(self._settings, DetectorThread(self._actor), self._measures, node)
        listener = await Listener.start(service.link, host=host, tls=node.transport == "tls")
        self._listeners.append(listener)
        return listener.address

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_S)
