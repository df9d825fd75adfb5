"""Becoming the owner of a detector's folder: its newest snapshot is read, and its journal is replayed."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from engine.evaluation.explanation.looking.differences import Samples
from engine.runtime.contract.requests.calls import Activated
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.active_detector import ActiveDetector
from engine.runtime.detector.persistence import journal_entries, replay
from engine.runtime.detector.persistence.idempotency import IdempotencyCache
from engine.runtime.detector.persistence.journal_entries import LimitsSet, limits_document
from engine.runtime.detector.persistence.replay_attempts import ReplayAttempt
from snapshots.data_folder.identity import check_identity
from snapshots.errors import StorageError
from snapshots.files import Files
from snapshots.store import Store


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
            # An exception is not a crash: any other process would raise it too.
            with contextlib.suppress(OSError):
                attempt.survived()
            raise
        attempt.survived()
        detector, limits = restored.detector, settings.limits
        limited = detector if detector.limits == limits else journal_entries.under_limits(detector, limits)
        diverged = restored.diverged is not None
        active = ActiveDetector(folder.name, limited, answers, store, diverged=diverged)
        if active.due_us is not None:
            active.dues.recovered()
        if limited is not detector:
            # This record becomes durable with the next one; until then no answer depends on it.
            active.write((LimitsSet(limits_document(limits)),), complete=settings.journal_sync != "off")
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
    """Raise WrongFolder unless it is the folder of the settings, and StorageError if that is not known."""
    if settings.folder_id is None:
        return
    try:
        check_identity(settings.data, settings.folder_id, files)
        check_mount()
    except OSError as error:
        raise StorageError(f"{settings.data} cannot be read: {error}") from error
