"""The directory without a process of its own."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from engine.runtime.catalogue.catalogue import Catalogue, CatalogueSettings
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.persistence import detector_snapshot as kept
from snapshots.files import Files
from snapshots.folders import create_folder
from tests.local_runtime.connections import Before, Mortal, no_fault, run

T = TypeVar("T")


class LocalCatalogueHandle(Mortal):
    """A Catalogue in this process. As a process would, it lets go of the data folder's lock when it dies."""

    def __init__(self, directory: Catalogue) -> None:
        super().__init__()
        self.directory = directory
        self.calls: list[str] = []
        self.before: Before = no_fault

    def die(self) -> None:
        super().die()
        self.directory.close()

    async def call(self, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        if method in (Catalogue.open, Catalogue.close):
            return method(self.directory)
        self.calls.append(method.__name__)
        await self._alive(self.before(method.__name__))
        # By its name, so that a test may replace it.
        return await self._alive(run(lambda: getattr(self.directory, method.__name__)(*arguments, **options)))

    async def end(self) -> None:
        self.die()


class LocalCatalogues:
    """Starts the directory in this process, and remembers every one."""

    def __init__(self, settings: RuntimeSettings, *, files: Files | None = None) -> None:
        self._settings = settings
        self._files = files
        self.started: list[LocalCatalogueHandle] = []
        self.before: Before = no_fault
        self.refuse = False

    async def start(self) -> LocalCatalogueHandle:
        await asyncio.sleep(0)
        if self.refuse:
            raise ActorDied("no process can be started")
        settings = self._settings
        known = CatalogueSettings(
            settings.data,
            settings.snapshots_kept,
            lock_wait_s=0,
            folder_id=settings.folder_id,
            detectors_max=settings.detectors_max,
            tokens_max=settings.tokens_max,
        )
        directory = Catalogue(known, files=self._files)
        handle = LocalCatalogueHandle(directory)
        handle.before = self.before
        self.started.append(handle)
        return handle


def newborn(data: Path, detector_id: str) -> None:
    """Make the folder of a detector, as the directory does."""
    create_folder(data / "detectors" / detector_id, kept.empty_snapshot(), version=kept.SNAPSHOT_VERSION)
