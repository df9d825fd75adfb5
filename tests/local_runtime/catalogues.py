"""The directory's catalogue, without a thread of its own."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.catalogue.catalogue_client import CatalogueClient
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.persistence import detector_snapshot as kept
from snapshots.errors import StorageError
from snapshots.files import Files
from snapshots.folders import create_folder
from tests.local_runtime.connections import Before, no_fault

if TYPE_CHECKING:
    from engine.runtime.concurrency.threads import Threads

T = TypeVar("T")


class LocalCatalogues:
    """Executes the calls of a directory at once, and stores them and each opened catalogue."""

    def __init__(self, settings: RuntimeSettings, *, files: Files | None = None) -> None:
        self._settings = settings
        self._files = files
        self.started: list[Catalogue] = []
        self.calls: list[str] = []
        self.before: Before = no_fault
        self.refuse = False
        """Whether opening a catalogue fails."""
        self.ended = False
        self.given_up: list[str] = []

    def client(self) -> CatalogueClient:
        thread = cast("Threads", self)
        return CatalogueClient(self._make, self._settings, thread, self.given_up.append)

    def fail(self) -> None:
        """Make the disk fail: the open catalogue can do nothing more."""
        self.started[-1].close()

    def end(self) -> None:
        self.ended = True

    async def call(self, work: Callable[[], T]) -> T:
        if not isinstance(work, partial):
            if self.refuse and work == self.started[-1].open:
                raise StorageError("the disk is away")
            return work()
        name, (catalogue, *arguments) = work.func.__name__, work.args
        self.calls.append(name)
        await self.before(name)
        # By name, so that a test may replace it.
        outcome: T = getattr(catalogue, name)(*arguments)
        return outcome

    def _make(self) -> Catalogue:
        settings = dataclasses.replace(self._settings, lock_wait_s=0)
        self.started.append(Catalogue(settings, files=self._files))
        return self.started[-1]


def newborn(data: Path, detector_id: str) -> None:
    """Create the folder of a detector, like the directory."""
    create_folder(data / "detectors" / detector_id, kept.empty_snapshot(), version=kept.SNAPSHOT_VERSION)
