"""Executes the operations of one detector at a time inside a worker: a plain class, independent of Ray."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from engine.evaluation.detector import Detector
from engine.evaluation.wire.events import BATCH_S, Answer, Done, Refused
from engine.language.diagnostics import Entry
from engine.runtime.concurrency.threads import Turns
from engine.runtime.contract.errors import STARTING
from engine.runtime.contract.figures import DetectorFigures
from engine.runtime.contract.measures import (
    ACTIVATION_SECONDS,
    BATCH_OPERATIONS,
    BATCH_SECONDS,
    JOURNAL_SECONDS,
    JOURNAL_SYNC_SECONDS,
    SNAPSHOT_PAUSE_SECONDS,
    SNAPSHOT_SECONDS,
    Measures,
)
from engine.runtime.contract.requests.calls import Activated, Crash, Reply, Took
from engine.runtime.contract.requests.operations import EVALUATIONS, READS, STATE, UPLOADS, Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.active_detector import (
    ActiveDetector,
    Position,
    counted,
    estimated_bytes,
    position,
    with_storage,
)
from engine.runtime.detector.apply import Applied, apply, apply_upload
from engine.runtime.detector.lag import due_of, note_lag
from engine.runtime.detector.persistence import detector_snapshot
from engine.runtime.detector.persistence.detector_snapshot import make_fork
from engine.runtime.detector.persistence.journal_entries import EVALUATED, JournalEntry
from engine.runtime.detector.taking_over import ReadOnlyDetector, cannot_write, check_data_folder, take_over
from engine.runtime.process.log_records import WORK
from engine.runtime.process.processes import resident_bytes
from snapshots.data_folder.mounts import mount_check
from snapshots.errors import Fenced, StorageError, WriteFailed
from snapshots.files import Files, RealFiles, wall_clock_us
from snapshots.store import Store

_MANY_RULES: Final = 2_000
"""As many take an event a millisecond at most, unless they fire."""


class OperationExecutor:
    """Owns the rules and the temporal state of one active detector.

    A batch is executed in order, written to the journal as one record, and only then answered. A refused
    operation does not stop the others. Any failure before the answer ends the activation, so that no answer
    comes from state that is not in the journal. So does a crash in a write, which may leave half of an event
    in the state; a crash in a read changes nothing, and fails only the read. The detector is then dropped,
    and the scheduler activates it in another worker, in the state of its last answer.

    All methods except `finish_saving` are called one at a time, from any thread.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        *,
        files: Files | None = None,
        now_us: Callable[[], int] = wall_clock_us,
        crashes_to: Callable[[int | None], None] = lambda _: None,
        check_mount: Callable[[], object] | None = None,
        measures: Measures | None = None,
    ) -> None:
        """`crashes_to` directs crash reports of the process to an open file.

        `check_mount` is called at each activation, and raises UnsafeFolder and OSError. `measures` counts and
        times the calls that succeed.
        """
        self._settings = settings
        self._crashes_to = crashes_to
        self._files = files or RealFiles()
        self._now_us = now_us
        self._active: ActiveDetector | None = None
        self._read_only: ReadOnlyDetector | None = None
        """Set instead of the active detector if the disk is too full to activate it."""
        self._check_mount = check_mount or mount_check(settings.data, self._files)
        self.measures = measures or Measures()
        self._journal_s = 0.0
        """How long the last batch took to become durable."""

    def activate(self, detector_id: str, epoch: int) -> Activated:
        """Activate a detector in the state of its last answer; read-only if the disk is full.

        Raises StorageError if its folder cannot be used; no detector is then active here. WrongFolder means
        that the process sees another data folder than the service, and cannot activate any detector.
        """
        assert self.detector_id is None, "an executor holds one detector at a time"
        began_s = time.perf_counter()
        check_data_folder(self._settings, self._files, self._check_mount)
        folder = self._settings.data.joinpath("detectors", detector_id)
        try:
            self._active, activated = take_over(
                self._settings, self._files, folder, epoch, now_us=self._now_us, crashes_to=self._crashes_to
            )
        except StorageError as error:
            if not cannot_write(error):
                raise
            reason = str(error)
            limits = self._settings.limits
            self._read_only = reading = ReadOnlyDetector(detector_id, folder, reason, limits, self._files)
            activated = Activated(tuple(map(str, reading.damage)), reading.records, read_only=reason)
        self.measures.observe(ACTIVATION_SECONDS, time.perf_counter() - began_s)
        return activated

    def handle(self, batch: Sequence[Operation], turn: Turns | None = None) -> Reply:
        """Execute a batch in order, taking turns with other threads; return the answers once durable.

        Raises StorageError if they cannot be made durable, and drops the detector. WriteFailed: nothing of
        the batch is durable. Any other StorageError: some of it may be.
        Once the answers reach `answer_bytes_max`, or after BATCH_S, the remaining operations are not started.
        """
        active, self._journal_s = self._active, 0.0
        began_s = time.perf_counter()
        if self._read_only is not None:
            reply = self._read_only.handle(batch)
        else:
            reply = self._execute(batch, turn, began_s + BATCH_S)
        took_s = time.perf_counter() - began_s
        reply.took = Took(0.0, took_s - self._journal_s, self._journal_s)
        self.measures.observe(BATCH_SECONDS, took_s)
        self.measures.observe(BATCH_OPERATIONS, len(batch))
        if active is not None:
            before, active.counted = active.counted, counted(active.detector)
            self.measures.count_batch(before, active.counted, active.detector.refused)
        return reply

    def _execute(self, batch: Sequence[Operation], turn: Turns | None, ends_s: float) -> Reply:
        """Execute a batch as `handle` does. Only the first operation may start after `ends_s`."""
        active = self._the_active()
        full = self._without_room(active, batch)
        why_full = "" if full is None else full.entries[0].message
        answers: list[Answer] = []
        entries: list[JournalEntry] = []
        crash: Crash | None = None
        now_us, reached = self._now_us(), position(active.detector)
        began = reached[:2]
        room_bytes = active.detector.limits.answer_bytes_max
        between = _keep_turn if turn is None else turn.pass_on
        with turn or contextlib.nullcontext():
            for operation in batch:
                if answers and (room_bytes <= 0 or time.perf_counter() >= ends_s):
                    break
                WORK.set(operation.log_fields(active.detector_id))
                if full is not None and operation.kind not in READS:
                    answers.append(full)
                    continue
                try:
                    applied = self._take(active, operation, now_us, between)
                except Exception as error:  # noqa: BLE001 -- the state may contain half of an event
                    crash = Crash.of(operation, error)
                    # A crashed read may have left look-ups in the cache.
                    active.detector.forget_lookups()
                    break
                answers.append(applied.answer)
                if isinstance(applied.answer, Done):
                    room_bytes -= len(applied.answer.result)
                elif operation.kind in EVALUATIONS:
                    self.measures.count_refused({applied.answer.entries[0].code: 1})
                if applied.entry is not None:
                    entries.append(applied.entry)
                    reached = position(active.detector)
        WORK.set({})
        note_lag(active.detector, began, now_us)
        try:
            missing = self._make_durable(active, entries, reached, now_us)
        except BaseException:
            self.discard()
            raise
        store, feed = active.store, active.detector.feed
        reply = Reply(
            answers,
            crash,
            store.journal_bytes,
            missing=missing,
            unsaved=active.unsaved,
            unsynced=store.unsynced,
            newest_firing=feed.durable,
            last_firing=feed.last,
            no_room=why_full if any(one.kind not in READS for one in batch) else None,
        )
        if crash is not None and crash.lost:
            self.discard()
        return reply

    def sync(self) -> None:
        """Sync the journal to the disk. Raises StorageError after dropping the detector."""
        try:
            self._sync(self._the_active())
        except BaseException:
            self.discard()
            raise

    def begin_saving(self) -> bool:
        """Copy the state for a snapshot; return whether there is anything for `finish_saving` to write.

        Raises StorageError if no snapshot is possible now. The detector stays active, except after
        WriteFailed, SyncFailed and Fenced.
        """
        with self.measures.timed(SNAPSHOT_PAUSE_SECONDS):
            if self._read_only is not None:
                return False
            return self._begin_saving(self._the_active(), goes_on=True)

    def begin_fork(self, fork_id: str) -> Callable[[], None]:
        """Copy the state for a fork; return the function that makes its folder. Raises as saving does."""
        if self._read_only is not None:
            raise StorageError(f"the detector is read-only: {self._read_only.reason}")
        active = self._the_active()
        with self.measures.timed(SNAPSHOT_PAUSE_SECONDS), self._dropping_if_broken(active.store):
            snapshot = detector_snapshot.take_snapshot(active.detector)
            # After a takeover, this copy might lack changes that the later owner has acknowledged.
            active.store.check_owner()
        folder, is_due = self._settings.data / "detectors" / fork_id, active.due_us is not None
        return partial(make_fork, folder, snapshot, self._files, is_due=is_due)

    def _begin_saving(self, active: ActiveDetector, *, goes_on: bool) -> bool:
        with self._dropping_if_broken(active.store):
            return active.begin_saving(self._now_us(), goes_on=goes_on)

    def finish_saving(self) -> None:
        """Write the pending snapshot. Runs in a thread beside the one that evaluates.

        Raises StorageError; earlier snapshots remain usable.
        """
        with self.measures.timed(SNAPSHOT_SECONDS):
            self._the_active().finish_saving()

    def passivate(self) -> int:
        """Save and drop the detector; return how many bytes the process holds.

        Raises StorageError if it cannot be saved; it then remains active.
        """
        if self._read_only is not None:
            self.discard()
            return resident_bytes()
        active = self._the_active()
        store = active.store
        if active.must_be_saved or store.missing() is not None:
            if self._begin_saving(active, goes_on=False):
                self.finish_saving()
        elif store.unsynced:
            self.sync()
        active.leave()
        self.discard()
        return resident_bytes()

    @property
    def passivates_at_once(self) -> bool:
        """Whether `passivate` has nothing to write."""
        active = self._active
        return active is None or not (active.must_be_saved or active.store.unsynced)

    def discard(self) -> None:
        """Drop the detector without saving it."""
        self._read_only = None
        active, self._active = self._active, None
        if active is not None:
            active.store.close()

    def figures(self) -> DetectorFigures | None:
        """Return the figures of the active detector, without its epoch; None if there is none.

        Callable from any thread.
        """
        active = self._active
        return None if active is None else active.figures()

    @property
    def detector(self) -> Detector | None:
        """The active detector, None if there is none, or if it is read-only."""
        return None if self._active is None else self._active.detector

    @property
    def due_us(self) -> int | None:
        """When the service must tick the active detector; None if never, or if it is read-only."""
        return None if self._active is None else self._active.due_us

    @property
    def may_fire_much(self) -> bool:
        """Whether a short batch may take long, because many slices of timed rules are overdue."""
        return self._active is not None and self._active.may_fire_much(self._now_us)

    @property
    def has_many_rules(self) -> bool:
        """Whether a few events may take long, because each may concern very many rules."""
        return self._active is not None and len(self._active.detector.live) > _MANY_RULES

    @property
    def detector_id(self) -> str | None:
        """The id of the active detector, None if there is none. Readable from any thread."""
        active = self._active or self._read_only
        return active.detector_id if active else None

    # -- inside ----------------------------------------------------------------------------------------------

    def _take(
        self, active: ActiveDetector, operation: Operation, now_us: int, between: Callable[[], None]
    ) -> Applied:
        if operation.kind in UPLOADS:
            return apply_upload(active.detector, active.uploads, operation, now_us)
        detector_id, answers = active.detector_id, active.answers
        applied = apply(active.detector, detector_id, answers, operation, now_us, between=between)
        if operation.kind == STATE:
            return Applied(with_storage(applied.answer, operation, active.store, resident_bytes()))
        return applied

    def _without_room(self, active: ActiveDetector, batch: Sequence[Operation]) -> Refused | None:
        """Return the refusal for all writes of a batch if the disk has no room for them, otherwise None.

        Raises WriteFailed if the store can no longer be used, and Fenced. In no case was anything done.
        """
        sizes = [estimated_bytes(one, active.uploads) for one in batch if one.kind not in READS]
        if not sizes:
            return None
        try:
            active.store.reserve(sum(sizes))
        except Fenced:
            self.discard()
            raise
        except StorageError as error:
            message = f"nothing was done, because it could not be stored: {error}"
            if active.store.broken is None:
                return Refused((Entry(STARTING, message),))
            self.discard()
            raise WriteFailed(message) from error
        return None

    def _make_durable(
        self, active: ActiveDetector, entries: Sequence[JournalEntry], reached: Position, now_us: int
    ) -> str | None:
        """Make the batch as durable as `journal_sync` demands, and check that no other owner has taken over.

        Returns the journal file that the batch was written to if that file was removed or replaced.
        """
        began_s = time.perf_counter()
        store, sync = active.store, self._settings.journal_sync
        if due_of(active.detector) is not None:
            # The mark comes first: events on the disk make a tick due even if they are never answered.
            active.dues.mark()
        if not active.complete:
            changes = [entry for entry in entries if not isinstance(entry, EVALUATED)]
            active.unsaved = active.unsaved or len(changes) < len(entries)
            entries = changes
        if entries:
            active.write(tuple(entries), reached, now_us)
            if sync == "always" or any(not isinstance(entry, EVALUATED) for entry in entries):
                self._sync(active)
        # The check comes last: a new owner has read everything written before it, and only that may be
        # acknowledged.
        store.check_owner()
        missing = store.missing() if entries else None
        self._journal_s = time.perf_counter() - began_s
        self.measures.observe(JOURNAL_SECONDS, self._journal_s)
        return None if missing is None else str(missing)

    def _sync(self, active: ActiveDetector) -> None:
        """Sync the journal to the disk. Raises SyncFailed."""
        # Neither this nor `_make_durable` uses a context manager: it takes microseconds for every batch.
        began_s = time.perf_counter()
        active.store.sync()
        feed = active.detector.feed
        if feed.last > feed.durable and active.complete:
            feed.settle(feed.last)
        self.measures.observe(JOURNAL_SYNC_SECONDS, time.perf_counter() - began_s)

    @contextlib.contextmanager
    def _dropping_if_broken(self, store: Store) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if store.broken is not None:
                self.discard()
            raise

    def _the_active(self) -> ActiveDetector:
        assert self._active is not None, "a detector is active"
        return self._active


def _keep_turn() -> None:
    """Yield to no other thread."""
