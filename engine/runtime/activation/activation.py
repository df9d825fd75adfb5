"""One active detector: its calls, snapshots, syncs and passivation."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from engine.runtime.activation.detector_thread import DetectorThread
from engine.runtime.activation.schedule import Schedule
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.measures import (
    FENCED,
    FORKS,
    SNAPSHOTS_FAILED,
    SNAPSHOTS_WRITTEN,
    WITHOUT_ROOM,
)
from engine.runtime.contract.requests.calls import Activated, Ended, Reply, Report
from engine.runtime.contract.requests.operations import LONG, TICK_DUE, Operation
from engine.runtime.contract.settings import RuntimeSettings
from snapshots.errors import Fenced, StorageError, SyncFailed, WriteFailed

T = TypeVar("T")

_log = logging.getLogger(__name__)

_STALLED = 4
"""A call is reported as a problem after this fraction (1 / _STALLED) of the time after which it counts as
hung."""
_USED_TOLD_S = 0.1
"""The minimum interval between two reports that the detector is in use."""


class Activation:
    """A detector while it is active in this process.

    The detector's queue calls the coroutines one at a time; a snapshot is written concurrently. Each of them
    raises ActorDied if the thread that executes the calls hangs. `stir` is called when something is due.
    """

    def __init__(
        self,
        detector_id: str,
        epoch: int,
        port: DetectorThread,
        settings: RuntimeSettings,
        *,
        report: Callable[[Report], None],
        stir: Callable[[], None],
    ) -> None:
        self.detector_id = detector_id
        self.epoch = epoch
        self.schedule = Schedule(settings)
        self.fenced = False
        """Whether a snapshot has found a later owner."""
        self.hung = False
        """Whether a call has not returned in time, and may still run."""
        self.port = port
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._report = report
        self._stir = stir
        self._used_told_at_s = -float("inf")
        self._newest_firing = 0
        """The number of the newest firing that was told."""
        self._last_firing = 0
        """That of the newest one, durable or not."""
        self._saving: asyncio.Task[None] | None = None
        self._forking: asyncio.Task[None] | None = None
        """The task that makes the folder of another detector."""
        self._unsaved = False
        """Whether a crash of this process would lose data."""
        self._unsynced = False
        """Whether a crash of the machine would lose data."""
        self._in_trouble = False
        self._without_room = False
        self._missing: str | None = None
        self._problem: str | None = None
        """The problem that was reported last; empty once it is over, None if there was none."""
        self._stalled = ""
        """The problem that a call takes long, which is reported instead; empty if none does."""

    def tell(self, **changes: Any) -> None:
        """Report to the scheduler."""
        self._problem = changes.get("problem", self._problem)
        self._report(Report(self.epoch, **changes))

    def tell_end(self, ended: Ended) -> None:
        """Report that the activation is over. If it has ended regularly, all firings are durable."""
        newest = self._newest_firing if ended.reason is not None else self._last_firing
        self.tell(ended=ended, newest_firing=newest)

    @property
    def problem(self) -> str | None:
        """The problem that there is; empty if it is over, None if there was none."""
        return self._stalled or self._problem

    @property
    def at_risk(self) -> bool:
        """Whether some data is not on the disk, or was not when the worker was lost."""
        return self._unsaved or self._unsynced

    async def activate(self) -> Activated:
        """Activate the detector. Raises StorageError."""
        began_s = self._loop.time()
        activated = await self.port.activate(self.detector_id, self.epoch)
        now_s = self._used_told_at_s = self._loop.time()
        self.schedule.note_activation(began_s, now_s, read_only=activated.read_only is not None)
        return activated

    def ask_at_once(self, batch: Sequence[Operation]) -> Reply | None:
        """Execute a batch now if it is small; None if nothing was done. Raises as `ask` does."""
        if self.schedule.read_only:
            return None
        reply = self.port.handle_at_once(batch)
        return None if reply is None else self._note_reply(batch, reply)

    async def ask(self, batch: Sequence[Operation]) -> Reply:
        """Execute a batch. Raises ActorDied, and StorageError if its answers would not be durable."""
        is_long = any(operation.kind in LONG for operation in batch)
        hung_s = self._settings.activation_hung_s if is_long else None
        return self._note_reply(batch, await self._call(self.port.handle(batch), hung_s))

    async def sync(self) -> None:
        """Sync the journal to the disk. Raises ActorDied and StorageError."""
        await self._call(self.port.sync())
        self.schedule.note_sync()
        self._unsynced = False
        self._tell_firings()

    async def save(self) -> None:
        """Begin a snapshot, which is written while batches continue.

        A failure is reported, and the snapshot is tried again later. Raises ActorDied, and StorageError if
        the worker can no longer be used.
        """
        assert self._saving is None, "one snapshot at a time"
        self.schedule.note_save_begun()
        try:
            begun = await self._call(self.port.begin_saving())
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
        """Whether another detector is being made from this one."""
        return self._forking is not None

    async def fork(self, fork_id: str, made: asyncio.Future[bool]) -> None:
        """Copy the state for another detector, and make its folder while batches continue. Settles `made`.

        Raises ActorDied, and StorageError if the worker can no longer be used.
        """
        assert self._forking is None, "one fork at a time"
        if made.done():
            # Nobody waits for it any more.
            return
        try:
            make_folder = await self._call(self.port.begin_fork(fork_id))
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
            self.tell(stays=True)
            return "its snapshot has not come to the disk yet"
        try:
            if empty_journal and await self._call(self.port.begin_saving()):
                await self._call(self.port.finish_saving())
            resident_bytes = await self._call(self.port.passivate())
        except (WriteFailed, SyncFailed):
            # The detector was dropped.
            raise
        except StorageError as error:
            self._not_saved(error)
            if isinstance(error, Fenced):
                raise ActorDied(str(error)) from error
            self.tell(stays=True)
            return str(error)
        self._now_saved()
        self._unsaved = self._unsynced = False
        return resident_bytes

    async def discard(self) -> None:
        await self._wait_until_saved()
        await self._call(self.port.discard())

    def lose(self) -> None:
        """Give up a snapshot under way: the detector is lost."""
        if self._saving is not None:
            self._saving.cancel()
            self._saving = None

    def survives(self) -> None:
        """Note that the machine keeps running, so everything written remains, synced or not."""
        self._unsynced = False

    # -- inside ----------------------------------------------------------------------------------------------

    def _note_reply(self, batch: Sequence[Operation], reply: Reply) -> Reply:
        """Note what a batch means for the detector; return its reply."""
        now_s = self._loop.time()
        # Nobody waits for the service's own ticks, so they keep no detector active.
        is_used = len(batch) > 1 or batch[0].kind != TICK_DUE
        self.schedule.note_batch(reply, now_s, is_used=is_used)
        is_told = is_used and now_s >= self._used_told_at_s + _USED_TOLD_S
        if is_told or reply.newest_firing > self._newest_firing:
            self._used_told_at_s, self._newest_firing = now_s, reply.newest_firing
            self.tell(used=is_used, newest_firing=reply.newest_firing)
        if reply.unsaved != self._unsaved:
            self.tell(at_risk=reply.unsaved)
        self._unsaved, self._unsynced = reply.unsaved, reply.unsynced
        self._last_firing = reply.last_firing
        self._note_room(reply)
        self._note_missing(reply.missing)
        return reply

    def _tell_firings(self) -> None:
        """Report firings that have become durable, if any have."""
        figures = self.port.figures()
        if figures is not None and figures.newest_firing > self._newest_firing:
            self._newest_firing = figures.newest_firing
            self.tell(newest_firing=figures.newest_firing)

    def _note_room(self, reply: Reply) -> None:
        """Report when the disk becomes full for this detector, and when it has room again."""
        if reply.no_room:
            self.tell(counts={WITHOUT_ROOM: 1}, problem=reply.no_room)
        elif self._without_room and reply.no_room is not None:
            self.tell(problem="")
        if reply.no_room is not None:
            self._without_room = bool(reply.no_room)

    def _note_missing(self, missing: str | None) -> None:
        """Report a file of the journal that is missing, once."""
        if missing is not None and missing != self._missing:
            self.tell(removed=f"{missing} was removed or replaced while in use; a snapshot replaces it")
        self._missing = missing

    async def _finish_saving(self) -> None:
        try:
            await self.port.finish_saving()
        except StorageError as error:
            self._not_saved(error)
            if isinstance(error, Fenced):
                self.fenced = True
                self._stir()
        except Exception as error:  # noqa: BLE001 -- a background task: nobody awaits its exception
            # The journal has all data, and the next attempt starts afresh.
            fields = {"detector": self.detector_id, "operation": "save"}
            _log.exception("a snapshot of the detector %s failed", self.detector_id, extra={"fields": fields})
            self._not_saved(StorageError(f"{type(error).__name__}: {error}"))
        else:
            self.tell(counts={SNAPSHOTS_WRITTEN: 1})
            self._tell_firings()
            self._now_saved()
        finally:
            self.schedule.saving = False
            self._saving = None

    async def _finish_fork(self, make_folder: Callable[[], None], made: asyncio.Future[bool]) -> None:
        try:
            await self.port.finish_fork(make_folder)
        except Exception as error:  # noqa: BLE001 -- whoever asked is told
            if not made.done():
                made.set_exception(error)
        else:
            self.tell(counts={FORKS: 1})
            if not made.done():
                made.set_result(True)
        finally:
            self._forking = None
            self._stir()

    async def _wait_until_saved(self) -> None:
        """Wait until neither a snapshot nor another detector is being written."""
        writing = {task for task in (self._saving, self._forking) if task is not None}
        if writing:
            await asyncio.wait(writing, timeout=self._settings.hung_s)

    def _now_saved(self) -> None:
        if self._in_trouble:
            self._in_trouble = False
            self.tell(problem="")

    def _not_saved(self, error: StorageError) -> None:
        """Continue with the state in memory and in the journal, and try again later."""
        self._in_trouble = True
        count = FENCED if isinstance(error, Fenced) else SNAPSHOTS_FAILED
        self.tell(counts={count: 1}, problem=f"it was not saved: {error}")
        self.schedule.note_save_failed(self._loop.time())

    async def _call(self, call: Awaitable[T], hung_s: float | None = None) -> T:
        """Await a call of the detector; after `hung_s` it counts as hung, and long before as a problem."""
        hung_s = hung_s or self._settings.hung_s
        stalled_s = hung_s / _STALLED
        stalled = self._loop.call_later(stalled_s, self._tell_stalled, stalled_s)
        try:
            async with asyncio.timeout(hung_s):
                return await call
        except TimeoutError:
            self.hung = True
            raise ActorDied(f"it has not answered for {hung_s:g} s") from None
        finally:
            stalled.cancel()
            if self._stalled and not self.hung:
                self._stalled = ""
                self.tell(problem=self._problem or "")

    def _tell_stalled(self, for_s: float) -> None:
        # The event loop of a worker that detectors share goes on meanwhile, so nobody else notices.
        self._stalled = f"it has been at one step for {for_s:g} s; does its disk answer?"
        self._report(Report(self.epoch, problem=self._stalled))
