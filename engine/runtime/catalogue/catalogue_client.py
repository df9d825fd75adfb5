"""The catalogue in a thread, so that its disk never holds up the event loop; opened again after errors."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from engine.language.diagnostics import Refusal
from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.concurrency.background import Background
from engine.runtime.concurrency.threads import Threads
from engine.runtime.contract.catalogue_changes import Made, Opened
from engine.runtime.contract.errors import (
    OUTCOME_UNKNOWN,
    STARTING,
    DetectorUnavailable,
    too_many_detectors,
)
from engine.runtime.contract.settings import RuntimeSettings
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


def _asked(
    method: Callable[Concatenate[Catalogue, P], T],
) -> "Callable[Concatenate[CatalogueClient, P], Coroutine[Any, Any, T]]":
    """Return a method of the client: that of the catalogue, executed in the thread."""

    async def asked(client: "CatalogueClient", /, *arguments: P.args, **options: P.kwargs) -> T:
        return await client.ask(method, *arguments, **options)

    return asked


@dataclass(eq=False)
class CatalogueClient:
    """Executes the methods of Catalogue in a thread, one at a time.

    Each one raises DetectorUnavailable: 1501 if the disk fails, and 1502 if a change may have been made then.
    After an error of the disk, memory and disk may differ: the next call opens the catalogue again.
    """

    _make: Callable[[], Catalogue]
    """Makes a catalogue that is not opened yet."""
    _settings: RuntimeSettings
    _thread: Threads
    """Executes its methods."""
    _give_up: Callable[[str], object]
    """Ends the process: a later directory owns the folder, or the disk hangs."""
    term: int = 0
    """The number of the directory's last opening; 0 before the first one."""
    problem: str | None = None
    """Why the last call failed; None if it did not."""
    removed: list[str] = field(default_factory=list)
    """What happened to the files of the last few catalogues that were given up."""
    _opened: Catalogue | None = None
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _background: Background = field(default_factory=Background)

    def __post_init__(self) -> None:
        self._creations = Batches(self._create, _CREATED_AT_ONCE_MAX)

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

    async def create_detector(
        self, detector_id: str, name: str, owner: str = "", made: Made | None = None
    ) -> int:
        """Add a detector; return the catalogue's version that includes it. Raises Refusal 1400.

        `owner` is the id of the token that makes it, if that is for some detectors only.
        """
        version = await self._creations.call((detector_id, name, owner, made))
        if version is None:
            raise too_many_detectors(self._settings.detectors_max, owner)
        return version

    async def _create(self, wanted: Sequence[tuple[str, str, str, Made | None]]) -> list[int | None]:
        names = {detector_id: name for detector_id, name, _, _ in wanted}
        owners = {detector_id: owner for detector_id, _, owner, _ in wanted}
        made = {detector_id: one for detector_id, _, _, one in wanted if one is not None}
        versions = await self.ask(Catalogue.create_detectors, names, owners, made)
        # A front end that has lost its connection may ask again while its first call still waits.
        by_id = dict(zip(names, versions, strict=True))
        return [by_id[detector_id] for detector_id, _, _, _ in wanted]

    changes = _asked(Catalogue.changes)
    add_token = _asked(Catalogue.add_token)
    revoke_token = _asked(Catalogue.revoke_token)
    tokens = _asked(Catalogue.tokens)
    tokens_used = _asked(Catalogue.tokens_used)
    enter_fork = _asked(Catalogue.enter_fork)
    delete_detector = _asked(Catalogue.delete_detector)
    removed_detectors = _asked(Catalogue.removed_detectors)
    purge_detector = _asked(Catalogue.purge_detector)
    report_changes = _asked(Catalogue.report_changes)
    logged_changes = _asked(Catalogue.logged_changes)
    lease = _asked(Catalogue.lease)
    dues = _asked(Catalogue.dues)
    check_owner = _asked(Catalogue.check_owner)

    async def ask(
        self, method: Callable[Concatenate[Catalogue, P], T], /, *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Return what a method of the catalogue returns. Raises what it raises, and DetectorUnavailable."""
        catalogue: Catalogue | None = None
        try:
            catalogue = await self._ensure_open()
            call = partial(method, catalogue, *arguments, **options)
            answer = await self._execute(call, self._settings.directory_hung_s)
        except Refusal:
            self.problem = None
            raise
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
