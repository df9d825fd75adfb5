"""A detector that is read-only because the disk is too full for its owner to write.

It is restored from its folder without claiming or changing anything there. So an earlier owner may still run,
and changes that it wrote but never acknowledged may be visible here and disappear later. Acknowledged changes
are always visible.
"""

from collections.abc import Sequence
from pathlib import Path

from engine.evaluation.wire.events import Answer, Refused
from engine.language.diagnostics import Entry
from engine.language.limits import Limits
from engine.runtime.contract.errors import STARTING
from engine.runtime.contract.requests.operations import READS, Operation
from engine.runtime.contract.requests.replies import Crash, Reply
from engine.runtime.detector.apply import apply
from engine.runtime.detector.persistence import replay
from engine.runtime.detector.persistence.idempotency import IdempotencyCache
from engine.runtime.detector.persistence.replay_attempts import ReplayAttempt
from engine.runtime.process.log_records import WORK
from snapshots.errors import NoRoom, StorageError
from snapshots.files import NO_ROOM, Files
from snapshots.inspection import read_only


def cannot_write(error: StorageError) -> bool:
    """Whether the only obstacle is a full disk or a read-only file system."""
    cause = error.__cause__
    return isinstance(error, NoRoom) or (isinstance(cause, OSError) and cause.errno in NO_ROOM)


class ReadOnlyDetector:
    """A detector as its folder has it, for reading only. `reason` says why it cannot be written."""

    def __init__(self, detector_id: str, folder: Path, reason: str, limits: Limits, files: Files) -> None:
        """Read a folder. Raises StorageError if that is impossible."""
        self.detector_id = detector_id
        self.reason = reason
        self._folder = folder
        self._files = files
        try:
            # The names come first, so that a change during the reading is noticed.
            self._names = self._names_now()
            attempt = ReplayAttempt(folder, files)
            attempt.begin()
        except OSError as error:
            raise StorageError(f"{folder} cannot be read: {error}") from error
        # There is no room for a mark, but a record that has killed other processes is refused here too.
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
            except Exception as error:  # noqa: BLE001 -- the caller is told where the log has it
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
