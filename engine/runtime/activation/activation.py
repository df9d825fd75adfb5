"""The life of one detector: activated in a worker, called, saved, passivated, or lost with its worker."""

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
"""Shorter than starting a process takes."""

_READ_ONLY_WAIT_FACTOR = 4
"""After a read-only activation, the next attempt waits at least this multiple of the time it took."""


class Activation:
    """A detector's worker, while it has one, and the activation slot that goes with it.

    The detector's queue calls the coroutines one at a time. Each of them may lose the worker. The detector is
    then activated in another one, in the state of its last answer. A snapshot is written concurrently.
    """

    def __init__(self, detector_id: str, services: Services, found_dead: Callable[[], None]) -> None:
        self.detector_id = detector_id
        self.used_at_s = 0.0
        self.room_wanted = False
        """Whether another detector waits for the slot."""
        self._services = services
        self._settings = services.settings
        self._loop = asyncio.get_running_loop()
        self._found_dead = found_dead
        self._worker: DetectorWorker | None = None
        self._active_since_s = 0.0
        self._activated_in_s = 0.0
        self._asked = False
        """Whether a batch was sent since the activation."""
        self._save_at_s: float | None = None
        """None if the newest snapshot is up to date."""
        self._sync_at_s: float | None = None
        """None if the whole journal is synced."""
        self._saving: asyncio.Task[None] | None = None
        self._unsaved = False
        """Whether a crash of the worker's process would lose data."""
        self._unsynced = False
        """Whether a crash of the machine would lose data."""
        self._passivate_not_before_s = 0.0
        self._save_not_before_s = 0.0
        """Set after a failed snapshot; until then a long journal does not trigger another one."""
        self._in_trouble = False
        self._without_room = False
        self._missing: str | None = None
        self._read_only_until_s: float | None = None
        """When to try again to activate the detector for writing; None if it is not read-only."""

    @property
    def active(self) -> bool:
        """Whether the detector is active in a worker."""
        return self._worker is not None

    @property
    def dead(self) -> bool:
        """Whether the worker is known to be dead."""
        return self._worker is not None and self._worker.dead

    @property
    def at_risk(self) -> bool:
        """Whether data is not on the disk, or was not when the worker was lost."""
        return self._unsaved or self._unsynced

    @property
    def activates_fast(self) -> bool:
        """Whether the last activation was faster than starting a process."""
        return self._activated_in_s <= _FAST_S

    # -- when ------------------------------------------------------------------------------------------------

    def should_save(self, now_s: float) -> bool:
        """Whether a snapshot is due."""
        return self._saving is None and self._save_at_s is not None and now_s >= self._save_at_s

    def should_sync(self, now_s: float) -> bool:
        """Whether a sync of the journal is due."""
        return self._sync_at_s is not None and now_s >= self._sync_at_s

    def should_passivate(self, now_s: float, *, busy: bool) -> bool:
        """Whether to passivate. A busy detector gives way only to one that waits, and after its turn."""
        if now_s < self._passivate_not_before_s:
            return False
        if busy:
            if self._saving is not None:
                # Passivating would wait for the snapshot, and so would the detector that waits for the slot.
                return False
            # Without this, a detector could be activated and passivated for ever without serving a batch.
            turn_over = self._asked and now_s >= self._active_since_s + self._settings.turn_s
            return self.room_wanted and turn_over
        return self.room_wanted or now_s >= self.used_at_s + self._settings.idle_rest_s

    def should_reactivate(self, now_s: float) -> bool:
        """Whether it is time to activate a read-only detector again, for writing."""
        return self._read_only_until_s is not None and now_s >= self._read_only_until_s

    def next_due_s(self) -> float:
        """When the next save, sync or passivation is due if no request arrives."""
        passivate_at_s = 0.0 if self.room_wanted else self.used_at_s + self._settings.idle_rest_s
        dues_s = [max(passivate_at_s, self._passivate_not_before_s)]
        if self._save_at_s is not None and self._saving is None:
            dues_s.append(self._save_at_s)
        if self._sync_at_s is not None:
            dues_s.append(self._sync_at_s)
        return min(dues_s)

    # -- what ------------------------------------------------------------------------------------------------

    async def activate(self, holder: SlotHolder, wanted: Callable[[], bool]) -> bool:
        """Activate the detector in a worker, unless `wanted` turns false before one is free.

        Returns False if the detector does not exist. Raises StorageError, DetectorUnavailable, and ActorDied
        if several workers in a row died of it.
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
        """Execute a batch. Raises ActorDied, and StorageError if its answers would not be durable."""
        assert self._worker is not None, "only an active detector executes batches"
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
        """Sync the journal to the disk. Raises ActorDied and StorageError."""
        assert self._worker is not None, "only an active detector has a journal"
        await self._call(self._worker.port.sync())
        self._sync_at_s = None
        self._unsynced = False

    async def save(self) -> None:
        """Begin a snapshot, which is written while batches continue.

        A failure is reported, and the snapshot is tried again later. Raises ActorDied, and StorageError if
        the worker can no longer be used.
        """
        assert self._worker is not None, "only an active detector can be saved"
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
        """Save the detector and free its worker. Returns the reason if that is impossible for now.

        With `draining` the journal is left empty: the next activation may be by a later version of this
        program, under which a rule may have another meaning.

        Raises ActorDied, and StorageError if the worker can no longer be used.
        """
        assert self._worker is not None, "only an active detector can be passivated"
        await self._saved()
        if self._saving is not None:
            self._passivate_not_before_s = self._loop.time() + self._settings.retry_s
            self._services.slots.keep(holder)
            return "its snapshot has not come to the disk yet"
        worker: DetectorWorker | None = self._worker
        if worker is None:
            # The worker was lost meanwhile, and with it the snapshot.
            return None
        try:
            if draining and await self._call(worker.port.begin_saving()):
                await self._call(worker.port.finish_saving())
            resident_bytes = await self._call(worker.port.passivate())
        except (WriteFailed, SyncFailed):
            # The worker has dropped the detector.
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
        """Drop the detector without saving it. Raises ActorDied."""
        await self._saved()
        if self._worker is None:
            return
        worker = self._worker
        await self._call(worker.port.discard())
        self._worker = None
        self._services.workers.give_back(worker)
        self.leave(holder)

    def died(self, holder: SlotHolder) -> None:
        """Note that the worker's process has ended. What it wrote survives it, synced or not."""
        self._unsynced = False
        self.lose(holder)

    def lose(self, holder: SlotHolder) -> None:
        """End the worker, and lose what it did not save."""
        if self._saving is not None:
            self._saving.cancel()
            self._saving = None
        if self._worker is not None:
            self._services.workers.lose(self._worker)
            self._worker = None
        self.leave(holder)

    def leave(self, holder: SlotHolder) -> None:
        """Release the slot."""
        self.room_wanted = False
        self._services.slots.release(holder)

    # -- inside ----------------------------------------------------------------------------------------------

    async def _activate(self) -> bool:
        """Try one worker. Afterwards it has the detector, is given back, or is ended."""
        workers = self._services.workers
        worker = await workers.take()
        empty = True
        try:
            epoch = await self._services.directory.lease(self.detector_id, worker.port.name)
            if epoch is None:
                return False
            empty = False
            began_s = self._loop.time()
            activated = await self._call(
                worker.port.activate(self.detector_id, epoch), self._settings.activation_hung_s
            )
            if worker.dead:
                raise ActorDied("it died right after the activation")
            self._activated_in_s = self._loop.time() - began_s
            self._set_active(worker)
            if activated.read_only is not None:
                now_s = self._loop.time()
                wait_s = max(self._settings.retry_s, _READ_ONLY_WAIT_FACTOR * (now_s - began_s))
                self._read_only_until_s = now_s + wait_s
        except StorageError as error:
            # A process with another data folder is useless; the next one may start on another node.
            empty = not isinstance(error, WrongFolder)
            raise
        finally:
            if self._worker is None:
                (workers.give_back if empty else workers.lose)(worker)
        counts = self._services.counts
        counts[ACTIVATIONS] += 1
        counts[RECORDS_READ] += activated.records
        counts[DAMAGED] += len(activated.damage)
        unwritable = activated.read_only
        said = None if unwritable is None else f"it is read-only: {unwritable}"
        self._services.trouble(self.detector_id, said)
        for damage in activated.damage:
            self._services.damaged(self.detector_id, damage)
        if activated.diverged is not None:
            counts[DIVERGED] += 1
            self._services.diverged(self.detector_id, activated.diverged)
        return True

    def _set_active(self, worker: DetectorWorker) -> None:
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
        """Schedule the save and the sync that a batch requires, unless they are due earlier."""
        settings = self._settings
        now_s = self._loop.time()
        self._unsaved, self._unsynced = reply.unsaved, reply.unsynced
        if reply.unsynced and self._sync_at_s is None:
            self._sync_at_s = now_s + settings.journal_sync_interval_s
        # Until it is written, the data of the pending snapshot still counts as journal.
        long = reply.journal_bytes >= settings.snapshot_journal_bytes and self._saving is None
        if long and now_s >= self._save_not_before_s:
            self._save_at_s = now_s
        elif (reply.journal_bytes or reply.unsaved) and self._save_at_s is None:
            self._save_at_s = now_s + settings.snapshot_interval_s

    def _note_room(self, reply: Reply) -> None:
        """Report when the disk becomes full for this detector, and when it has room again."""
        if reply.no_room:
            self._services.counts[WITHOUT_ROOM] += 1
            self._services.trouble(self.detector_id, reply.no_room)
        elif self._without_room and reply.no_room is not None:
            self._services.trouble(self.detector_id, None)
        if reply.no_room is not None:
            self._without_room = bool(reply.no_room)

    def _note_missing(self, missing: str | None) -> None:
        """If a file of the journal is missing, save at once, and report the file once."""
        if missing is not None:
            self._save_at_s = self._loop.time()
            if missing != self._missing:
                said = f"{missing} was removed or replaced while in use; a snapshot replaces it"
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
            # The worker's watcher reports it.
            pass
        except Exception as error:  # noqa: BLE001 -- a background task: nobody awaits its exception
            # The journal has all data, and the next attempt starts afresh.
            _log.exception("a snapshot of the detector %s failed", self.detector_id)
            self._not_saved(StorageError(f"{type(error).__name__}: {error}"))
        else:
            self._services.counts[SNAPSHOTS_WRITTEN] += 1
            self._now_saved()
        finally:
            self._saving = None

    async def _saved(self) -> None:
        """Wait until no snapshot is being written."""
        if self._saving is not None:
            await asyncio.wait({self._saving}, timeout=self._settings.hung_s)

    def _now_saved(self) -> None:
        if self._in_trouble:
            self._in_trouble = False
            self._services.trouble(self.detector_id, None)

    def _not_saved(self, error: StorageError) -> None:
        """Continue with the state in memory and in the journal, and try again later."""
        self._in_trouble = True
        self._services.counts[FENCED if isinstance(error, Fenced) else SNAPSHOTS_FAILED] += 1
        self._services.trouble(self.detector_id, f"it was not saved: {error}")
        now_s = self._loop.time()
        self._save_at_s = self._save_not_before_s = now_s + self._settings.snapshot_interval_s
        self._passivate_not_before_s = now_s + self._settings.retry_s

    async def _call(self, call: Awaitable[T], hung_s: float | None = None) -> T:
        """Await a worker's answer; after `hung_s` the worker counts as dead."""
        hung_s = hung_s or self._settings.hung_s
        try:
            async with asyncio.timeout(hung_s):
                return await call
        except TimeoutError:
            raise ActorDied(f"it has not answered for {hung_s:g} s") from None
