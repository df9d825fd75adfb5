"""The plan of a recovery, which may be a refusal, and its result."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from snapshots.errors import Damaged, StorageError
from snapshots.files import Files, storage_errors
from snapshots.format import pages
from snapshots.format.pages import Page
from snapshots.format.segment_reader import Record, SegmentReader
from snapshots.format.segments import SEGMENT_FILE, Segment
from snapshots.format.snapshot_file import Snapshot


@dataclass(frozen=True, slots=True)
class Flaw:
    """A file with a defect, to be copied aside from an offset on."""

    path: Path
    suffix: str
    reason: str
    copy_from: int = 0


@dataclass(frozen=True, slots=True)
class RecordRange:
    """The records of a segment after the snapshot, from `begin` to `end` inclusive."""

    segment: Segment
    begin: int
    end: int
    records: list[Record]
    """The records themselves if the segment is small; otherwise empty, and they are read again."""


@dataclass(frozen=True, slots=True)
class Unsynced:
    """The bytes of a segment, from `begin` up to `end`, that can be read but may not be on the disk."""

    path: Path
    begin: int
    end: int


@dataclass(slots=True)
class RecoveryPlan:
    """The plan of a recovery. If `refusal` is set, the other attributes are meaningless."""

    folder: Path
    snapshot: Snapshot | None = None
    sequence: int = 0
    """The last record that the recovery reaches."""
    epoch: int = 0
    """The epoch of that record, or of the snapshot that includes it.

    A later epoch that has only a header does not count, because its header may not be on the disk.
    """
    ranges: list[RecordRange] = field(default_factory=list)
    journal_bytes: int = 0
    """The length of the records in `ranges`."""
    segments: list[Segment] = field(default_factory=list)
    """The segments of the folder's history that were read and have a whole header, in order."""
    earlier: dict[str, int] = field(default_factory=dict)
    """The names of the segments of owners before the snapshot's, in order, with their epochs. They are not
    read, because none of their records can be after the snapshot."""
    obsolete: list[Path] = field(default_factory=list)
    """Files that are useless after the next snapshot. A copy of each damaged one is set aside."""
    pages: list[Path] = field(default_factory=list)
    """The pages that belong to the snapshot and have not expired, in order."""
    flaws: list[Flaw] = field(default_factory=list)
    small: dict[str, bytes] = field(default_factory=dict)
    """The contents of small segments, by name, so that each is read only once."""
    unsynced: Unsynced | None = None
    refusal: StorageError | None = None

    def read(self, path: Path, files: Files) -> bytes:
        """Return a whole segment. Raises OSError."""
        data = self.small.get(path.name)
        return files.read(path) if data is None else data

    def set_aside(self, path: Path, suffix: str, reason: str) -> None:
        """Note a defective file: it is copied, and removed after the next snapshot."""
        self.flaws.append(Flaw(path, suffix, reason))
        self.obsolete.append(path)

    def first_fenced(self, epoch: int) -> int | None:
        """Return the first record at which an owner later than `epoch` took over; None if there was none."""
        return min((segment.first for segment in self.segments if segment.epoch > epoch), default=None)


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that could not be used, or only in part: its current path, and the reason."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Recovered:
    """The contents of a folder. `damage` is what was set aside. `snapshot` is None for an empty folder.

    `records` and `pages` may be iterated more than once. They read one file at a time, and raise
    StorageError if a file cannot be read or has changed.
    """

    snapshot: Snapshot | None
    records: Iterable[Record]
    damage: tuple[Damage, ...] = ()
    pages: Iterable[Page] = ()
    released: bool = False
    """Whether the last owner that wrote released the folder, so that these records did not kill it."""


def recovered(
    plan: RecoveryPlan, files: Files, damage: tuple[Damage, ...], *, released: bool = False
) -> Recovered:
    """Return the contents of a folder according to a plan."""
    return Recovered(plan.snapshot, _Records(plan, files), damage, _Pages(plan, files), released)


@dataclass(frozen=True, slots=True)
class _Records:
    plan: RecoveryPlan
    files: Files

    def __iter__(self) -> Iterator[Record]:
        for range_ in self.plan.ranges:
            if range_.records:
                yield from range_.records
                continue
            path = range_.segment.path
            with storage_errors(f"{self.plan.folder} cannot be read"):
                data = SEGMENT_FILE.checked(self.plan.read(path, self.files))
            reader = SegmentReader(data, path, range_.segment.first, range_.end + 1)
            for record in reader:
                if record.sequence >= range_.begin:
                    yield record
            if reader.stop.sequence != range_.end + 1:
                raise Damaged(f"{path} has changed: {reader.stop.reason or 'it is shorter'}")


@dataclass(frozen=True, slots=True)
class _Pages:
    plan: RecoveryPlan
    files: Files

    def __iter__(self) -> Iterator[Page]:
        for path in self.plan.pages:
            try:
                with storage_errors(f"{self.plan.folder} cannot be read"):
                    page = pages.decode(self.files.read(path))
            except Damaged as error:
                raise Damaged(f"{path} has changed: {error}") from error
            yield page
