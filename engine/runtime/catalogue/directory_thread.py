"""A Directory in a thread of its own: its disk never holds up the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from engine.runtime.catalogue.directory import Directory, DirectorySettings
from engine.runtime.contract.catalogue_changes import Changes, Opened, TokenEntry
from snapshots.errors import Fenced

T = TypeVar("T")

_END_S: Final = 2.0


class DirectoryThread:
    """Executes the calls of a Directory one at a time.

    `give_up` ends the process: a later directory owns the folder, or the thread hangs and cannot be ended.
    """

    def __init__(self, directory: Directory, give_up: Callable[[str], None]) -> None:
        self._directory = directory
        self._give_up = give_up
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="directory")

    async def open(self) -> Opened:
        """Lock the data folder and read it. Raises StorageError, including FolderInUse."""
        return await self._call(self._directory.open)

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Return the changes since those versions."""
        return await self._call(partial(self._directory.changes, tokens_seen, detectors_seen))

    async def add_token(
        self, token_id: str, digest: bytes, hint: str, name: str = "", created_at_ms: int | None = None
    ) -> int:
        """Store a token; return the version of the tokens that includes it."""
        return await self._call(
            partial(self._directory.add_token, token_id, digest, hint, name, created_at_ms)
        )

    async def revoke_token(self, token_id: str) -> int | None:
        """Remove a token; return the version without it, None if it does not exist."""
        return await self._call(partial(self._directory.revoke_token, token_id))

    async def tokens(self) -> list[TokenEntry]:
        """Return all tokens, in order of creation."""
        return await self._call(self._directory.tokens)

    async def tokens_used(self, token_ids: list[str], at_ms: int) -> None:
        """Note that tokens were used."""
        await self._call(partial(self._directory.tokens_used, token_ids, at_ms))

    async def create_detector(self, detector_id: str, name: str, *, is_made: bool = False) -> int | None:
        """Add a detector; return the catalogue's version that includes it, None if the limit is reached."""
        create = partial(self._directory.create_detector, detector_id, name, is_made=is_made)
        return await self._call(create)

    async def delete_detector(self, detector_id: str) -> int | None:
        """Remove a detector; return the version without it, None if it does not exist."""
        return await self._call(partial(self._directory.delete_detector, detector_id))

    async def purge_detector(self, detector_id: str) -> None:
        """Delete the files of a detector that was removed, or never completed, and that is active nowhere."""
        await self._call(partial(self._directory.purge_detector, detector_id))

    async def lease(self, detector_id: str, worker: str) -> int | None:
        """Grant a detector to a worker: return an epoch, None if it does not exist."""
        return await self._call(partial(self._directory.lease, detector_id, worker))

    async def close(self) -> None:
        """Release the data folder."""
        await self._call(self._directory.close)

    async def end(self) -> None:
        """Release the data folder, so that another Directory can be opened."""
        try:
            async with asyncio.timeout(_END_S):
                await self.close()
        except TimeoutError:
            self._give_up("the disk does not answer")
        self._thread.shutdown(wait=False)

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except Fenced as error:
            self._give_up(str(error))
            raise


class DirectoryThreads:
    """Starts directories in this process."""

    def __init__(self, settings: DirectorySettings, give_up: Callable[[str], None]) -> None:
        self._settings = settings
        self._give_up = give_up

    async def start(self) -> DirectoryThread:
        """Start a directory, not yet opened."""
        return DirectoryThread(Directory(self._settings), self._give_up)
