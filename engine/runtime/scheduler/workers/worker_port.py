"""The ports by which the scheduler starts and commands workers, implemented with Ray or by a fake."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from engine.runtime.contract.figures import WorkerAnswer
from engine.runtime.contract.requests.calls import (
    MAKE_ROOM,
    REPORT,
    Activated,
    Address,
    Held,
    Report,
    decode_report,
    make_room_note,
)
from engine.runtime.process.log_records import LOGGED, Logged
from engine.runtime.transport.link import Note
from engine.runtime.transport.link_client import LinkClient

T = TypeVar("T")


class WorkerPort(ABC):
    """A started worker, which is commanded over a connection.

    Every call raises ActorDied if the worker is dead or unreachable. Calls that change something carry the
    term of the scheduler, and raise Superseded once a later scheduler has commanded the worker.
    """

    def __init__(self, name: str, address: Address, client: LinkClient, term: Callable[[], int]) -> None:
        self.name = name
        """The worker's name, for the directory and the log."""
        self.node = address.node
        """The id of the node that the worker runs on."""
        self.address = address
        """Where the worker accepts calls on its detectors."""
        self.reported: Callable[[Report], None] = lambda _: None
        """Called with the worker's reports about its detectors."""
        self.term = term
        """Returns the term of the scheduler."""
        self.connect(client)

    def connect(self, client: LinkClient) -> None:
        """Use a connection for commands from now on."""
        self.client = client
        client.noted = self._noted

    async def activate(self, detector_id: str, epoch: int, room_wanted: bool = False) -> Activated:
        """Activate a detector. `room_wanted`: another detector waits for its slot. Raises StorageError."""
        return await self._command("activate", Activated, detector_id, epoch, room_wanted)

    async def held(self) -> list[Held]:
        """Direct the worker's reports to this scheduler, and return its activations, pending ones too.

        The answer may have to wait for a batch, until the worker's event loop turns.
        """
        return await self._command("held", list[Held])

    def make_room(self, epoch: int, *, wanted: bool = True) -> None:
        """Tell the worker whether another detector waits for the slot of the activation of an epoch."""
        self.client.note(MAKE_ROOM, make_room_note(self.term(), epoch, wanted=wanted))

    async def delete(self, epoch: int) -> None:
        """Refuse waiting requests with 1200, complete those in flight, and drop the detector unsaved."""
        await self._command("delete", None, epoch)

    async def close(self, epoch: int) -> str | None:
        """Answer waiting requests for a limited time, then save and drop the detector.

        If the detector could not be saved, returns the reason.
        """
        return await self._command("close", str | None, epoch)

    async def fork(self, epoch: int, fork_id: str) -> bool:
        """Make the folder of a fork from the activation of an epoch.

        Returns False, and does nothing, if that activation is over. Raises StorageError.
        """
        return await self._command("fork", bool, epoch, fork_id)

    async def figures(self) -> WorkerAnswer:
        """Return the worker's figures and measurements."""
        return await self.client.ask_until_answered("figures", WorkerAnswer)

    @abstractmethod
    def described(self) -> str:
        """Describe the worker's process for the log: its pid, its node, and, if known, how it ended."""

    @abstractmethod
    async def beat(self) -> None:
        """Return once the worker's process answers, even while it is busy."""

    @abstractmethod
    async def watch(self) -> None:
        """Wait until the worker is dead."""

    @abstractmethod
    async def end(self) -> None:
        """End the worker's process. Nothing is saved."""

    async def _command(self, method: str, kind: type[T] | Any, *arguments: object) -> T:
        return await self.client.ask_until_answered(method, kind, self.term(), *arguments)

    def _noted(self, note: Note) -> None:
        if note.name == REPORT:
            self.reported(decode_report(note.body))
        elif note.name == LOGGED:
            # This process forwards the record to a service's log, like its own records.
            msgspec.msgpack.decode(note.body, type=Logged).log(worker=self.name, node=self.node)


class Survivor(NamedTuple):
    """A worker of an earlier scheduler."""

    found: Awaitable[WorkerPort | None]
    """Returns the worker once it answers; None if it did not, and was ended."""
    node: str
    """Its node; empty if it is still being started, and so has no detectors."""


class WorkerStarter(Protocol):
    """Starts workers."""

    lost_on: str
    """The node on which the previous scheduler was lost, perhaps with the node; empty if there was none."""

    async def start(self, avoid: frozenset[str], node: str | None, within_s: float) -> WorkerPort:
        """Start a worker on a node, or on any but those to avoid, and return it once it accepts calls.

        Without a node, waits until one has room. Raises ActorDied after `within_s`.
        """

    async def survivors(self) -> Sequence[Survivor]:
        """Return the workers of an earlier scheduler of the data folder."""
