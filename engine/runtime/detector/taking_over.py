"""Takes over a detector's folder, or only reads it if the disk is too full to write."""

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.evaluation.inspecting.comparisons import Samples
from engine.evaluation.wire.events import Answer, Refused
from engine.language.diagnostics import Entry
from engine.language.limits import Limits
from engine.runtime.contract.errors import STARTING
from engine.runtime.contract.requests.calls import Activated, Crash, Reply
from engine.runtime.contract.requests.operations import READS, Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.active_detector import ActiveDetector
from engine.runtime.detector.apply import apply
from engine.runtime.detector.persistence import journal_entries, replay
from engine.runtime.detector.persistence.idempotency import IdempotencyCache
from engine.runtime.detector.persistence.journal_entries import LimitsSet, limits_document
from engine.runtime.detector.persistence.replay_attempts import ReplayAttempt
from engine.runtime.process.log_records import WORK
from snapshots.data_folder.identity import check_identity
from snapshots.errors import NoRoom, StorageError
from snapshots.files import NO_ROOM, Files
from snapshots.inspection import read_only
from snapshots.store import Store


def cannot_write(error: StorageError) -> bool:
    """Whether an error means only that the disk is full or the file system is read-only."""
    cause = error.__cause__
    return isinstance(error, NoRoom) or (isinstance(cause, OSError) and cause.errno in NO_ROOM)


class ReadOnlyDetector:
    """A detector that can only be read. `reason` says why it cannot be written."""

    def __init__(self, detector_id: str, folder: Path, reason: str, limits: Limits, files: Files) -> None:
        """Read a folder. Raises StorageError."""
        self.detector_id = detector_id
        self.reason = reason
        self._folder = folder
        self._files = files
        try:
            # The names are listed first, so that a change during the reading is noticed.
            self._names = self._names_now()
            attempt = ReplayAttempt(folder, files)
            attempt.begin()
        except OSError as error:
            raise StorageError(f"{folder} cannot be read: {error}") from error
        # There is no room for a mark, but a record that killed other processes is refused here too.
        recovered = read_only(folder, files)
        restored = replay.restore(recovered, IdempotencyCache(0, 0), limits, attempt.refuse)
        self.records = restored.records
        self.damage = recovered.damage
        self._detector = restored.detector

    def handle(self, batch: Sequence[Operation]) -> Reply:
        """Answer reads and refuse writes. Raises StorageError if the folder has changed since it was read."""
        answers: list[Answer] = []
        crash: Crash | None = None
        for operation in batch:
            WORK.set(operation.log_fields(self.detector_id))
            try:
                answers.append(self._answer(operation))
            except Exception as error:  # noqa: BLE001 -- the answer refers to the log
                crash = Crash.of(operation, error)
                self._detector.forget_lookups()
                break
        WORK.set({})
        try:
            changed = self._names_now() != self._names
        except OSError as error:
            raise StorageError(f"{self._folder} cannot be read: {error}") from error
        if changed:
            raise StorageError(f"{self._folder} has changed since it was read")
        refused = any(one.kind not in READS for one in batch)
        return Reply(answers, crash, no_room=self.reason if refused else None)

    def _answer(self, operation: Operation) -> Answer:
        if operation.kind in READS:
            return apply(self._detector, self.detector_id, IdempotencyCache(0, 0), operation, 0).answer
        message = f"nothing was done, because the detector is read-only: {self.reason}"
        return Refused((Entry(STARTING, message),))

    def _names_now(self) -> frozenset[str]:
        return frozenset(self._files.names(self._folder))


def take_over(
    settings: RuntimeSettings,
    files: Files,
    folder: Path,
    epoch: int,
    *,
    now_us: Callable[[], int],
    crashes_to: Callable[[int | None], None],
) -> tuple[ActiveDetector, Activated]:
    """Return the detector of a folder, in the state of its last answer. Raises StorageError."""
    store = Store(folder, epoch=epoch, snapshots_kept=settings.snapshots_kept, files=files, now_us=now_us)
    attempt = ReplayAttempt(folder, files, now_us=now_us, crashes_to=crashes_to)
    answers = IdempotencyCache(round(settings.answers_kept_s * 1e6), settings.answers_kept_bytes_max)
    try:
        recovered = store.recover()
        if not recovered.released:
            attempt.begin()
        try:
            restored = replay.restore(recovered, answers, settings.limits, attempt.reached)
        except Exception:
            # An exception is no crash: any other process would raise it too.
            with contextlib.suppress(OSError):
                attempt.survived()
            raise
        attempt.survived()
        detector, limits = restored.detector, settings.limits
        limited = detector if detector.limits == limits else journal_entries.under_limits(detector, limits)
        diverged = restored.diverged is not None
        complete = settings.journal_sync != "off"
        active = ActiveDetector(folder.name, limited, answers, store, diverged=diverged, complete=complete)
        if active.due_us is not None:
            active.dues.recovered()
        if limited is not detector:
            # This record becomes durable with the next one, and no earlier answer depends on it.
            active.write((LimitsSet(limits_document(limits)),))
    except BaseException as error:
        store.close()
        if isinstance(error, OSError):
            raise StorageError(f"{folder} cannot be read or written: {error}") from error
        raise
    limited.live_at(now_us)
    limited.feed.settle(limited.feed.last)
    limited.sampler = Samples(limited, time.monotonic)
    return active, Activated(tuple(map(str, recovered.damage)), restored.records, restored.diverged)


def check_data_folder(settings: RuntimeSettings, files: Files, check_mount: Callable[[], object]) -> None:
    """Raise WrongFolder unless the data folder is the service's, and StorageError if that is unknown."""
    if settings.folder_id is None:
        return
    try:
        check_identity(settings.data, settings.folder_id, files)
        check_mount()
    except OSError as error:
        raise StorageError(f"{settings.data} cannot be read: {error}") from error
