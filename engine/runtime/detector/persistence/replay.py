"""Restoring a detector from its folder: the newest snapshot, then the journal after it."""

from collections.abc import Callable
from dataclasses import dataclass

from engine.evaluation.detector import Detector
from engine.language.limits import Limits
from engine.runtime.detector.persistence import journal_entries
from engine.runtime.detector.persistence.detector_snapshot import (
    detector_from,
)
from engine.runtime.detector.persistence.idempotency import PAGE_VERSION, IdempotencyCache
from engine.runtime.detector.persistence.journal_entries import (
    RECORD_VERSION,
    JournalRecord,
    Replay,
    program_version,
    zones_version,
)
from engine.runtime.detector.persistence.replay_attempts import Poisoned
from snapshots.errors import NewerFormat, OlderFormat
from snapshots.format.segment_reader import Record
from snapshots.takeover.recovered import Recovered


@dataclass(frozen=True, slots=True)
class Restored:
    """A detector in the state of its last answer, which takes the timestamps of events as they are."""

    detector: Detector
    records: int
    """The number of journal records replayed."""
    diverged: str | None = None
    """The records at which other rules fire now than originally; None if there are none."""


def restore(
    recovered: Recovered,
    answers: IdempotencyCache,
    default_limits: Limits,
    reached: Callable[[Record], None] = lambda _: None,
) -> Restored:
    """Restore the detector of a folder, and add its stored answers to `answers`.

    `reached` is called with each record before it is replayed. Raises NewerFormat, OlderFormat and Poisoned.
    """
    snapshot = recovered.snapshot
    if snapshot is None:
        detector = Detector(limits=default_limits)
    else:
        detector = detector_from(snapshot.body, snapshot.version)
    for page in recovered.pages:
        if page.version != PAGE_VERSION:
            newer = page.version > PAGE_VERSION
            raise (NewerFormat if newer else OlderFormat)(
                f"answers were stored by a{' newer' if newer else 'n older'} program, "
                f"with version {page.version}; this one knows version {PAGE_VERSION}"
            )
        answers.load_page(page.body)
    replay = Replay(detector, answers)
    records = 0
    diverged = _Diverged()
    for record in recovered.records:
        if record.version > RECORD_VERSION:
            raise NewerFormat(
                f"{record.path} at {record.offset}: the record is of a newer program, with version "
                f"{record.version}; this one knows versions up to {RECORD_VERSION}"
            )
        reached(record)
        try:
            decoded = journal_entries.decode(record.payload)
            if not replay.take(decoded):
                diverged.note(record, decoded)
        except Exception as error:
            raise Poisoned(
                f"{record.path} at {record.offset}: the record {record.sequence} cannot be replayed: "
                f"{type(error).__name__}: {error}"
            ) from error
        records += 1
    return Restored(replay.detector, records, diverged.summary)


class _Diverged:
    """Records at which other rules fire now than originally. They are reported, and the replay goes on.

    Answers that were given cannot be taken back, and later events are evaluated by this program anyway.
    Stopping would make the detector unavailable until the older program runs again.
    """

    def __init__(self) -> None:
        self._count = 0
        self._first = ""

    def note(self, record: Record, decoded: JournalRecord) -> None:
        if not self._count:
            self._first = (
                f"{record.path} at {record.offset}: at the events of record {record.sequence}, "
                f"other rules fire in version {program_version()} "
                f"than fired when version {decoded.program} evaluated them"
            )
            if decoded.zones != zones_version():
                known = [zones or "an unknown version" for zones in (zones_version(), decoded.zones)]
                self._first += f"; the time zones are of {known[0]}, and were of {known[1]}"
        self._count += 1

    @property
    def summary(self) -> str | None:
        if self._count <= 1:
            return self._first or None
        return f"{self._first}; the same holds for {self._count} records in all"
