"""The catalogue in a thread, so that its disk never holds up the event loop; opened again after errors."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.concurrency.background import Background
from engine.runtime.concurrency.threads import Threads
from engine.runtime.contract.catalogue_changes import Changes, LoggedChange, LoggedPage, Made, Opened
from engine.runtime.contract.errors import (
    OUTCOME_UNKNOWN,
    STARTING,
    DetectorUnavailable,
    no_such_detector,
    no_such_token,
    too_many_detectors,
    too_many_tokens,
)
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import TOKEN_DETECTORS_MAX, StoredToken, TokenEntry
from snapshots.errors import ClaimRemoved, Fenced, NoRoom, StorageError, WriteFailed

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)

P = ParamSpec("P")

_REMOVED_KEPT: Final = 10
_CREATED_AT_ONCE_MAX: Final = 64
_CHANGES: Final[frozenset[Callable[..., Any]]] = frozenset(
    {
        Catalogue.add_token,
        Catalogue.revoke_token,
        Catalogue.create_detectors,
        Catalogue.enter_fork,
        Catalogue.delete_detector,
        Catalogue.report_changes,
    }
)
"""The methods of which callers must know whether they may have been executed."""


class Batches(Generic[T, R]):
    """Joins calls to batches, one under way at a time.

    `execute` returns the results of a batch, in order. What it raises is raised by all calls of the batch.
    """

    def __init__(self, execute: Callable[[Sequence[T]], Awaitable[Sequence[R]]], calls_max: int) -> None:
        self._execute = execute
        self._calls_max = calls_max
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._under_way = False
        self._background = Background()

    async def call(self, wanted: T) -> R:
        """Return the result of one call. Cancelling the caller does not cancel the call."""
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, result))
        if not self._under_way:
            self._under_way = True
            self._background.begin(self._run())
        return await result

    async def _run(self) -> None:
        try:
            while batch := self._waiting[: self._calls_max]:
                del self._waiting[: self._calls_max]
                await self._run_one(batch)
        finally:
            self._under_way = False

    async def _run_one(self, batch: Sequence[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            results = await self._execute([wanted for wanted, _ in batch])
        except Exception as error:  # noqa: BLE001 -- the callers raise it
            for _, result in batch:
                if not result.done():
                    result.set_exception(error)
        else:
            for (_, result), value in zip(batch, results, strict=True):
                if not result.done():
                    result.set_result(value)


class CatalogueClient:
    """Executes the methods of Catalogue in a thread, one at a time.

    Each one raises DetectorUnavailable: 1501 if the disk fails, and 1502 if a change may have been made then.
    After an error of the disk, memory and disk may differ: the next call opens the catalogue again.
    """

    def __init__(
        self,
        make: Callable[[], Catalogue],
        settings: RuntimeSettings,
        thread: Threads,
        give_up: Callable[[str], object],
    ) -> None:
        """`make` makes a catalogue that is not opened yet, and `thread` executes its methods.

        `give_up` ends the process: a later directory owns the folder, or the disk hangs.
        """
        self._make = make
        self._settings = settings
        self._thread = thread
        self._give_up = give_up
        self._opened: Catalogue | None = None
        self._opening = asyncio.Lock()
        self._background = Background()
        self._creations = Batches(self._create, _CREATED_AT_ONCE_MAX)
        self.term = 0
        """The number of the directory's last opening; 0 before the first one."""
        self.problem: str | None = None
        """Why the last call failed; None if it did not."""
        self.removed: list[str] = []
        """What happened to the files of the last few catalogues that were given up."""

    async def start(self) -> Opened:
        """Open the catalogue. Raises StorageError, including FolderInUse."""
        async with self._opening:
            return await self._open()

    async def close(self) -> None:
        """Save what changed, and release the data folder."""
        async with self._opening:
            catalogue, self._opened = self._opened, None
        if catalogue is not None:
            try:
                async with asyncio.timeout(self._settings.lock_wait_s):
                    await self._thread.call(catalogue.close)
            except TimeoutError:
                _log.warning("the directory did not close")
        self._thread.end()

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        return await self._ask(Catalogue.changes, tokens_seen, detectors_seen)

    async def add_token(self, token_id: str, token: StoredToken, made: Made | None = None) -> int:
        """Store a token; return the version of the tokens that includes it. Raises Refusal 1400."""
        version = await self._ask(Catalogue.add_token, token_id, token, made)
        if version is None:
            raise too_many_tokens(self._settings.tokens_max)
        return version

    async def revoke_token(self, token_id: str, made: Made | None = None) -> int:
        """Remove a token; return the version without it. Raises Refusal 1202."""
        version = await self._ask(Catalogue.revoke_token, token_id, made)
        if version is None:
            raise no_such_token(token_id)
        return version

    async def tokens(self) -> list[TokenEntry]:
        return await self._ask(Catalogue.tokens)

    async def tokens_used(self, token_ids: list[str], at_ms: int) -> None:
        await self._ask(Catalogue.tokens_used, token_ids, at_ms)

    async def create_detector(
        self, detector_id: str, name: str, owner: str = "", made: Made | None = None
    ) -> int:
        """Add a detector; return the catalogue's version that includes it. Raises Refusal 1400.

        `owner` is the id of the token that makes it, if that is for some detectors only.
        """
        return self._within_limit(owner, await self._creations.call((detector_id, name, owner, made)))

    async def _create(self, wanted: Sequence[tuple[str, str, str, Made | None]]) -> list[int | None]:
        names = {detector_id: name for detector_id, name, _, _ in wanted}
        owners = {detector_id: owner for detector_id, _, owner, _ in wanted}
        made = {detector_id: one for detector_id, _, _, one in wanted if one is not None}
        versions = await self._ask(Catalogue.create_detectors, names, owners, made)
        # A front end that has lost its connection may ask again while its first call still waits.
        by_id = dict(zip(names, versions, strict=True))
        return [by_id[detector_id] for detector_id, _, _, _ in wanted]

    async def enter_fork(
        self, detector_id: str, name: str, owner: str = "", made: Made | None = None, source: str = ""
    ) -> int:
        """Add a detector whose folder was made, as `create_detector` does."""
        return self._within_limit(
            owner, await self._ask(Catalogue.enter_fork, detector_id, name, owner, made, source)
        )

    def _within_limit(self, owner: str, version: int | None) -> int:
        if version is None:
            raise too_many_detectors(self._settings.detectors_max, TOKEN_DETECTORS_MAX if owner else None)
        return version

    async def delete_detector(self, detector_id: str, made: Made | None = None) -> int:
        """Remove a detector; return the version without it. Raises Refusal 1200."""
        version = await self._ask(Catalogue.delete_detector, detector_id, made)
        if version is None:
            raise no_such_detector(detector_id)
        return version

    async def report_changes(self, report_id: str, changes: list[LoggedChange]) -> None:
        await self._ask(Catalogue.report_changes, report_id, changes)

    async def logged_changes(self, after: int, limit: int) -> LoggedPage:
        return await self._ask(Catalogue.logged_changes, after, limit)

    async def removed_detectors(self) -> list[str]:
        return await self._ask(Catalogue.removed_detectors)

    async def purge_detector(self, detector_id: str) -> None:
        await self._ask(Catalogue.purge_detector, detector_id)

    async def lease(self, detector_id: str) -> int | None:
        return await self._ask(Catalogue.lease, detector_id)

    async def dues(self, detector_ids: Sequence[str]) -> dict[str, int]:
        return await self._ask(Catalogue.dues, detector_ids)

    async def check_owner(self) -> None:
        """Return once it is certain that no later directory owns the data folder; else the process ends."""
        await self._ask(Catalogue.check_owner)

    async def _ask(self, method: Callable[Concatenate[Catalogue, P], T], *arguments: P.args) -> T:  # type: ignore[valid-type]
        catalogue: Catalogue | None = None
        try:
            catalogue = await self._ensure_open()
            call = partial(method, catalogue, *arguments)
            answer = await self._execute(call, self._settings.directory_hung_s)
        except StorageError as error:
            if self.problem is None:
                # Logged once: front ends ask twice a second.
                _log.error("the directory failed: %s", error)
            if not isinstance(error, NoRoom):
                self.problem = str(error)
                if isinstance(error, ClaimRemoved):
                    self.removed = [*self.removed, f"tokens and catalogue: {error}"][-_REMOVED_KEPT:]
                await self._lose(catalogue)
            code, message = STARTING, f"the directory of tokens and detectors cannot be asked now: {error}"
            if method in _CHANGES and catalogue is not None and not isinstance(error, NoRoom | WriteFailed):
                code, message = OUTCOME_UNKNOWN, f"{message}; the outcome of the request is unknown"
            raise DetectorUnavailable(code, message, self._settings.retry_s) from error
        self.problem = None
        return answer

    async def _lose(self, catalogue: Catalogue | None) -> None:
        """Give up a catalogue after an error, unless another call has done so."""
        if catalogue is not None and self._opened is catalogue:
            self._opened = None
            await self._background.finish(self._execute(catalogue.close, self._settings.directory_hung_s))

    async def _ensure_open(self) -> Catalogue:
        if self._opened is not None:
            return self._opened
        # A caller that leaves must not end what others wait for, nor leave a catalogue that is half open.
        return await self._background.finish(self._open_again())

    async def _open_again(self) -> Catalogue:
        async with self._opening:
            if self._opened is None:
                await self._open(self._settings.deadline_s)
            assert self._opened is not None, "_open sets it or raises"
            return self._opened

    async def _open(self, within_s: float | None = None) -> Opened:
        catalogue = self._make()
        opened = await self._execute(catalogue.open, within_s)
        self._opened, self.term = catalogue, opened.term
        return opened

    async def _execute(self, work: Callable[[], T], within_s: float | None) -> T:
        """Execute a call in the thread. If the directory must not answer any more, the process ends."""
        try:
            async with asyncio.timeout(within_s):
                return await self._thread.call(work)
        except Fenced as error:
            self._give_up(str(error))
            raise
        except TimeoutError:
            self._give_up("the disk does not answer")
            raise StorageError("the disk does not answer") from None
