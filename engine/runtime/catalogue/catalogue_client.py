"""The catalogue in a thread, so that its disk never blocks the event loop. It is reopened after errors."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from engine.language.diagnostics import Refusal
from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.catalogue.catalogue_state import DetectorCreated
from engine.runtime.concurrency.background import Background
from engine.runtime.concurrency.threads import Threads
from engine.runtime.contract.catalogue_changes import Made, Opened
from engine.runtime.contract.errors import OUTCOME_UNKNOWN, STARTING, DetectorUnavailable, too_many
from engine.runtime.contract.settings import RuntimeSettings
from snapshots.errors import ClaimRemoved, Fenced, NoRoom, StorageError, WriteFailed

T = TypeVar("T")

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
"""The methods whose callers must learn that the outcome is unknown, if it is."""


def _asked(
    method: Callable[Concatenate[Catalogue, P], T],
) -> "Callable[Concatenate[CatalogueClient, P], Coroutine[Any, Any, T]]":
    """Return a method of the client that executes a method of the catalogue in the thread."""

    async def asked(client: "CatalogueClient", /, *arguments: P.args, **options: P.kwargs) -> T:
        return await client.ask(method, *arguments, **options)

    return asked


@dataclass(eq=False)
class CatalogueClient:
    """Executes the methods of Catalogue in a thread, one at a time.

    Each method raises DetectorUnavailable if the disk fails: 1501, or 1502 if a change may have been made.
    After a disk error, memory and disk may differ, so the next call reopens the catalogue.
    """

    _make: Callable[[], Catalogue]
    """Makes a catalogue that is not opened yet."""
    _settings: RuntimeSettings
    _thread: Threads
    """Executes the catalogue's methods."""
    _give_up: Callable[[str], object]
    """Ends the process: a later directory owns the folder, or the disk hangs."""
    term: int = 0
    """The number of the directory's last opening; 0 before the first one."""
    problem: str | None = None
    """Why the last call failed; None if it did not."""
    removed: list[str] = field(default_factory=list)
    """What happened to the files of catalogues that were given up; the last few messages."""
    _opened: Catalogue | None = None
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _background: Background = field(default_factory=Background)
    _wanted: list[tuple[DetectorCreated, asyncio.Future[int | None]]] = field(default_factory=list)
    """The detectors to create, each with the future of its version."""
    _creating: asyncio.Task[None] | None = None

    async def start(self) -> Opened:
        """Open the catalogue. Raises StorageError, including FolderInUse."""
        async with self._opening:
            return await self._open()

    async def close(self) -> None:
        """Save all changes, and release the data folder."""
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

        `owner` is the id of the token that creates it, if that token is limited to some detectors.
        """
        version: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._wanted.append((DetectorCreated(detector_id, name, owner, made), version))
        if self._creating is None or self._creating.done():
            self._creating = self._background.begin(self._create())
        if (created := await version) is None:
            raise too_many("detectors", self._settings.detectors_max, owner)
        return created

    async def _create(self) -> None:
        """Create the requested detectors, in one call all that were requested during the previous call."""
        while batch := self._wanted[:_CREATED_AT_ONCE_MAX]:
            del self._wanted[:_CREATED_AT_ONCE_MAX]
            # A front end that lost its connection may repeat a call while the first one still waits.
            by_id = {one.id: one for one, _ in batch}
            names = {one.id: one.name for one in by_id.values()}
            owners = {one.id: one.owner for one in by_id.values()}
            made = {one.id: one.made for one in by_id.values() if one.made is not None}
            try:
                versions = await self.ask(Catalogue.create_detectors, names, owners, made)
            except Exception as error:  # noqa: BLE001 -- the callers raise it
                for _, version in batch:
                    if not version.done():
                        version.set_exception(error)
            else:
                found = dict(zip(names, versions, strict=True))
                for one, version in batch:
                    if not version.done():
                        version.set_result(found[one.id])

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
        """Call a method of the catalogue. Raises what it raises, and DetectorUnavailable."""
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
                # Logged only once, because front ends ask twice a second.
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
        """Give up a catalogue after an error, unless another call already has."""
        if catalogue is not None and self._opened is catalogue:
            self._opened = None
            await self._background.finish(self._execute(catalogue.close, self._settings.directory_hung_s))

    async def _ensure_open(self) -> Catalogue:
        if self._opened is not None:
            return self._opened
        # A cancelled caller must neither cancel the opening for others nor leave it half done.
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
        """Execute a call in the thread. Ends the process if the directory must not answer any more."""
        try:
            async with asyncio.timeout(within_s):
                return await self._thread.call(work)
        except Fenced as error:
            self._give_up(str(error))
            raise
        except TimeoutError:
            self._give_up("the disk does not answer")
            raise StorageError("the disk does not answer") from None
