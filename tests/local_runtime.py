"""The runtime without Ray, in one process.

`local_fleet` gives a real Fleet over the real actors, directory, queues and workers, all in this process.
"""

import asyncio
import dataclasses
import itertools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from engine.runtime.activation.detector_service import MAKE_ROOM, DetectorService, Node
from engine.runtime.broker.broker_connection import Unreachable
from engine.runtime.broker.fleet import Fleet
from engine.runtime.broker.local_broker import LocalBroker
from engine.runtime.broker.remote_broker import RemoteBroker, methods_for_front_ends
from engine.runtime.catalogue.directory import Directory, DirectorySettings
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.measurements.figures import DetectorFigures, NodeFigures, WorkerAnswer
from engine.runtime.contract.measurements.measures import Measures
from engine.runtime.contract.ports import NodesPort, Survivor
from engine.runtime.contract.requests.calls import REPORT, Activated, Held, Report, decode_report
from engine.runtime.contract.requests.operations import Operation, Reply
from engine.runtime.contract.requests.routes import Address
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.measured_actor import MeasuredActor
from engine.runtime.detector.persistence import detector_snapshot as kept
from engine.runtime.transport.link import Link
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.link_server import LinkServer
from engine.runtime.transport.messages import Note, responses
from snapshots.data_folder.identity import begin_folder
from snapshots.files import Files
from snapshots.folders import create_folder

T = TypeVar("T")


class Mortal:
    """Something that runs calls until it dies; what is under way then ends with ActorDied."""

    def __init__(self) -> None:
        self._death: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def dead(self) -> bool:
        return self._death.done()

    def die(self) -> None:
        """Act as if the process were killed: nothing is saved, and every call fails from now on."""
        if not self._death.done():
            self._death.set_result(None)

    async def until_death(self) -> None:
        await asyncio.shield(self._death)

    async def _alive(self, work: Awaitable[T]) -> T:
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._death}, return_when=asyncio.FIRST_COMPLETED)
            if self.dead:
                raise ActorDied("it was killed")
            return task.result()
        finally:
            task.cancel()


