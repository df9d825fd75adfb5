"""The actor that hosts detectors, one at a time: a plain class, with or without Ray around it."""

import os
import resource
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.events import Answer, evaluate_batch_body, evaluate_body
from engine.evaluation.saved import STATE_VERSION
from engine.language.limits import Limits
from engine.runtime.operations import EVALUATE, EVALUATE_BATCH, READS, RULE_CHANGES, Crash, Operation, Reply
from engine.runtime.rules import answer_rules
from snapshots.errors import NewerFormat, StorageError
from snapshots.files import Files, RealFiles
from snapshots.store import SnapshotStore


class Activated(msgspec.Struct, frozen=True):
    """A detector is awake. `damage` names what had to be set aside to wake it."""

    damage: tuple[str, ...] = ()


class Health(msgspec.Struct, frozen=True):
    """What an actor says of itself, also while it is busy."""

    pid: int
    detector_id: str | None
    resident_bytes: int


@dataclass(slots=True)
class _Hosted:
    """The detector that is awake here, and how it stands against its newest snapshot."""

    detector_id: str
    detector: Detector
    store: SnapshotStore
    changed: bool = False
    saved_at_s: float = 0.0
    saving_took_s: float = 0.0


class DetectorActor:
    """Owns the rules and the temporal state of one detector while that is awake.

    A batch is carried out in order, and an operation that is refused is answered while the others go on. An
    operation that breaks the engine may leave a state behind that is half of one event; such a state never
    answers: the batch ends there, the detector is forgotten without being saved, and whoever sent the batch
    wakes it again from its last snapshot, in another actor. What was evaluated after that snapshot is lost
    until there is a journal; for changes of rules see `_save_soon`.

    Every method but `health` and `watch` is called by one thread, one call at a time.
    """

    def __init__(
        self,
        data: Path,
        limits: Limits,
        snapshots_kept: int,
        *,
        files: Files | None = None,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._data = data
        self._limits = limits
        self._snapshots_kept = snapshots_kept
        self._files = files or RealFiles()
        self._now_us = now_us
        self._monotonic_s = monotonic_s
        self._hosted: _Hosted | None = None
        self._never = threading.Event()

    def activate(self, detector_id: str, epoch: int) -> Activated:
        """Wake a detector from its newest valid snapshot, or empty where it never had one.

        Raises StorageError where its folder does not allow that; nothing is hosted then.
        """
        assert self._hosted is None, "an actor hosts one detector at a time"
        store = SnapshotStore(
            self._data / "detectors" / detector_id, epoch=epoch, kept=self._snapshots_kept, files=self._files
        )
        loaded = store.load()
        if loaded.snapshot is not None and loaded.snapshot.version > STATE_VERSION:
            raise NewerFormat(
                f"the detector was saved by a newer program, with version {loaded.snapshot.version}; "
                f"this one knows versions up to {STATE_VERSION}"
            )
        if loaded.snapshot is None:
            detector = Detector(limits=self._limits, now_us=self._now_us)
        else:
            detector = Detector.load(
                loaded.snapshot.body, loaded.snapshot.version, limits=self._limits, now_us=self._now_us
            )
        self._hosted = _Hosted(detector_id, detector, store, saved_at_s=self._monotonic_s())
        return Activated(tuple(map(str, loaded.damage)))

    def handle(self, batch: Sequence[Operation]) -> Reply:
        """Carry out a batch, in order, and give the answers."""
        hosted = self._the_hosted()
        answers: list[Answer] = []
        for operation in batch:
            try:
                answers.append(self._answer(hosted, operation))
            except Exception:  # noqa: BLE001 -- whatever it is, the state behind it may be half of one event
                self._hosted = None
                return Reply(answers, Crash(secrets.token_hex(6), traceback.format_exc()))
        if any(operation.kind in RULE_CHANGES for operation in batch):
            self._save_soon(hosted)
        return Reply(answers)

    def save(self) -> None:
        """Save the detector where it has changed since it was last saved. Raises StorageError."""
        hosted = self._the_hosted()
        if not hosted.changed:
            return
        begun_s = self._monotonic_s()
        hosted.store.save(hosted.detector.dump(), version=STATE_VERSION)
        hosted.changed = False
        hosted.saved_at_s = self._monotonic_s()
        hosted.saving_took_s = hosted.saved_at_s - begun_s

    def passivate(self) -> int:
        """Save the detector, forget it, and give how many bytes the process holds.

        Raises StorageError where it cannot be saved; it is then still awake.
        """
        self.save()
        self._hosted = None
        return self.health().resident_bytes

    def discard(self) -> None:
        """Forget the detector without saving it."""
        self._hosted = None

    def health(self) -> Health:
        """Say how the actor is. For any thread."""
        hosted = self._hosted
        return Health(os.getpid(), hosted.detector_id if hosted else None, _resident_bytes())

    def watch(self) -> None:
        """Never come back while the actor lives, so that a caller learns of its death at once.

        For a thread of its own.
        """
        self._never.wait()

    def _answer(self, hosted: _Hosted, operation: Operation) -> Answer:
        # Before, not after: what breaks half-way has changed something.
        hosted.changed = hosted.changed or operation.kind not in READS
        if operation.kind == EVALUATE:
            return evaluate_body(hosted.detector, operation.payload)
        if operation.kind == EVALUATE_BATCH:
            return evaluate_batch_body(hosted.detector, operation.payload)
        return answer_rules(hosted.detector, hosted.detector_id, operation)

    def _save_soon(self, hosted: _Hosted) -> None:
        """Save a change of rules before it is answered, as long as that takes no more than half of the time.

        Changes at a person's pace outlive the process so. In a flood of them each save is as long away from
        the last one as that one took; what comes after the last is saved by the lane, soon.
        """
        if self._monotonic_s() - hosted.saved_at_s < hosted.saving_took_s:
            return
        try:
            self.save()
        except StorageError:
            # The change stands, in memory. The next regular save tries again, and reports what is wrong.
            return

    def _the_hosted(self) -> _Hosted:
        assert self._hosted is not None, "a detector is awake here"
        return self._hosted


def _resident_bytes() -> int:
    """Give the bytes of memory that this process holds now."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        # Where there is no /proc, the most that it ever held has to do.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()
