"""What a recovery returns: the newest snapshot, its pages, and the records after it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from snapshots.errors import Damaged
from snapshots.files import Files, storage_errors
from snapshots.format import pages
from snapshots.format.pages import Page
from snapshots.format.segment_reader import Record, SegmentReader
from snapshots.format.segments import SEGMENT_FILE
from snapshots.format.snapshot_file import Snapshot
from snapshots.takeover.recovery_plan import RecoveryPlan


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that could not be used, or not to its end: its path now, and the reason."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Recovered:
    """The content of a folder. `damage` is what was set aside. `snapshot` is None for an empty folder.

    `records` and `pages` may be iterated more than once. They read one file at a time, and raise
    StorageError if a file cannot be read or has changed.
    """

    snapshot: Snapshot | None
    records: Iterable[Record]
    damage: tuple[Damage, ...] = ()
    pages: Iterable[Page] = ()
    released: bool = False
    """Whether the last owner that wrote released the folder, so it did not die of these records."""


def recovered(
    plan: RecoveryPlan, files: Files, damage: tuple[Damage, ...], *, released: bool = False
) -> Recovered:
    """Return what a plan says is in the folder."""
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
