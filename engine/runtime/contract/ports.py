"""Workers and the directory as others call them: few methods, implemented by Ray or a fake."""

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.runtime.contract.calls import Activated, Held, Report
from engine.runtime.contract.catalogue_changes import Changes, Opened, TokenEntry
from engine.runtime.contract.figures import DetectorFigures, WorkerAnswer
from engine.runtime.contract.operations import Operation, Reply
from engine.runtime.contract.routes import Address


class DetectorPort(Protocol):
    """A detector inside a worker, as the worker's own event loop calls it.

    Calls are made one at a time, except `finish_saving`.
    """

    async def activate(self, detector_id: str, epoch: int) -> Activated:
        """Activate a detector. Raises StorageError."""

    async def handle(self, batch: Sequence[Operation]) -> Reply:
        """Execute a batch. Raises StorageError if its answers would not be durable."""

    async def sync(self) -> None:
        """Sync the journal to the disk. Raises StorageError."""

    async def begin_saving(self) -> bool:
        """Copy the state for a snapshot; whether there is anything for `finish_saving` to write.

        Raises StorageError.
        """

    async def finish_saving(self) -> None:
        """Write the snapshot that was begun, while batches continue. Raises StorageError."""

    async def passivate(self) -> int:
        """Save and drop the detector; return the bytes that the process holds. Raises StorageError."""

    async def discard(self) -> None:
        """Drop the detector without saving it."""

    @property
    def cpu_s(self) -> float:
        """The processor time of its batches, as far as they were executed beside other detectors."""

    def figures(self) -> DetectorFigures | None:
        """Return what the active detector holds, even while a call is under way; None if there is none."""


class WorkerPort(Protocol):
    """One started worker, as the supervisor calls it.

    Every call raises ActorDied if the worker is dead or unreachable.
    """

    reported: Callable[[Report], None]
    """Called with what the worker reports about its detectors."""

    @property
    def name(self) -> str:
        """The worker's name, for the directory and the log."""

    @property
    def address(self) -> Address:
        """Where the worker accepts calls on its detectors."""

    async def activate(self, detector_id: str, epoch: int) -> Activated:
        """Activate a detector. Raises StorageError."""

    async def adopt(self) -> Sequence[Held]:
        """Have the worker report here, and return its active detectors."""

    def make_room(self, epoch: int) -> None:
        """Say that another detector waits for the slot of the one that is active in that epoch."""

    async def delete(self, epoch: int) -> None:
        """Refuse waiting requests with 1200, let those in flight end, and drop the detector unsaved."""

    async def close(self, epoch: int) -> str | None:
        """Answer waiting requests for a limited time, save and drop the detector.

        Returns the reason if the detector could not be saved.
        """

    async def ping(self) -> None:
        """Return once the worker answers, even while it is busy."""

    async def figures(self) -> WorkerAnswer:
        """Return what the worker is, and what it has measured."""

    async def watch(self) -> None:
        """Wait until the worker is dead."""

    async def end(self) -> None:
        """End the worker's process. Nothing is saved."""


class WorkerStarter(Protocol):
    """Starts workers."""

    async def start(self) -> WorkerPort:
        """Start a worker, and return it once it accepts calls."""

    async def survivors(self) -> Sequence[WorkerPort]:
        """Return the workers that an earlier supervisor of the data folder has left, perhaps dead ones."""


class DirectoryPort(Protocol):
    """A started directory. Every call raises ActorDied if it is dead or unreachable.

    Every call but `open` can be repeated safely if its outcome is unknown.
    """

    async def open(self) -> Opened:
        """Lock the data folder and read it. Raises StorageError, including FolderInUse."""

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Return the changes since those versions."""

    async def add_token(
        self, token_id: str, digest: bytes, hint: str, name: str = "", created_at_ms: int | None = None
    ) -> int:
        """Store a token; return the version of the tokens that includes it."""

    async def revoke_token(self, token_id: str) -> int | None:
        """Remove a token; return the version without it, None if it does not exist."""

    async def tokens(self) -> list[TokenEntry]:
        """Return all tokens, in order of creation."""

    async def tokens_used(self, token_ids: list[str], at_ms: int) -> None:
        """Note that tokens were used."""

    async def create_detector(self, detector_id: str, name: str) -> int | None:
        """Add a detector; return the catalogue's version that includes it, None if the limit is reached."""

    async def delete_detector(self, detector_id: str) -> int | None:
        """Remove a detector; return the version without it, None if it does not exist."""

    async def purge_detector(self, detector_id: str) -> None:
        """Delete the files of a detector that was removed and that is active nowhere."""

    async def lease(self, detector_id: str, worker: str) -> int | None:
        """Grant a detector to a worker: return an epoch later than all before, None if it does not exist."""

    async def close(self) -> None:
        """Release the data folder."""

    async def end(self) -> None:
        """End the directory's process. Everything it confirmed is on the disk."""


class DirectoryStarter(Protocol):
    """Starts the directory."""

    async def start(self) -> DirectoryPort:
        """Start a directory, not yet opened. Raises ActorDied if that fails for now."""
