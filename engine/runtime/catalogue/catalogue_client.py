"""Calls to the directory, which is started again when it is lost; pending calls are then repeated."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Concatenate, Final, ParamSpec, TypeVar

from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.catalogue.catalogue_thread import CatalogueThread, CatalogueThreads
from engine.runtime.concurrency.background import Background
from engine.runtime.concurrency.batches import Batches
from engine.runtime.concurrency.open_calls import OpenCalls
from engine.runtime.contract.catalogue_changes import Changes, Opened, StoredToken, TokenEntry
from engine.runtime.contract.errors import (
    OUTCOME_UNKNOWN,
    STARTING,
    ActorDied,
    DetectorUnavailable,
    no_such_detector,
    no_such_token,
    shutting_down,
    too_many_detectors,
    too_many_tokens,
)
from engine.runtime.contract.settings import RuntimeSettings
from snapshots.errors import ClaimRemoved, NoRoom, StorageError, WriteFailed

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_REMOVED_KEPT: Final = 10
_CREATED_AT_ONCE_MAX: Final = 64


class CatalogueClient:
    """Calls the directory. A call during which it is lost is repeated on its successor until the deadline.

    Repeating is safe: the caller chooses the id of what it creates, and what is gone when a removal is
    repeated was removed by the first attempt. The methods are those of Catalogue; each one raises
    DetectorUnavailable, 1502 if a change may have been made.
    """

    def __init__(self, starter: CatalogueThreads, settings: RuntimeSettings) -> None:
        self._starter = starter
        self._settings = settings
        self._running: CatalogueThread | None = None
        self._starting = asyncio.Lock()
        self._background = Background()
        self._calls = OpenCalls(settings.deadline_s)
        self._creations = Batches(self._create, _CREATED_AT_ONCE_MAX)
        self.term = 0
        """The number of the directory's last opening; 0 before the first one."""
        self.problem: str | None = None
        """Why the last call failed; None if it did not."""
        self.removed: list[str] = []
        """What happened to the files of the last few directories that were lost."""

    async def start(self) -> Opened:
        """Start and open the directory. Raises StorageError, including FolderInUse."""
        async with self._starting:
            try:
                return await self._start()
            except ActorDied as error:
                raise StorageError(f"the directory of the data folder cannot be started: {error}") from error

    async def close(self) -> None:
        """Close the directory and end its process."""
        async with self._starting:
            directory, self._running = self._running, None
        if directory is not None:
            try:
                async with asyncio.timeout(self._settings.lock_wait_s):
                    await directory.call(Catalogue.close)
            except (ActorDied, TimeoutError) as error:
                _log.warning("the directory did not close: %s", error)
            await directory.end()

    def refuse_all(self) -> None:
        """Refuse all pending and future calls: the service is stopping."""
        self._calls.refuse_all()

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        return await self._ask(Catalogue.changes, tokens_seen, detectors_seen)

    async def add_token(self, token_id: str, token: StoredToken) -> int:
        """Store a token; return the version of the tokens that includes it. Raises Refusal 1400."""
        version, _ = await self._change(Catalogue.add_token, token_id, token)
        if version is None:
            raise too_many_tokens(self._settings.tokens_max)
        return version

    async def revoke_token(self, token_id: str) -> int:
        """Remove a token; return the version without it. Raises Refusal 1202."""
        version, repeated = await self._change(Catalogue.revoke_token, token_id)
        if version is None and not repeated:
            raise no_such_token(token_id)
        return version or 0

    async def tokens(self) -> list[TokenEntry]:
        return await self._ask(Catalogue.tokens)

    async def tokens_used(self, token_ids: list[str], at_ms: int) -> None:
        await self._ask(Catalogue.tokens_used, token_ids, at_ms)

    async def create_detector(self, detector_id: str, name: str) -> int:
        """Add a detector; return the catalogue's version that includes it. Raises Refusal 1400."""
        return self._within_limit(await self._creations.call((detector_id, name)))

    async def _create(self, wanted: Sequence[tuple[str, str]]) -> list[int | None]:
        names = dict(wanted)
        versions, _ = await self._change(Catalogue.create_detectors, names)
        # A front end that has lost its connection may ask again while its first call still waits.
        by_id = dict(zip(names, versions, strict=True))
        return [by_id[detector_id] for detector_id, _ in wanted]

    async def enter_fork(self, detector_id: str, name: str) -> int:
        """Add a detector whose folder was made, as `create_detector` does."""
        version, _ = await self._change(Catalogue.enter_fork, detector_id, name)
        return self._within_limit(version)

    def _within_limit(self, version: int | None) -> int:
        if version is None:
            raise too_many_detectors(self._settings.detectors_max)
        return version

    async def delete_detector(self, detector_id: str) -> int:
        """Remove a detector; return the version without it. Raises Refusal 1200."""
        version, repeated = await self._change(Catalogue.delete_detector, detector_id)
        if version is None and not repeated:
            raise no_such_detector(detector_id)
        return version or 0

    async def removed_detectors(self) -> list[str]:
        return await self._ask(Catalogue.removed_detectors)

    async def purge_detector(self, detector_id: str) -> None:
        await self._ask(Catalogue.purge_detector, detector_id)

    async def lease(self, detector_id: str) -> int | None:
        return await self._ask(Catalogue.lease, detector_id)

    async def check_owner(self) -> None:
        """Return once it is certain that no later directory owns the data folder; else the process ends."""
        await self._ask(Catalogue.check_owner)

    async def _ask(
        self, method: Callable[Concatenate[Catalogue, P], T], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Return the answer to a call that is harmless to repeat.

        Raises DetectorUnavailable: 1501 if no answer arrives within the deadline or the disk fails, and 1503
        if the service is stopping.
        """
        return await self._until_answered(_Attempts(), method, *arguments, **options)

    async def _change(
        self, method: Callable[Concatenate[Catalogue, P], T], *arguments: P.args, **options: P.kwargs
    ) -> tuple[T, bool]:
        """Return the answer to a change, and whether an earlier attempt may have been executed.

        Raises DetectorUnavailable as `_ask` does if nothing was done, and 1502 if that is not known.
        """
        attempts = _Attempts()
        try:
            answer = await self._until_answered(attempts, method, *arguments, **options)
        except DetectorUnavailable as error:
            if not attempts.unknown:
                raise
            message = f"{error.message}; the outcome of the request is unknown"
            raise DetectorUnavailable(OUTCOME_UNKNOWN, message, self._settings.retry_s) from error
        return answer, attempts.unknown

    async def _until_answered(
        self,
        attempts: "_Attempts",
        method: Callable[Concatenate[Catalogue, P], T],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        if self._calls.refused():
            raise shutting_down()
        reason = "it does not answer"
        directory = None
        try:
            async with self._calls.one():
                while True:
                    directory = None
                    try:
                        directory = await self._ensure_started()
                        async with asyncio.timeout(self._settings.directory_hung_s):
                            with attempts.one():
                                answer = await directory.call(method, *arguments, **options)
                    except (ActorDied, TimeoutError) as error:
                        reason = str(error) or "it has not answered"
                        _log.warning("the directory was lost, and is started again: %s", reason)
                    else:
                        self.problem = None
                        return answer
                    await self._lose(directory)
                    await asyncio.sleep(self._settings.ask_s)
        except TimeoutError:
            if self._calls.refused():
                raise shutting_down() from None
            self.problem = reason
            raise self._unavailable(reason) from None
        except StorageError as error:
            if self.problem is None:
                # Logged once: front ends ask twice a second.
                _log.error("the directory failed: %s", error)
            if not isinstance(error, NoRoom):
                # Memory and disk may differ; a new directory reads the disk.
                self.problem = str(error)
                if isinstance(error, ClaimRemoved):
                    self.removed = [*self.removed, f"tokens and catalogue: {error}"][-_REMOVED_KEPT:]
                await self._lose(directory)
            raise self._unavailable(str(error)) from error

    async def _lose(self, directory: CatalogueThread | None) -> None:
        """End a directory that is dead or hung, unless another call has done so."""
        if directory is not None and self._running is directory:
            self._running = None
            await self._background.finish(directory.end())

    async def _ensure_started(self) -> CatalogueThread:
        if self._running is not None:
            return self._running
        # A caller that leaves must not end what others wait for, nor leave a directory that is half open.
        return await self._background.finish(self._start_again())

    async def _start_again(self) -> CatalogueThread:
        async with self._starting:
            if self._running is None:
                async with asyncio.timeout(self._settings.deadline_s):
                    await self._start()
            assert self._running is not None, "_start sets it or raises"
            return self._running

    async def _start(self) -> Opened:
        directory = await self._starter.start()
        try:
            opened = await directory.call(Catalogue.open)
        except BaseException:
            await directory.end()
            raise
        self._running, self.term = directory, opened.term
        return opened

    def _unavailable(self, reason: str) -> DetectorUnavailable:
        message = f"the directory of tokens and detectors cannot be asked now: {reason}"
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
