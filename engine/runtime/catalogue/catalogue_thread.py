"""A Catalogue in a thread of its own, so that its disk never holds up the event loop."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Concatenate, Final, ParamSpec, TypeVar

from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.catalogue.catalogue_settings import CatalogueSettings
from engine.runtime.concurrency.threads import Threads
from snapshots.errors import Fenced

P = ParamSpec("P")
T = TypeVar("T")

_END_S: Final = 2.0


class CatalogueThread:
    """Executes the calls of a Catalogue one at a time.

    `give_up` ends the process: a later directory owns the folder, or the thread hangs and cannot be ended.
    """

    def __init__(self, directory: Catalogue, give_up: Callable[[str], None]) -> None:
        self._directory = directory
        self._give_up = give_up
        self._thread = Threads("directory")

    async def call(
        self, method: Callable[Concatenate[Catalogue, P], T], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Call a method of the directory, and raise what it raises."""
        work = partial(method, self._directory, *arguments, **options)
        try:
            return await self._thread.call(work)
        except Fenced as error:
            self._give_up(str(error))
            raise

    async def end(self) -> None:
        """Release the data folder, so that another Catalogue can be opened."""
        try:
            async with asyncio.timeout(_END_S):
                await self.call(Catalogue.close)
        except TimeoutError:
            self._give_up("the disk does not answer")
        self._thread.end()


class CatalogueThreads:
    """Starts directories in this process."""

    def __init__(self, settings: CatalogueSettings, give_up: Callable[[str], None]) -> None:
        self._settings = settings
        self._give_up = give_up

    async def start(self) -> CatalogueThread:
        """Start a directory, not yet opened."""
        return CatalogueThread(Catalogue(self._settings), self._give_up)
