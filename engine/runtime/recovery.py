"""A detector brought back from its folder: the newest snapshot, and all that the journal tells after it."""

import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.evaluation.detector import Detector
from engine.language.limits import Limits
from engine.runtime import history
from engine.runtime.answers import PAGE_VERSION, Answers
from engine.runtime.history import RECORD_VERSION, History, LimitsSet, Replay, program_version
from engine.runtime.kept import KEPT_VERSION, LIMITS_TOLD_FROM, detector_from
from snapshots.errors import NewerFormat, StorageError
from snapshots.files import Files, OpenFile, write_all
from snapshots.recovered import Recovered
from snapshots.tails import Record

DEATHS_MAX: Final = 2
"""So many deaths in a row at one record, and it is not tried again."""

_MARK: Final = struct.Struct("<QQ")
"""A record's sequence, and how many attempts in a row have come to it and no further, this one included."""


class Poisoned(StorageError):
    """A record of the journal cannot be taken again: whoever tries dies, or ends up elsewhere."""


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
    answers: Answers,
    default_limits: Limits,
    reached: Callable[[Record], None] = lambda _: None,
) -> Restored:
    """Give the detector that a folder holds, and put the answers that are kept to `answers`.

    `reached` is told of each record before it is taken. Raises NewerFormat and Poisoned.
    """
    snapshot = recovered.snapshot
    detector = Detector(limits=default_limits)
    if snapshot is not None:
        if snapshot.version > KEPT_VERSION:
            raise NewerFormat(
                f"the detector was saved by a newer program, with version {snapshot.version}; "
                f"this one knows versions up to {KEPT_VERSION}"
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
            told = history.decode(record.payload)
            if not replay.take(told):
                diverged.note(record, told)
            tells_limits = tells_limits or any(isinstance(step, LimitsSet) for step in told.steps)
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

    def note(self, record: Record, told: History) -> None:
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


class Attempt:
    """One attempt to bring a detector back, marked in its folder for the case that it is the last.

    A record that kills whoever takes it would kill one process after another. So each attempt writes down,
    in the file `replaying`, to which record it has come; the file goes when the attempt succeeds. The mark
    is there for the death of processes, not of machines: it is not synced.
    """

    def __init__(self, folder: Path, files: Files) -> None:
        self._path = folder / "replaying"
        self._files = files
        self._before = (0, 0)
        self._refused = False
        self._file: OpenFile | None = None

    def begin(self) -> None:
        """Find out how far the attempt before this one came, if that did not succeed. Raises OSError."""
        self._before = last_mark(self._path, self._files)

    def reached(self, record: Record) -> None:
        """Mark that a record is about to be taken. Raises Poisoned where that was the end of others."""
        sequence, attempts = self._before
        attempts = attempts + 1 if sequence == record.sequence else 1
        if self._file is None:
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(self._path)
            self._file = self._files.create(self._path)
        write_all(self._file, _MARK.pack(record.sequence, attempts))
        if attempts > DEATHS_MAX:
            self._refused = True
            raise Poisoned(
                f"{record.path} at {record.offset}: {DEATHS_MAX} processes died at the record "
                f"{record.sequence}; remove {self._path} to have it tried again"
            )

    def survived(self) -> None:
        """Take the mark away: whatever came of the attempt, nobody died of it. Raises OSError.

        It stays where it is the reason why no attempt was made.
        """
        if self._file is not None:
            self._file.close()
            self._file = None
            if not self._refused:
                self._files.remove(self._path)


def last_mark(path: Path, files: Files) -> tuple[int, int]:
    """Give the record that the last attempt to bring a detector back came to, and how many came no further.

    Zeros where there was none, or where it succeeded. Raises OSError.
    """
    try:
        data = files.read(path)
    except FileNotFoundError:
        return (0, 0)
    whole = len(data) // _MARK.size * _MARK.size
    if not whole:
        return (0, 0)
    sequence, attempts = _MARK.unpack_from(data, whole - _MARK.size)
    return (int(sequence), int(attempts))
