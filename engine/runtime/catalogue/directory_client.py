"""Calls to the directory, which is restarted when it dies; pending calls are then repeated."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from engine.runtime.contract.catalogue_changes import Changes, Opened, TokenEntry
from engine.runtime.contract.errors import (
    OUTCOME_UNKNOWN,
    STARTING,
    ActorDied,
    DetectorUnavailable,
    no_such_detector,
    no_such_token,
    shutting_down,
    too_many_detectors,
)
from engine.runtime.contract.ports import DirectoryPort, DirectoryStarter
from engine.runtime.contract.settings import RuntimeSettings
from snapshots.errors import ClaimRemoved, NoRoom, StorageError, WriteFailed

_log = logging.getLogger(__name__)

T = TypeVar("T")

_REMOVED_KEPT = 10


class DirectoryClient:
    """Calls the directory. A call during which it dies is repeated on its successor until the deadline.

    Repeating is safe: the caller chooses the id of what it creates, and what is gone when a removal is
    repeated was removed by the first attempt.
    """

    def __init__(self, starter: DirectoryStarter, settings: RuntimeSettings) -> None:
        self._starter = starter
        self._settings = settings
        self._handle: DirectoryPort | None = None
        self._starting = asyncio.Lock()
        self.trouble: str | None = None
        """Why the last call failed; None if it did not."""
        self.removed: list[str] = []
        """What happened to the files of the last few directories that had to restart."""
        self._asks: set[asyncio.Timeout] = set()
        self._refusing = False

    async def start(self) -> Opened:
        """Start and open the directory. Raises StorageError, including FolderInUse."""
        async with self._starting:
            try:
                return await self._start()
            except ActorDied as error:
                raise StorageError(f"the owner of the data folder cannot be started: {error}") from error

    async def close(self) -> None:
        """Close the directory and end its process."""
        async with self._starting:
            handle, self._handle = self._handle, None
        if handle is not None:
            try:
                async with asyncio.timeout(self._settings.lock_wait_s):
                    await handle.close()
            except (ActorDied, TimeoutError) as error:
                _log.warning("the directory did not close: %s", error)
            await handle.end()

    def refuse_all(self) -> None:
        """Refuse all pending and future calls: the service is stopping."""
        self._refusing = True
        for ask in self._asks:
            ask.reschedule(0.0)

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Return the changes since those versions."""
        return await self._ask(lambda handle: handle.changes(tokens_seen, detectors_seen))

    async def add_token(
        self, token_id: str, digest: bytes, hint: str, name: str = "", created_at_ms: int | None = None
    ) -> int:
        """Store a token; return the version of the tokens that includes it."""
        version, _ = await self._change(
            lambda handle: handle.add_token(token_id, digest, hint, name, created_at_ms)
        )
        return version

    async def revoke_token(self, token_id: str) -> int:
        """Remove a token; return the version without it. Raises Refusal 1202."""
        version, repeated = await self._change(lambda handle: handle.revoke_token(token_id))
        if version is None and not repeated:
            raise no_such_token(token_id)
        return version or 0

    async def tokens(self) -> list[TokenEntry]:
        """Return all tokens, in order of creation."""
        return await self._ask(lambda handle: handle.tokens())

    async def tokens_used(self, token_ids: list[str], at_ms: int) -> None:
        """Note that tokens were used."""
        await self._ask(lambda handle: handle.tokens_used(token_ids, at_ms))

    async def create_detector(self, detector_id: str, name: str, *, is_made: bool = False) -> int:
        """Add a detector; return the catalogue's version that includes it. Raises Refusal 1400.

        With `is_made`, its folder has its first snapshot already.
        """
        version, _ = await self._change(
            lambda handle: handle.create_detector(detector_id, name, is_made=is_made)
        )
        if version is None:
            raise too_many_detectors(self._settings.detectors_max)
        return version

    async def delete_detector(self, detector_id: str) -> int:
        """Remove a detector; return the version without it. Raises Refusal 1200."""
        version, repeated = await self._change(lambda handle: handle.delete_detector(detector_id))
        if version is None and not repeated:
            raise no_such_detector(detector_id)
        return version or 0

    async def purge_detector(self, detector_id: str) -> None:
        """Delete the files of a detector that was removed, or never completed, and that is active nowhere."""
        await self._ask(lambda handle: handle.purge_detector(detector_id))

    async def lease(self, detector_id: str, worker: str) -> int | None:
        """Grant a detector to a worker: return an epoch, None if it does not exist."""
        return await self._ask(lambda handle: handle.lease(detector_id, worker))

    async def _ask(self, call: Callable[[DirectoryPort], Awaitable[T]]) -> T:
        """Return the answer to what changes nothing that anyone is told of.

        Raises DetectorUnavailable: 1501 if no answer arrives within the deadline or the disk fails, and 1503
        if the service is stopping.
        """
        return await self._until_answered(call, _Attempts())

    async def _change(self, call: Callable[[DirectoryPort], Awaitable[T]]) -> tuple[T, bool]:
        """Return the answer to a change, and whether an earlier attempt may have been executed.

        Raises DetectorUnavailable as `_ask` does if nothing was done, and 1502 if that is not known.
        """
        attempts = _Attempts()
        try:
            answer = await self._until_answered(call, attempts)
        except DetectorUnavailable as error:
            if not attempts.unknown:
                raise
            said = f"{error.message}; the outcome of the request is unknown"
            raise DetectorUnavailable(OUTCOME_UNKNOWN, said, self._settings.retry_s) from error
        return answer, attempts.unknown

    async def _until_answered(
        self, call: Callable[[DirectoryPort], Awaitable[T]], attempts: "_Attempts"
    ) -> T:
        if self._refusing:
            raise shutting_down()
        reason = "it does not answer"
        handle = None
        try:
            async with self._within_deadline():
                while True:
                    handle = None
                    try:
                        handle = await self._running()
                        async with asyncio.timeout(self._settings.directory_hung_s):
                            with attempts.one():
                                answer = await call(handle)
                    except (ActorDied, TimeoutError) as error:
                        reason = str(error) or "it has not answered"
                        _log.warning("the directory was lost, and is started again: %s", reason)
                    else:
                        self.trouble = None
                        return answer
                    await self._lose(handle)
                    await asyncio.sleep(self._settings.ask_s)
        except TimeoutError:
            if self._refusing:
                raise shutting_down() from None
            self.trouble = reason
            raise self._unavailable(reason) from None
        except StorageError as error:
            if self.trouble is None:
                # Logged once: front ends ask twice a second.
                _log.error("the directory failed: %s", error)
            if not isinstance(error, NoRoom):
                # Memory and disk may differ; a new directory reads the disk.
                self.trouble = str(error)
                if isinstance(error, ClaimRemoved):
                    self.removed = [*self.removed, f"tokens and catalogue: {error}"][-_REMOVED_KEPT:]
                await self._lose(handle)
            raise self._unavailable(str(error)) from error

    @asynccontextmanager
    async def _within_deadline(self) -> AsyncIterator[None]:
        async with asyncio.timeout(self._settings.deadline_s) as ask:
            self._asks.add(ask)
            try:
                yield
            finally:
                self._asks.discard(ask)

    async def _lose(self, handle: DirectoryPort | None) -> None:
        """End a directory that is dead or hung, unless another call has done so."""
        if handle is not None and self._handle is handle:
            self._handle = None
            await handle.end()

    async def _running(self) -> DirectoryPort:
        if self._handle is None:
            async with self._starting:
                if self._handle is None:
                    await self._start()
        assert self._handle is not None, "starting gives a handle or raises"
        return self._handle

    async def _start(self) -> Opened:
        handle = await self._starter.start()
        try:
            opened = await handle.open()
        except BaseException:
            await handle.end()
            raise
        self._handle = handle
        return opened

    def _unavailable(self, reason: str) -> DetectorUnavailable:
        message = f"the owner of tokens and detectors cannot be asked now: {reason}"
        return DetectorUnavailable(STARTING, message, self._settings.retry_s)


class _Attempts:
    """The attempts at one call."""

    def __init__(self) -> None:
        self.unknown = False
        """Whether one of them ended without an answer, and may have been executed."""

    @contextmanager
    def one(self) -> Iterator[None]:
        try:
            yield
        except (NoRoom, WriteFailed):
            # This one was not.
            raise
        except BaseException:
            self.unknown = True
            raise
