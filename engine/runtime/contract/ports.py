"""Workers and nodes as others call them: few methods, implemented with Ray or by a fake."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from engine.runtime.contract.figures import NodeFigures, WorkerAnswer
from engine.runtime.contract.requests.calls import Activated, Address, Held, Report


class WorkerPort(Protocol):
    """One started worker, as the scheduler calls it.

    Every call raises ActorDied if the worker is dead or unreachable. Whatever changes something carries the
    term of the scheduler, and raises Superseded once a later scheduler has commanded the worker.
    """

    reported: Callable[[Report], None]
    """Called with what the worker reports about its detectors."""
    name: str
    """The worker's name, for the directory and the log."""
    node: str
    """The id of the node that the worker runs on."""
    address: Address
    """Where the worker accepts calls on its detectors."""

    def described(self) -> str:
        """Return the worker's process for the log: its pid, its node, and how it ended as far as known."""

    async def activate(self, detector_id: str, epoch: int, room_wanted: bool = False) -> Activated:
        """Activate a detector; with `room_wanted`, another one waits for its slot. Raises StorageError."""

    async def held(self) -> Sequence[Held]:
        """Have the worker report here, and return its activations, those included that have only begun.

        It answers once its event loop turns, which may wait for a batch.
        """

    def make_room(self, epoch: int, *, wanted: bool = True) -> None:
        """Say whether another detector waits for the slot of the activation with that epoch."""

    async def delete(self, epoch: int) -> None:
        """Refuse waiting requests with 1200, let those in flight end, and drop the detector unsaved."""

    async def close(self, epoch: int) -> str | None:
        """Answer waiting requests for a limited time, save and drop the detector.

        Returns the reason if the detector could not be saved.
        """

    async def fork(self, epoch: int, fork_id: str) -> bool:
        """Make the folder of another detector from the state of the activation with that epoch.

        Returns False if that activation is over, and nothing was done. Raises StorageError.
        """

    async def beat(self) -> None:
        """Return once the worker's process answers, even while it is busy."""

    async def figures(self) -> WorkerAnswer:
        """Return what the worker is, and what it has measured."""

    async def watch(self) -> None:
        """Wait until the worker is dead."""

    async def end(self) -> None:
        """End the worker's process. Nothing is saved."""


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


class NodesPort(Protocol):
    """The machines of the cluster."""

    @property
    def here(self) -> str:
        """The node of this process; empty if that is not known."""

    async def look(self) -> Sequence[NodeFigures]:
        """Return all machines, dead ones too."""

    async def drain(self, node: str, *, draining: bool) -> None:
        """Store whether a node is drained, for as long as the cluster exists."""
