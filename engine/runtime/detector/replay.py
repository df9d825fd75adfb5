"""A detector brought back from its folder: the newest snapshot, and all that the journal tells after it."""

from collections.abc import Callable
from dataclasses import dataclass

from engine.evaluation.detector import Detector
from engine.language.limits import Limits
from engine.runtime.detector import journal_entries
from engine.runtime.detector.detector_snapshot import LIMITS_TOLD_FROM, SNAPSHOT_VERSION, detector_from
from engine.runtime.detector.idempotency import PAGE_VERSION, IdempotencyCache
from engine.runtime.detector.journal_entries import (
    RECORD_VERSION,
    JournalRecord,
    LimitsSet,
    Replay,
    program_version,
)
from engine.runtime.detector.replay_attempts import Poisoned
from snapshots.errors import NewerFormat
from snapshots.format.segment_reader import Record
from snapshots.takeover.recovered import Recovered


@dataclass(frozen=True, slots=True)
class Restored:
    """A detector as its last answer left it, taking events as they are stamped."""

    detector: Detector
    records: int
    """How many records of the journal were taken again."""
    tells_limits: bool
    """Whether the folder says under which limits it is; one from before there was a journal does not."""
    diverged: str | None = None
    """Which records other rules fire at now than when they were written, if there are any."""


def restore(
    recovered: Recovered,
    answers: IdempotencyCache,
    default_limits: Limits,
    reached: Callable[[Record], None] = lambda _: None,
) -> Restored:
    """Give the detector that a folder holds, and put the answers that are kept to `answers`.

    `reached` is told of each record before it is taken. Raises NewerFormat and Poisoned.
    """
    snapshot = recovered.snapshot
    detector = Detector(limits=default_limits)
    if snapshot is not None:
        if snapshot.version > SNAPSHOT_VERSION:
            raise NewerFormat(
                f"the detector was saved by a newer program, with version {snapshot.version}; "
                f"this one knows versions up to {SNAPSHOT_VERSION}"
            )
        detector = detector_from(snapshot.body, snapshot.version, answers, default_limits)
    for page in recovered.pages:
        if page.version > PAGE_VERSION:
            raise NewerFormat(
                f"answers were kept by a newer program, with version {page.version}; "
                f"this one knows versions up to {PAGE_VERSION}"
            )
        answers.load_page(page.body, page.version)
    replay = Replay(detector, answers)
    records = 0
    diverged = _Diverged()
    tells_limits = snapshot is not None and snapshot.version >= LIMITS_TOLD_FROM
    for record in recovered.records:
        if record.version > RECORD_VERSION:
            raise NewerFormat(
                f"{record.path} at {record.offset}: the record is of a newer program, with version "
                f"{record.version}; this one knows versions up to {RECORD_VERSION}"
            )
        reached(record)
        try:
            told = journal_entries.decode(record.payload)
            if not replay.take(told):
                diverged.note(record, told)
            tells_limits = tells_limits or any(isinstance(entry, LimitsSet) for entry in told.entries)
        except Exception as error:
            raise Poisoned(
                f"{record.path} at {record.offset}: the record {record.sequence} cannot be taken again: "
                f"{type(error).__name__}: {error}"
            ) from error
        records += 1
    return Restored(replay.detector, records, tells_limits, diverged.said)


class _Diverged:
    """The records at which other rules fire than when they were written, which is told and no reason to stop.

    What was answered then cannot be taken back, and the rules and the state of the detector are what this
    program makes of them, as for every later event. To stop would keep callers from that, and would leave
    nothing to be done about it but to go back to the program that wrote the record.
    """

    def __init__(self) -> None:
        self._count = 0
        self._first = ""

    def note(self, record: Record, told: JournalRecord) -> None:
        if not self._count:
            self._first = (
                f"{record.path} at {record.offset}: at the events of record {record.sequence}, "
                f"other rules fire in version {program_version()} "
                f"than fired when version {told.program} evaluated them"
            )
        self._count += 1

    @property
    def said(self) -> str | None:
        if self._count <= 1:
            return self._first or None
        return f"{self._first}; so it is with {self._count} records in all"
