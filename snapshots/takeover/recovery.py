"""What a recovery gives: the newest snapshot, its pages, and the records after it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from snapshots.damage import Damage
from snapshots.errors import StorageError
from snapshots.files import Files
from snapshots.format.pages import Page
from snapshots.format.snapshot_file import Snapshot
from snapshots.format.tails import Record
from snapshots.takeover.survey import Survey, pages_of, records_of


@dataclass(frozen=True, slots=True)
class Records:
    """The records after a snapshot, in order and none missing. May be gone through more than once.

    One segment is in memory at a time. Raises StorageError where the disk refuses on the way.
    """

    found: Survey
    files: Files

    def __iter__(self) -> Iterator[Record]:
        try:
            yield from records_of(self.found, self.files)
        except OSError as error:
            raise StorageError(f"{self.found.folder} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages that a snapshot goes with, in order. May be gone through more than once.

    One is in memory at a time. Raises StorageError where the disk refuses on the way.
    """

    found: Survey
    files: Files

    def __iter__(self) -> Iterator[Page]:
        try:
            yield from pages_of(self.found, self.files)
        except OSError as error:
            raise StorageError(f"{self.found.folder} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a folder holds. `damage` is what was set aside on the way; no snapshot is None, if that may be."""

    snapshot: Snapshot | None
    records: Iterable[Record]
    damage: tuple[Damage, ...] = ()
    pages: Iterable[Page] = ()
