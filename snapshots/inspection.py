"""What is in a folder, file by file, and what a recovery would make of it. Changes and claims nothing."""

from dataclasses import dataclass
from pathlib import Path

from snapshots.damage import Damage
from snapshots.errors import Damaged, NewerFormat, StorageError
from snapshots.files import Files, RealFiles
from snapshots.format.file_names import Listing, listing
from snapshots.format.pages import now_us
from snapshots.format.segments import current, decode_header
from snapshots.format.snapshot_file import decode
from snapshots.format.tails import SegmentReader
from snapshots.takeover.recovery import Pages, Records, Recovered
from snapshots.takeover.survey import Survey, survey

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """A snapshot file. `reason` is why it cannot be used; epoch and version are None then."""

    name: str
    sequence: int
    file_bytes: int
    epoch: int | None = None
    version: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """A segment, read by itself to its first record that does not fit.

    `first` is its first record, or would be, and None where its header does not say; `last` is None where
    there is none. `reason` is what is wrong, with the offset, and `torn` whether a write that was never
    finished explains that. `counts` is whether the folder's history goes through it, if only in part.
    """

    name: str
    epoch: int
    number: int
    file_bytes: int
    first: int | None = None
    last: int | None = None
    records: int = 0
    payload_bytes: int = 0
    reason: str | None = None
    torn: bool = False
    counts: bool = True


@dataclass(frozen=True, slots=True)
class FolderReport:
    """A folder: its files, and where a recovery would come to, or why it would refuse."""

    folder: Path
    epoch: int
    """The latest one that has claimed it; 0 for none."""
    snapshots: tuple[SnapshotReport, ...]
    segments: tuple[SegmentReport, ...]
    set_aside: tuple[str, ...]
    unfinished: tuple[str, ...]
    snapshot_sequence: int | None
    sequence: int
    journal_bytes: int
    """What a recovery would read after the snapshot."""
    remarks: tuple[Damage, ...]
    """What a recovery would set aside."""
    refusal: str | None


def inspect_folder(folder: Path, files: Files | None = None) -> FolderReport:
    """Say what is in a folder, also while an owner writes to it. Raises StorageError."""
    files = files or RealFiles()
    names, found = _surveyed(folder, files)
    litter = {path.name for path in found.litter}
    return FolderReport(
        folder=folder,
        epoch=names.epoch,
        snapshots=tuple(
            snapshot
            for sequence, name in sorted(names.snapshots.items())
            if (snapshot := _snapshot(folder / name, sequence, files))
        ),
        segments=tuple(
            segment
            for (epoch, number), name in names.segments.items()
            if (segment := _segment(folder / name, epoch, number, files, counts=name not in litter))
        ),
        set_aside=tuple(sorted(names.set_aside)),
        unfinished=tuple(sorted(names.unfinished)),
        snapshot_sequence=found.snapshot.sequence if found.snapshot else None,
        sequence=found.sequence,
        journal_bytes=found.journal_bytes,
        remarks=_remarks(found),
        refusal=str(found.refusal) if found.refusal else None,
    )


def read_only(folder: Path, files: Files | None = None) -> Recovered:
    """Give the newest snapshot and the records after it, as they are now, without claiming the folder.

    What an owner is just writing may look torn; it is told in `damage`, and nothing is set aside. Raises
    what a recovery would refuse with. The records are read when they are asked for: that raises StorageError
    where the owner has made them needless by another snapshot meanwhile, and whoever wants them reads again.
    """
    files = files or RealFiles()
    _, found = _surveyed(folder, files)
    if found.refusal is not None:
        raise found.refusal
    return Recovered(found.snapshot, Records(found, files), _remarks(found), Pages(found, files))


def _surveyed(folder: Path, files: Files) -> tuple[Listing, Survey]:
    attempt = 1
    while True:
        try:
            names = listing(files.names(folder))
            return names, survey(folder, names, files, now_us=now_us())
        except FileNotFoundError as error:
            # Its owner is removing what a new snapshot makes needless.
            if attempt == _ATTEMPTS:
                raise StorageError(f"{folder} cannot be read: {error}") from error
        except OSError as error:
            raise StorageError(f"{folder} cannot be read: {error}") from error
        attempt += 1


def _remarks(found: Survey) -> tuple[Damage, ...]:
    return tuple(Damage(finding.path, finding.reason) for finding in found.findings)


def _snapshot(path: Path, sequence: int, files: Files) -> SnapshotReport | None:
    data = _read(path, files)
    if data is None:
        return None
    try:
        snapshot = decode(data)
    except (Damaged, NewerFormat) as error:
        return SnapshotReport(path.name, sequence, len(data), reason=str(error))
    reason = None if snapshot.sequence == sequence else f"it says that it is number {snapshot.sequence}"
    return SnapshotReport(path.name, sequence, len(data), snapshot.epoch, snapshot.version, reason)


def _segment(path: Path, epoch: int, number: int, files: Files, *, counts: bool) -> SegmentReport | None:
    data = _read(path, files)
    if data is None:
        return None
    if not data:
        return SegmentReport(path.name, epoch, number, 0, counts=False)
    try:
        header = decode_header(data)
    except (Damaged, NewerFormat) as error:
        reason = f"at offset 0, {error}"
        return SegmentReport(path.name, epoch, number, len(data), reason=reason, counts=counts)
    reader = SegmentReader(current(data), path, header.first)
    sizes = [len(record.payload) for record in reader]
    return SegmentReport(
        path.name,
        epoch,
        number,
        len(data),
        header.first,
        header.first + len(sizes) - 1 if sizes else None,
        len(sizes),
        sum(sizes),
        reader.stop.reason,
        reader.stop.torn,
        counts,
    )


def _read(path: Path, files: Files) -> bytes | None:
    """Give a file, and None where it is there no more."""
    try:
        return files.read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
