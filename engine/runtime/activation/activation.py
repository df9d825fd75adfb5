"""One active detector: its calls, snapshots, syncs and passivation."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from engine.runtime.activation.detector_thread import DetectorThread
from engine.runtime.activation.schedule import Reporter, Schedule
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.measures import FENCED, FORKS, SNAPSHOTS_FAILED, SNAPSHOTS_WRITTEN
from engine.runtime.contract.requests.calls import Activated, Reply, Report
from engine.runtime.contract.requests.operations import LONG, Operation
from engine.runtime.contract.settings import RuntimeSettings
from snapshots.errors import Fenced, StorageError, SyncFailed, WriteFailed

T = TypeVar("T")

_log = logging.getLogger(__name__)

_STALLED = 2.5
"""A call is reported as a problem after 1 / _STALLED of the time after which it counts as hung. By default
that is after 24 s, because a batch may take 20 s."""


class Activation:
    """A detector while it is active in this process.

    The detector's queue calls the coroutines one at a time; a snapshot is written concurrently. Each
    coroutine raises ActorDied if the thread that executes it hangs. `wake` is called when work becomes due.
    """

    def __init__(
        self,
        detector_id: str,
        epoch: int,
        port: DetectorThread,
        settings: RuntimeSettings,
        *,
        report: Callable[[Report], None],
        wake: Callable[[], None],
    ) -> None:
        self.detector_id = detector_id
        self.epoch = epoch
        self.schedule = Schedule(settings)
        self.reporter = Reporter(epoch, report)
        self.fenced = False
        """Whether a snapshot has found a later owner."""
        self.hung = False
        """Whether a call has timed out and may still be running."""
        self.port = port
        self._executor = port.executor
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._wake = wake
        self._saving: asyncio.Task[None] | None = None
        self._forking: asyncio.Task[None] | None = None
        """The task that makes the folder of another detector."""
        self._in_trouble = False
        self._forks: deque[tuple[str, asyncio.Future[bool]]] = deque()
        """The ids of requested forks, each with a future that completes once the fork's folder exists."""

    async def activate(self) -> Activated:
        """Activate the detector. Raises StorageError."""
        began_s = self._loop.time()
        activated = await self.port.activate(self.detector_id, self.epoch)
        now_s = self._loop.time()
        self.reporter.note_activation(now_s)
        self.schedule.note_activation(began_s, now_s, read_only=activated.read_only is not None)
        return activated

    async def ask(self, batch: Sequence[Operation]) -> Reply:
        """Execute a batch. Raises ActorDied, and StorageError if its answers would not be durable."""
        is_long = any(operation.kind in LONG for operation in batch)
        hung_s = self._settings.activation_hung_s if is_long else None
        return await self._call(self.port.handle(batch), hung_s)

    async def sync(self) -> None:
        """Sync the journal to the disk. Raises ActorDied and StorageError."""
        await self._call(self.port.call(self._executor.sync))
        self.schedule.note_sync()
        self.reporter.note_synced()
        self._tell_firings()

    async def save(self) -> None:
        """Begin a snapshot, which is written while batches continue.

        A failure is reported, and the snapshot is tried again later. Raises ActorDied, and StorageError if
        the worker can no longer be used.
        """
        assert self._saving is None, "one snapshot at a time"
        self.schedule.note_save_begun()
        try:
            begun = await self._call(self.port.call(self._executor.begin_saving))
        except (WriteFailed, SyncFailed, Fenced):
            raise
        except StorageError as error:
            self._not_saved(error)
            return
        if begun:
            self.schedule.saving = True
            self._saving = asyncio.create_task(self._finish_saving())

    @property
    def forking(self) -> bool:
        """Whether a fork of this detector is being made."""
        return self._forking is not None

    @property
    def fork_waits(self) -> bool:
        """Whether a requested fork can begin now."""
        return bool(self._forks) and self._forking is None

    async def fork(self, fork_id: str) -> bool:
        """Make the folder of a fork: a new detector with the current rules and state of this one.

        Returns False, and does nothing, if the detector has been passivated before. Raises StorageError.
        """
        made: asyncio.Future[bool] = self._loop.create_future()
        self._forks.append((fork_id, made))
        self._wake()
        return await made

    async def begin_fork(self) -> None:
        """Copy the state for the next fork, and make its folder while batches continue.

        Raises ActorDied, and StorageError if the worker can no longer be used.
        """
        fork_id, made = self._forks.popleft()
        if made.done():
            # The caller is gone.
            return
        try:
            make_folder = await self._call(self.port.call(partial(self._executor.begin_fork, fork_id)))
        except BaseException as error:
            if not made.done():
                made.set_exception(StorageError(str(error) or "its process ended"))
            if isinstance(error, StorageError) and not isinstance(error, WriteFailed | SyncFailed | Fenced):
                return
            raise
        self._forking = asyncio.create_task(self._finish_fork(make_folder, made))

    async def passivate(self, *, empty_journal: bool = False) -> int | str:
        """Save and drop the detector. Returns the bytes that the process holds, or why it must stay active.

        With `empty_journal`, the journal is left empty: the next activation may be by a later version of this
        program, under which a rule may have another meaning.

        Raises ActorDied, and StorageError if the detector can no longer be used.
        """
        await self._wait_until_saved()
        if self._saving is not None:
            self.schedule.stay(self._loop.time())
            self.reporter.tell(stays=True)
            return "its snapshot is not written yet"
        try:
            if empty_journal and await self._call(self.port.call(self._executor.begin_saving)):
                await self._call(self.port.beside(self._executor.finish_saving))
            resident_bytes = await self._call(self.port.passivate())
        except (WriteFailed, SyncFailed):
            # The detector was dropped.
            raise
        except StorageError as error:
            self._not_saved(error)
            if isinstance(error, Fenced):
                raise ActorDied(str(error)) from error
            self.reporter.tell(stays=True)
            return str(error)
        self._now_saved()
        self.reporter.note_saved()
        return resident_bytes

    async def discard(self) -> None:
        await self._wait_until_saved()
        await self._call(self.port.discard())

    def lose(self) -> None:
        """Give up the pending snapshot and all forks: the detector is lost or passivated."""
        if self._saving is not None:
            self._saving.cancel()
            self._saving = None
        for _, made in self._forks:
            if not made.done():
                made.set_result(False)

    # -- inside ----------------------------------------------------------------------------------------------

    async def _finish_saving(self) -> None:
        try:
            await self.port.beside(self._executor.finish_saving)
        except StorageError as error:
            self._not_saved(error)
            if isinstance(error, Fenced):
                self.fenced = True
                self._wake()
        except Exception as error:  # noqa: BLE001 -- a background task: nobody awaits its exception
            # The journal holds all data, so the next attempt can start over.
            fields = {"detector": self.detector_id, "operation": "save"}
            _log.exception("a snapshot of the detector %s failed", self.detector_id, extra={"fields": fields})
            self._not_saved(StorageError(f"{type(error).__name__}: {error}"))
        else:
            self.reporter.tell(counts={SNAPSHOTS_WRITTEN: 1})
            self._tell_firings()
            self._now_saved()
        finally:
            self.schedule.saving = False
            self._saving = None

    async def _finish_fork(self, make_folder: Callable[[], None], made: asyncio.Future[bool]) -> None:
        try:
            await self.port.beside(make_folder)
        except Exception as error:  # noqa: BLE001 -- whoever asked is told
            if not made.done():
                made.set_exception(error)
        else:
            self.reporter.tell(counts={FORKS: 1})
            if not made.done():
                made.set_result(True)
        finally:
            self._forking = None
            self._wake()

    async def _wait_until_saved(self) -> None:
        """Wait until neither a snapshot nor a fork is being written."""
        writing = {task for task in (self._saving, self._forking) if task is not None}
        if writing:
            await asyncio.wait(writing, timeout=self._settings.hung_s)

    def _now_saved(self) -> None:
        if self._in_trouble:
            self._in_trouble = False
            self.reporter.tell(problem="")

    def _not_saved(self, error: StorageError) -> None:
        """Report a failed snapshot, and schedule another attempt."""
        self._in_trouble = True
        count = FENCED if isinstance(error, Fenced) else SNAPSHOTS_FAILED
        self.reporter.tell(counts={count: 1}, problem=f"it was not saved: {error}")
        self.schedule.note_save_failed(self._loop.time())

    async def _call(self, call: Awaitable[T], hung_s: float | None = None) -> T:
        """Await a call; report it as stalled long before it counts as hung, which it does after `hung_s`."""
        hung_s = hung_s or self._settings.hung_s
        stalled_s = hung_s / _STALLED
        # In a shared worker the event loop keeps running, so no watch of the process notices the stall.
        problem = f"it has been at one step for {stalled_s:g} s; does its disk answer?"
        stalled = self._loop.call_later(stalled_s, self.reporter.tell_stalled, problem)
        try:
            async with asyncio.timeout(hung_s):
                return await call
        except TimeoutError:
            self.hung = True
            raise ActorDied(f"it has not answered for {hung_s:g} s") from None
        finally:
            stalled.cancel()
            if not self.hung:
                self.reporter.tell_stalled("")

    def _tell_firings(self) -> None:
        """Report newly durable firings, if any."""
        if (figures := self._executor.figures()) is not None:
            self.reporter.tell_firings(figures.newest_firing)
