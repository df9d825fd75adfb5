"""What the fleet needs of actors and of the directory: few methods, with Ray or a fake behind them."""

from collections.abc import Sequence
from typing import Protocol

from engine.runtime.contract.calls import Activated, Health
from engine.runtime.contract.catalogue_changes import Changes, Opened
from engine.runtime.contract.operations import Operation, Reply


class WorkerPort(Protocol):
    """One started actor. Every call raises ActorDied where the actor is gone or out of reach.

    One call at a time, but for `finish_saving`, `health`, `watch` and `end`.
    """

    @property
    def name(self) -> str:
        """Which actor it is, for the directory and the log."""

    async def activate(self, detector_id: str, epoch: int) -> Activated:
        """Wake a detector. Raises StorageError."""

    async def handle(self, batch: Sequence[Operation]) -> Reply:
        """Carry out a batch. Raises StorageError where its answers would not last."""

    async def sync(self) -> None:
        """Bring to the disk what the journal holds. Raises StorageError."""

    async def begin_saving(self) -> bool:
        """Copy what a snapshot holds; tells whether there is anything for `finish_saving`.

        Raises StorageError.
        """

    async def finish_saving(self) -> None:
        """Write the snapshot that was begun, while batches are carried out. Raises StorageError."""

    async def passivate(self) -> int:
        """Save and forget the detector; the bytes that the process holds. Raises StorageError."""

    async def discard(self) -> None:
        """Forget the detector without saving it."""

    async def health(self) -> Health:
        """Say how the actor is, also while it is busy."""

    async def watch(self) -> None:
        """Come back when the actor is dead."""

    async def end(self) -> None:
        """End the actor's process. Nothing is saved."""


class WorkerStarter(Protocol):
    """Where actors come from."""

    async def start(self) -> WorkerPort:
        """Start an actor, and give it once it can be asked."""


class DirectoryPort(Protocol):
    """The directory, once it is started. Every call raises ActorDied where it is gone or out of reach.

    All but `open` may be repeated without harm when their outcome is not known.
    """

    async def open(self) -> Opened:
        """Take hold of the data folder and read it. Raises StorageError, FolderInUse among them."""

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Give what is new since then."""

    async def add_token(self, token_id: str, digest: bytes, hint: str) -> int:
        """Keep a token; the version of the tokens that has it."""

    async def revoke_token(self, token_id: str) -> int | None:
        """Forget a token; the version that has it no more, None where there was none."""

    async def create_detector(self, detector_id: str, name: str) -> int | None:
        """Enter a detector; the version of the catalogue that has it, None where there are too many."""

    async def delete_detector(self, detector_id: str) -> int | None:
        """Strike a detector out; the version that has it no more, None where there was none."""

    async def purge_detector(self, detector_id: str) -> None:
        """Remove the files of a detector that was struck out and that no actor hosts."""

    async def lease(self, detector_id: str, actor: str) -> int | None:
        """Grant a detector to an actor: an epoch later than all before, None for an unknown detector."""

    async def close(self) -> None:
        """Let go of the data folder."""

    async def end(self) -> None:
        """End the directory's process. What it answered for is on the disk."""


class DirectoryStarter(Protocol):
    """Where the directory comes from."""

    async def start(self) -> DirectoryPort:
        """Start a directory, not yet opened. Raises ActorDied where that fails for now."""
