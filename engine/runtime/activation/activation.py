"""The life of one detector: woken in an actor, asked, saved, rested, or lost with its actor."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from engine.runtime.activation.activation_slots import SlotHolder
from engine.runtime.activation.services import Services
from engine.runtime.activation.workers import DetectorWorker
from engine.runtime.contract.counters import (
    ACTIVATIONS,
    DAMAGED,
    DIVERGED,
    FENCED,
    RECORDS_READ,
    SNAPSHOTS_FAILED,
    SNAPSHOTS_WRITTEN,
    WITHOUT_ROOM,
)
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.operations import Operation, Reply
from snapshots.errors import Fenced, StorageError, SyncFailed, WriteFailed, WrongFolder

T = TypeVar("T")

_log = logging.getLogger(__name__)

_ATTEMPTS = 3
_FAST_S = 0.25
"""Less than it takes to start a process."""

_READ_ONLY_WAKES = 4
"""A detector that can only be read is so for this many times as long as it took to wake it, at least."""


class Activation:
    """A detector's actor, while it has one, and the place among those that are awake that goes with it.

    Its lane calls the methods that wait one at a time. Any of them may end with the actor lost: the detector
    then wakes in another one as its last answer left it. A snapshot is written beside all that.
    """

    def __init__(self, detector_id: str, services: Services, found_dead: Callable[[], None]) -> None:
        self.detector_id = detector_id
        self.used_at_s = 0.0
        self.room_wanted = False
        """Whether another detector wants the place."""
        self._services = services
        self._settings = services.settings
        self._loop = asyncio.get_running_loop()
        self._found_dead = found_dead
        self._worker: DetectorWorker | None = None
        self._active_since_s = 0.0
        self._activated_in_s = 0.0
        self._asked = False
        """Whether it was asked anything since it woke."""
        self._save_at_s: float | None = None
        """None while there is nothing that the newest snapshot has not."""
        self._sync_at_s: float | None = None
        """None while all that the journal has is on the disk."""
        self._saving: asyncio.Task[None] | None = None
        self._unsaved = False
        """Whether there is anything that would be lost with the actor's process."""
        self._unsynced = False
        """Whether there is anything that would be lost with the machine."""
        self._passivate_not_before_s = 0.0
        self._save_not_before_s = 0.0
        """After a snapshot that failed, however long the journal."""
        self._in_trouble = False
        self._without_room = False
        self._missing: str | None = None
        self._read_only_until_s: float | None = None
        """When to try again to have more than the right to read; None where there is more."""

    @property
    def awake(self) -> bool:
        """Whether an actor hosts the detector."""
        return self._worker is not None

    @property
    def dead(self) -> bool:
        """Whether the actor that hosts the detector is known to be dead."""
        return self._worker is not None and self._worker.dead

    @property
    def at_risk(self) -> bool:
        """Whether there is anything that the disk does not have, or did not have when the actor was lost."""
        return self._unsaved or self._unsynced

    @property
    def activates_fast(self) -> bool:
        """Whether the detector woke faster the last time than a process starts."""
        return self._activated_in_s <= _FAST_S

    # -- when ------------------------------------------------------------------------------------------------

    def should_save(self, now_s: float) -> bool:
        """Whether it is time to begin a snapshot."""
        return self._saving is None and self._save_at_s is not None and now_s >= self._save_at_s

    def should_sync(self, now_s: float) -> bool:
        """Whether it is time to bring the journal to the disk."""
        return self._sync_at_s is not None and now_s >= self._sync_at_s

    def should_passivate(self, now_s: float, *, busy: bool) -> bool:
        """Whether it is time to rest. A busy detector rests only where others wait and its turn is over."""
        if now_s < self._passivate_not_before_s:
            return False
        if busy:
            if self._saving is not None:
                # Whoever waits would wait for the disk.
                return False
            # To rest before the first batch would be to wake for nothing, perhaps for ever.
            turn_over = self._asked and now_s >= self._active_since_s + self._settings.turn_s
            return self.room_wanted and turn_over
        return self.room_wanted or now_s >= self.used_at_s + self._settings.idle_rest_s

    def should_reactivate(self, now_s: float) -> bool:
        """Whether it is time to try again to own a detector that could only be read."""
        return self._read_only_until_s is not None and now_s >= self._read_only_until_s

    def next_due_s(self) -> float:
        """When, without anything to do, it will be time to save, to sync or to rest."""
        rest_at_s = 0.0 if self.room_wanted else self.used_at_s + self._settings.idle_rest_s
        dues_s = [max(rest_at_s, self._passivate_not_before_s)]
        if self._save_at_s is not None and self._saving is None:
            dues_s.append(self._save_at_s)
        if self._sync_at_s is not None:
            dues_s.append(self._sync_at_s)
        return min(dues_s)

    # -- what ------------------------------------------------------------------------------------------------

    async def activate(self, holder: SlotHolder, wanted: Callable[[], bool]) -> bool:
        """Have an actor host the detector, unless it is no longer wanted by the time that there is one.

        False where the detector does not exist any more. Raises StorageError, DetectorUnavailable, and
        ActorDied where several actors in turn did not survive it.
        """
        try:
            await self._services.slots.acquire(holder)
            for _ in range(_ATTEMPTS):
                if not wanted():
                    return True
                try:
                    return await self._activate()
                except ActorDied as error:
                    died = error
            raise died
        finally:
            if self._worker is None:
                self.leave(holder)

    async def ask(self, batch: Sequence[Operation]) -> Reply:
        """Have a batch carried out. Raises ActorDied, and StorageError where its answers would not last."""
        assert self._worker is not None, "only what is awake can be asked"
        try:
            reply = await self._call(self._worker.port.handle(batch))
        finally:
            self._asked = True
            self.used_at_s = self._loop.time()
        self._plan(reply)
        self._note_room(reply)
        self._note_missing(reply.missing)
        return reply

    async def sync(self) -> None:
        """Bring the journal to the disk. Raises ActorDied and StorageError."""
        assert self._worker is not None, "only what is awake has a journal"
        await self._call(self._worker.port.sync())
        self._sync_at_s = None
        self._unsynced = False

    async def save(self) -> None:
        """Begin a snapshot, which is written while batches go on.

        What is in the way is reported, and tried again later. Raises ActorDied, and StorageError where the
        actor is of no more use.
        """
        assert self._worker is not None, "only what is awake can be saved"
        assert self._saving is None, "one snapshot at a time"
        self._save_at_s = None
        try:
            begun = await self._call(self._worker.port.begin_saving())
        except (WriteFailed, SyncFailed, Fenced):
            raise
        except StorageError as error:
            self._not_saved(error)
            return
        if begun:
            self._saving = asyncio.create_task(self._finish_saving(self._worker))

    async def passivate(self, holder: SlotHolder, *, draining: bool = False) -> str | None:
        """Save and forget the detector. Gives the reason where that cannot be, for now.

        With `draining` nothing is left in the journal, for whoever wakes it next may be a later version of
        this program, which may mean something else by a rule.

        Raises ActorDied, and StorageError where the actor is of no more use.
        """
        assert self._worker is not None, "only what is awake can be rested"
        await self._saved()
        if self._saving is not None:
            self._passivate_not_before_s = self._loop.time() + self._settings.retry_s
            self._services.slots.keep(holder)
            return "its snapshot has not come to the disk yet"
        worker: DetectorWorker | None = self._worker
        if worker is None:
            # Lost meanwhile, with the snapshot that could not be written.
            return None
        try:
            if draining and await self._call(worker.port.begin_saving()):
                await self._call(worker.port.finish_saving())
            resident_bytes = await self._call(worker.port.passivate())
        except (WriteFailed, SyncFailed):
            # The actor has forgotten the detector.
            raise
        except StorageError as error:
            self._not_saved(error)
            if isinstance(error, Fenced):
                raise ActorDied(str(error)) from error
            self._services.slots.keep(holder)
            return str(error)
        self._now_saved()
        self._unsaved = self._unsynced = False
        self._worker = None
        self._services.workers.give_back(worker, resident_bytes)
        self.leave(holder)
        return None

    async def discard(self, holder: SlotHolder) -> None:
        """Forget the detector unsaved. Raises ActorDied."""
        await self._saved()
        if self._worker is None:
            return
        worker = self._worker
        await self._call(worker.port.discard())
        self._worker = None
        self._services.workers.give_back(worker)
        self.leave(holder)

    def died(self, holder: SlotHolder) -> None:
        """Take note that the actor's process is gone. What it has written outlives it, on the disk or not."""
        self._unsynced = False
        self.lose(holder)

    def lose(self, holder: SlotHolder) -> None:
        """Have the actor ended, whatever it does, and with it what it held and did not save."""
        if self._saving is not None:
            self._saving.cancel()
            self._saving = None
        if self._worker is not None:
            self._services.workers.lose(self._worker)
            self._worker = None
        self.leave(holder)

    def leave(self, holder: SlotHolder) -> None:
        """Give the place back."""
        self.room_wanted = False
        self._services.slots.release(holder)

    # -- inside ----------------------------------------------------------------------------------------------

    async def _activate(self) -> bool:
        """Try one actor. Whatever happens, it hosts the detector, is given back, or is ended."""
        workers = self._services.workers
        worker = await workers.take()
        hosts_nothing = True
        try:
            epoch = await self._services.directory.lease(self.detector_id, worker.port.name)
            if epoch is None:
                return False
            hosts_nothing = False
            began_s = self._loop.time()
            activated = await self._call(
                worker.port.activate(self.detector_id, epoch), self._settings.waking_hung_s
            )
            if worker.dead:
                raise ActorDied("it died as soon as the detector was awake")
            self._activated_in_s = self._loop.time() - began_s
            self._now_awake(worker)
            if activated.read_only is not None:
                now_s = self._loop.time()
                wait_s = max(self._settings.retry_s, _READ_ONLY_WAKES * (now_s - began_s))
                self._read_only_until_s = now_s + wait_s
        except StorageError as error:
            # A process that has another data folder is of no use; the next one may start on another node.
            hosts_nothing = not isinstance(error, WrongFolder)
            raise
        finally:
            if self._worker is None:
                (workers.give_back if hosts_nothing else workers.lose)(worker)
        counts = self._services.counts
        counts[ACTIVATIONS] += 1
        counts[RECORDS_READ] += activated.records
        counts[DAMAGED] += len(activated.damage)
        unwritable = activated.read_only
        said = None if unwritable is None else f"it can only be read: {unwritable}"
        self._services.trouble(self.detector_id, said)
        for damage in activated.damage:
            self._services.damaged(self.detector_id, damage)
        if activated.diverged is not None:
            counts[DIVERGED] += 1
            self._services.diverged(self.detector_id, activated.diverged)
        return True

    def _now_awake(self, worker: DetectorWorker) -> None:
        worker.on_death = self._found_dead
        self._worker = worker
        self._active_since_s = self.used_at_s = self._loop.time()
        self._asked = False
        self._save_at_s = self._sync_at_s = None
        self._without_room = False
        self._read_only_until_s = None
        self._unsaved = self._unsynced = False
        self._passivate_not_before_s = 0.0

    def _plan(self, reply: Reply) -> None:
        """Set the times to save and to sync what a batch has changed, unless earlier ones are set."""
        settings = self._settings
        now_s = self._loop.time()
        self._unsaved, self._unsynced = reply.unsaved, reply.unsynced
        if reply.unsynced and self._sync_at_s is None:
            self._sync_at_s = now_s + settings.journal_sync_interval_s
        # What a snapshot that is being written will have is still counted until it is there.
        long = reply.journal_bytes >= settings.snapshot_journal_bytes and self._saving is None
        if long and now_s >= self._save_not_before_s:
            self._save_at_s = now_s
        elif (reply.journal_bytes or reply.unsaved) and self._save_at_s is None:
            self._save_at_s = now_s + settings.snapshot_interval_s

    def _note_room(self, reply: Reply) -> None:
        """Tell when there comes to be no room for what must be kept, and when there is again."""
        if reply.no_room:
            self._services.counts[WITHOUT_ROOM] += 1
            self._services.trouble(self.detector_id, reply.no_room)
        elif self._without_room and reply.no_room is not None:
            self._services.trouble(self.detector_id, None)
        if reply.no_room is not None:
            self._without_room = bool(reply.no_room)

    def _note_missing(self, missing: str | None) -> None:
        """Where a file of the journal is gone, have a snapshot take its place, and tell of it once."""
        if missing is not None:
            self._save_at_s = self._loop.time()
            if missing != self._missing:
                said = f"{missing} was removed or replaced while in use; a snapshot takes its place"
                self._services.removed(self.detector_id, said)
        self._missing = missing

    async def _finish_saving(self, worker: DetectorWorker) -> None:
        try:
            await worker.port.finish_saving()
        except StorageError as error:
            self._not_saved(error)
            if isinstance(error, Fenced):
                self._found_dead()
        except ActorDied:
            # Whoever watches over it says so.
            pass
        except Exception as error:  # noqa: BLE001 -- whatever it is, nobody else is there to be told
            # The journal has it all, and the next attempt begins anew.
            _log.exception("a snapshot of the detector %s failed", self.detector_id)
            self._not_saved(StorageError(f"{type(error).__name__}: {error}"))
        else:
            self._services.counts[SNAPSHOTS_WRITTEN] += 1
            self._now_saved()
        finally:
            self._saving = None

    async def _saved(self) -> None:
        """Come back when no snapshot is being written."""
        if self._saving is not None:
            await asyncio.wait({self._saving}, timeout=self._settings.hung_s)

    def _now_saved(self) -> None:
        if self._in_trouble:
            self._in_trouble = False
            self._services.trouble(self.detector_id, None)

    def _not_saved(self, error: StorageError) -> None:
        """Go on with what is in memory and in the journal, and try again later."""
        self._in_trouble = True
        self._services.counts[FENCED if isinstance(error, Fenced) else SNAPSHOTS_FAILED] += 1
        self._services.trouble(self.detector_id, f"it was not saved: {error}")
        now_s = self._loop.time()
        self._save_at_s = self._save_not_before_s = now_s + self._settings.snapshot_interval_s
        self._passivate_not_before_s = now_s + self._settings.retry_s

    async def _call(self, call: Awaitable[T], hung_s: float | None = None) -> T:
        """Wait for an actor's answer, up to where it is taken for dead."""
        hung_s = hung_s or self._settings.hung_s
        try:
            async with asyncio.timeout(hung_s):
                return await call
        except TimeoutError:
            raise ActorDied(f"it has not answered for {hung_s:g} s") from None
