"""A started worker as the scheduler commands it, and how workers are started; with Ray or with a fake."""

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
    """One started worker, which is commanded over a connection.

    Every call raises ActorDied if the worker is dead or unreachable. Whatever changes something carries the
    term of the scheduler, and raises Superseded once a later scheduler has commanded the worker.
    """

    def __init__(self, name: str, address: Address, client: LinkClient, term: Callable[[], int]) -> None:
        self.name = name
        """The worker's name, for the directory and the log."""
        self.node = address.node
        """The id of the node that the worker runs on."""
        self.address = address
        """Where the worker accepts calls on its detectors."""
        self.reported: Callable[[Report], None] = lambda _: None
        """Called with what the worker reports about its detectors."""
        self.term = term
        """Returns the term of the scheduler."""
        self.connect(client)

    def connect(self, client: LinkClient) -> None:
        """Command the worker over a connection from now on."""
        self.client = client
        client.noted = self._noted

    async def activate(self, detector_id: str, epoch: int, room_wanted: bool = False) -> Activated:
        """Activate a detector; with `room_wanted`, another one waits for its slot. Raises StorageError."""
        return await self._command("activate", Activated, detector_id, epoch, room_wanted)

    async def held(self) -> list[Held]:
        """Have the worker report here, and return its activations, those included that have only begun.

        It answers once its event loop turns, which may wait for a batch.
        """
        return await self._command("held", list[Held])

    def make_room(self, epoch: int, *, wanted: bool = True) -> None:
        """Say whether another detector waits for the slot of the activation with that epoch."""
        self.client.note(MAKE_ROOM, make_room_note(self.term(), epoch, wanted=wanted))

    async def delete(self, epoch: int) -> None:
        """Refuse waiting requests with 1200, let those in flight end, and drop the detector unsaved."""
        await self._command("delete", None, epoch)

    async def close(self, epoch: int) -> str | None:
        """Answer waiting requests for a limited time, save and drop the detector.

        Returns the reason if the detector could not be saved.
        """
        return await self._command("close", str | None, epoch)

    async def fork(self, epoch: int, fork_id: str) -> bool:
        """Make the folder of another detector from the state of the activation with that epoch.

        Returns False if that activation is over, and nothing was done. Raises StorageError.
        """
        return await self._command("fork", bool, epoch, fork_id)

    async def figures(self) -> WorkerAnswer:
        """Return what the worker is, and what it has measured."""
        return await self.client.ask_until_answered("figures", WorkerAnswer)

    @abstractmethod
    def described(self) -> str:
        """Return the worker's process for the log: its pid, its node, and how it ended as far as known."""

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
            # This process forwards it to the log of a service, as it does with its own records.
            msgspec.msgpack.decode(note.body, type=Logged).log(worker=self.name, node=self.node)


class Survivor(NamedTuple):
    """A worker that an earlier scheduler has left."""

    found: Awaitable[WorkerPort | None]
    """Returns it once it answers; None if it does not, and was ended."""
    node: str
    """Its node; empty if it is still being started, and so has no detectors."""


class WorkerStarter(Protocol):
    """Starts workers."""

    lost_on: str
    """The node on which the scheduler before was lost, perhaps with the node; empty if there was none."""

    async def start(self, avoid: frozenset[str], node: str | None, within_s: float) -> WorkerPort:
        """Start a worker, and return it once it accepts calls: on a node, or on any but those to avoid.

        Without a node, it waits for one that has room. Raises ActorDied after `within_s`.
        """

    async def survivors(self) -> Sequence[Survivor]:
        """Return the workers that an earlier scheduler of the data folder has left."""