class Pipe(asyncio.Transport):
    """One end of a connection within this process. What is written arrives in the loop's next turn."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._other: Pipe
        self._closed = False

    @classmethod
    def between(cls, one: asyncio.BufferedProtocol, two: asyncio.BufferedProtocol) -> None:
        first, second = cls(one), cls(two)
        first._other, second._other = second, first
        one.connection_made(first)
        two.connection_made(second)

    def is_closing(self) -> bool:
        return self._closed

    def write(self, data: Any) -> None:
        if not self._closed:
            asyncio.get_running_loop().call_soon(self._other._arrived, bytes(data))

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        loop = asyncio.get_running_loop()
        for end in (self, self._other):
            if not end._closed:
                end._closed = True
                loop.call_soon(end._protocol.connection_lost, None)

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def _arrived(self, data: bytes) -> None:
        while data and not self._closed:
            room = self._protocol.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._protocol.buffer_updated(count)


class LocalDetector:
    """A detector of a worker in this process, as its queue calls it."""

    def __init__(self, worker: "LocalWorker", actor: MeasuredActor) -> None:
        self._worker = worker
        self._actor = actor
        self._under_way = False
        self.cpu_s = 0.0

    async def activate(self, detector_id: str, epoch: int) -> Activated:
        return await self._call("activate", lambda: self._actor.activate(detector_id, epoch))

    def handle_at_once(self, batch: Sequence[Operation]) -> Reply | None:
        assert not self._under_way, "one call at a time"
        return self._worker.call_at_once("handle", lambda: self._actor.handle(batch), size=len(batch))

    async def handle(self, batch: Sequence[Operation]) -> Reply:
        return await self._call("handle", lambda: self._actor.handle(batch), size=len(batch))

    async def sync(self) -> None:
        await self._call("sync", self._actor.sync)

    async def begin_saving(self) -> bool:
        return await self._call("begin_saving", self._actor.begin_saving)

    async def finish_saving(self) -> None:
        await self._worker.beside("finish_saving", self._actor.finish_saving)

    async def begin_fork(self, fork_id: str) -> Callable[[], None]:
        return await self._call("begin_fork", lambda: self._actor.begin_fork(fork_id))

    async def finish_fork(self, make_folder: Callable[[], None]) -> None:
        await self._worker.beside("finish_fork", make_folder)

    async def passivate(self) -> int:
        return await self._call("passivate", self._actor.passivate)

    async def discard(self) -> None:
        await self._call("discard", self._actor.discard)

    def figures(self) -> DetectorFigures | None:
        return self._actor.figures()

    async def _call(self, what: str, work: Callable[[], T], size: int = 0) -> T:
        assert not self._under_way, "one call at a time"
        self._under_way = True
        try:
            return await self._worker.call(what, work, size)
        finally:
            self._under_way = False


class LocalWorker(Mortal):
    """A worker in this process. `before` is awaited before each call, and may delay, hang or raise."""

    def __init__(
        self, name: str, make: Callable[..., MeasuredActor], settings: RuntimeSettings, node: str = "n"
    ) -> None:
        super().__init__()
        self.name = name
        self._make = make
        self.measures = Measures()
        self.actors: list[MeasuredActor] = []
        """One for each activation, those that are over included."""
        self.address = Address(name, b"", node=node)
        self.node = node
        self.service = DetectorService(settings, self._hosting, self.measures, Node(node, "127.0.0.1"))
        self.reported: Callable[[Report], None] = lambda _: None
        self.silent = False
        """Whether it answers no beat, as a stopped process."""
        self.supervise()
        self.calls: list[tuple[str, int]] = []
        """What was called, with the number of operations of a batch."""
        self.in_flight = 0
        self.in_flight_most = 0
        self.before: Callable[[str], Awaitable[None]] = _no_fault

    def supervise(self) -> None:
        """Connect it to another supervisor, as its first one did."""
        self._supervisor = self.connected()
        self._supervisor.noted = self._noted

    def _hosting(self) -> LocalDetector:
        self.actors.append(self._make(measures=self.measures))
        return LocalDetector(self, self.actors[-1])

    @property
    def actor(self) -> MeasuredActor:
        """The actor of the last activation."""
        return self.actors[-1]

    @property
    def hosts(self) -> set[str]:
        """The active detectors."""
        return {queue.detector_id for queue in self.service.queues.values()}

    def connected(self) -> LinkClient:
        """A new connection to it."""
        if self.dead:
            raise ConnectionRefusedError("it is dead")
        client = LinkClient(Link(responses))
        Pipe.between(client.link, self.service.link())
        return client

    def die(self) -> None:
        super().die()
        for server in list(self.service.servers):
            server.close()

    def _noted(self, note: Note) -> None:
        if note.name == REPORT:
            self.reported(decode_report(note.body))

    @property
    def waiting(self) -> int:
        """How many batches wait in its mailbox."""
        return sum(len(queue._waiting) for queue in self.service.queues.values())

    # -- as the supervisor calls it --------------------------------------------------------------------------

    async def activate(
        self, detector_id: str, epoch: int, room_wanted: bool = False, name: str = ""
    ) -> Activated:
        return await self._supervisor.ask("activate", Activated, detector_id, epoch, room_wanted, name)

    async def adopt(self) -> list[Held]:
        return await self._supervisor.ask("adopt", list[Held])

    def make_room(self, epoch: int) -> None:
        self._supervisor.note(MAKE_ROOM, str(epoch).encode())

    async def delete(self, epoch: int) -> None:
        await self._supervisor.ask("delete", None, epoch)

    async def close(self, epoch: int) -> str | None:
        return await self._supervisor.ask("close", str | None, epoch)

    async def fork(self, epoch: int, fork_id: str) -> bool:
        return await self._supervisor.ask("fork", bool, epoch, fork_id)

    async def ping(self) -> None:
        await self._supervisor.ask("ping", int)

    async def beat(self) -> None:
        while self.silent:  # noqa: ASYNC110 -- for as long as a test wants
            await asyncio.sleep(0.001)
        if self.dead:
            raise ActorDied("it was killed")

    async def figures(self) -> WorkerAnswer:
        return await self._supervisor.ask("figures", WorkerAnswer)

    async def watch(self) -> None:
        await self.until_death()

    async def end(self) -> None:
        self.die()

    # -- what it does ----------------------------------------------------------------------------------------

    async def beside(self, what: str, work: Callable[[], T]) -> T:
        self.calls.append((what, 0))
        await self._alive(self._turn(what))
        return await self._alive(_run(work))

    def call_at_once(self, what: str, work: Callable[[], T], size: int) -> T | None:
        """Do it now, unless the test has something happen before."""
        if self.before is not _no_fault or self.dead:
            return None
        self.calls.append((what, size))
        return work()

    async def call(self, what: str, work: Callable[[], T], size: int = 0) -> T:
        self.calls.append((what, size))
        self.in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self.in_flight)
        try:
            await self._alive(self._turn(what))
            return await self._alive(_run(work))
        finally:
            self.in_flight -= 1

    async def _turn(self, what: str) -> None:
        await asyncio.sleep(0)
        await self.before(what)


class LocalNodes:
    """The nodes that a test says there are, with this many CPUs each."""

    here = "directory's"

    def __init__(self, **cpus: float) -> None:
        self.cpus = cpus
        self.drained: set[str] = set()

    async def look(self) -> list[NodeFigures]:
        return [
            NodeFigures(
                name,
                "127.0.0.1",
                name,
                alive=True,
                cpus=cpus,
                memory_bytes=10**9,
                cpus_free=cpus,
                memory_free_bytes=10**9,
                draining="operator" if name in self.drained else "",
            )
            for name, cpus in self.cpus.items()
        ]

    async def drain(self, node: str, *, draining: bool) -> None:
        (self.drained.add if draining else self.drained.discard)(node)


class LocalActors:
    """Starts actors in this process, and remembers them. `before` becomes each one's."""

    def __init__(self, settings: RuntimeSettings, *, files: Files | None = None) -> None:
        self._settings = settings
        self._files = files
        self._numbers = itertools.count()
        self.started: list[LocalWorker] = []
        self.before: Callable[[str], Awaitable[None]] = _no_fault
        self.left: list[LocalWorker] = []
        """The workers that have lost their broker, and wait for another."""
        self.lost_on = ""
        self.refuse = False
        """Whether starting fails."""
        self.avoided: list[frozenset[str]] = []
        """The nodes to avoid, of each start."""
        self.room = asyncio.Event()
        """Whether Ray finds a node by itself."""
        self.room.set()
        self.make: Callable[..., MeasuredActor] = MeasuredActor

    async def start(self, avoid: frozenset[str] = frozenset(), node: str | None = None) -> LocalWorker:
        self.avoided.append(avoid)
        await asyncio.sleep(0)
        if node is None:
            await self.room.wait()
        if self.refuse:
            raise ActorDied("no process can be started")
        make = partial(self.make, self._settings, files=self._files)
        node = node or next((one for one in ("n", "m") if one not in avoid), "n")
        handle = LocalWorker(f"local-{next(self._numbers)}", make, self._settings, node)
        handle.before = self.before
        self.started.append(handle)
        return handle

    async def survivors(self) -> list[Survivor]:
        """Every one that an earlier broker has left; a test says which."""
        left, self.left = self.left, []
        return [Survivor(self._found(worker), worker.node) for worker in left]

    async def _found(self, worker: LocalWorker) -> LocalWorker:
        worker.supervise()
        return worker

    async def connect(self, address: Address) -> LinkClient:
        """A connection to one of them, as a front end makes it."""
        (worker,) = [one for one in self.started if one.address == address]
        return worker.connected()

    def with_detector(self, detector_id: str) -> LocalWorker | None:
        """The living actor that hosts a detector."""
        return next(
            (one for one in self.started if not one.dead and detector_id in one.hosts),
            None,
        )


class LocalDirectoryHandle(Mortal):
    """A Directory in this process. As a process would, it lets go of the data folder's lock when it dies."""

    def __init__(self, directory: Directory) -> None:
        super().__init__()
        self.directory = directory
        self.calls: list[str] = []
        self.before: Callable[[str], Awaitable[None]] = _no_fault

    def die(self) -> None:
        super().die()
        self.directory.close()

    async def call(self, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        if method in (Directory.open, Directory.close):
            return method(self.directory)
        self.calls.append(method.__name__)
        await self._alive(self.before(method.__name__))
        # By its name, so that a test may replace it.
        return await self._alive(
            _run(lambda: getattr(self.directory, method.__name__)(*arguments, **options))
        )

    async def end(self) -> None:
        self.die()


class LocalDirectories:
    """Starts the directory in this process, and remembers every one."""

    def __init__(self, settings: RuntimeSettings, *, files: Files | None = None) -> None:
        self._settings = settings
        self._files = files
        self.started: list[LocalDirectoryHandle] = []
        self.before: Callable[[str], Awaitable[None]] = _no_fault
        self.refuse = False

    async def start(self) -> LocalDirectoryHandle:
        await asyncio.sleep(0)
        if self.refuse:
            raise ActorDied("no process can be started")
        settings = self._settings
        known = DirectorySettings(
            settings.data,
            settings.snapshots_kept,
            lock_wait_s=0,
            folder_id=settings.folder_id,
            detectors_max=settings.detectors_max,
            tokens_max=settings.tokens_max,
        )
        directory = Directory(known, files=self._files)
        handle = LocalDirectoryHandle(directory)
        handle.before = self.before
        self.started.append(handle)
        return handle


@dataclasses.dataclass
class LocalService:
    """A Fleet with all that it stands on, within reach of a test."""

    fleet: Fleet
    broker: LocalBroker
    actors: LocalActors
    directories: LocalDirectories
    settings: RuntimeSettings


@asynccontextmanager
async def local_service(
    folder: Path, *, files: Files | None = None, nodes: NodesPort | None = None, **settings: Any
) -> AsyncIterator[LocalService]:
    """Give a started service over `folder`, and close it. `settings` are RuntimeSettings' own."""
    chosen = dataclasses.replace(
        RuntimeSettings(data=folder, **settings), folder_id=begin_folder(folder, lock_wait_s=5)
    )
    actors = LocalActors(chosen, files=files)
    directories = LocalDirectories(chosen, files=files)
    broker = LocalBroker(chosen, actors, directories, nodes=nodes)
    fleet = Fleet(chosen, broker, connect=actors.connect)
    await fleet.start()
    try:
        yield LocalService(fleet, broker, actors, directories, chosen)
    finally:
        await fleet.close()


@dataclasses.dataclass(slots=True)
class FrontEnd:
    """A Fleet that asks a broker in another process, here in the same one."""

    fleet: Fleet
    asks: RemoteBroker
    serves: LinkServer
    notes: list[Note] = dataclasses.field(default_factory=list)
    """From the front end."""
    told: list[Note] = dataclasses.field(default_factory=list)
    """To the front end."""
    lost: list[str] = dataclasses.field(default_factory=list)
    """Which end learnt that the other is gone."""


@asynccontextmanager
async def front_end(service: LocalService, **settings: Any) -> AsyncIterator[FrontEnd]:
    """Give a front end of a service, over a pair of sockets, and close it."""
    chosen = dataclasses.replace(service.settings, **settings)
    ours, theirs = socket.socketpair()
    notes: list[Note] = []
    told: list[Note] = []
    lost: list[str] = []
    methods = methods_for_front_ends(service.broker, lambda: told.append(Note("revoked")))
    serves = LinkServer(methods, noted=notes.append, lost=lambda: lost.append("server"))
    await serves.start(ours)
    connected: list[LinkClient] = []

    async def connect() -> LinkClient:
        if connected:
            raise Unreachable("the main process has ended")
        connected.append(await LinkClient.over(theirs))
        return connected[0]

    asks = RemoteBroker(chosen, connect, noted=told.append, lost=lambda: lost.append("front end"))
    fleet = Fleet(chosen, asks, shared=True, connect=service.actors.connect)
    await fleet.start()
    try:
        yield FrontEnd(fleet, asks, serves, notes, told, lost)
    finally:
        await fleet.close()
        serves.close()


@asynccontextmanager
async def local_fleet(folder: Path, **settings: Any) -> AsyncIterator[Fleet]:
    """Give a started Fleet over `folder`, and close it. `settings` are RuntimeSettings' own."""
    async with local_service(folder, **settings) as service:
        yield service.fleet


def newborn(data: Path, detector_id: str) -> None:
    """Make the folder of a detector, as the directory does."""
    create_folder(data / "detectors" / detector_id, kept.empty_snapshot(), version=kept.SNAPSHOT_VERSION)


async def until(condition: Callable[[], object]) -> None:
    """Come back when the condition holds; for what no event tells of. Fails where it takes a minute."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 -- what is waited for has no event
            await asyncio.sleep(0.001)


async def _no_fault(_: str) -> None:
    return None


async def _run(work: Callable[[], T]) -> T:
    return work()
