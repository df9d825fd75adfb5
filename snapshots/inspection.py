"""Reports the contents of a folder, and the outcome of a recovery, without changing or claiming it."""

from dataclasses import dataclass
from pathlib import Path

from snapshots.errors import Damaged, NewerFormat
from snapshots.files import Files, RealFiles, storage_errors, wall_clock_us
from snapshots.format.file_names import Listing, listing
from snapshots.format.segment_reader import SegmentReader
from snapshots.format.segments import SEGMENT_FILE, decode_header
from snapshots.format.snapshot_file import decode
from snapshots.takeover.planner import list_and_plan
from snapshots.takeover.recovered import Damage, Recovered, RecoveryPlan, recovered


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """A snapshot file. `reason` says why it cannot be used; then epoch and version are None."""

    name: str
    sequence: int
    file_bytes: int
    epoch: int | None = None
    version: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """A segment, read up to the first record that does not fit.

    `first` is None if the header cannot be read, `last` if there is no record. `reason` says what does not
    fit and at which offset, `torn` whether an unfinished write explains it. `counts` says whether any part of
    the segment belongs to the folder's history.
    """

    name: str
    epoch: int
    number: int
    file_bytes: int
    counts: bool
    first: int | None = None
    last: int | None = None
    records: int = 0
    payload_bytes: int = 0
    reason: str | None = None
    torn: bool = False


@dataclass(frozen=True, slots=True)
class FolderReport:
    """A folder: its files, and the last record that a recovery would reach, or why it would refuse."""

    folder: Path
    epoch: int
    """The latest epoch that has claimed the folder; 0 for none."""
    snapshots: tuple[SnapshotReport, ...]
    segments: tuple[SegmentReport, ...]
    set_aside: tuple[str, ...]
    unfinished: tuple[str, ...]
    snapshot_sequence: int | None
    sequence: int
    journal_bytes: int
    """The length of the records that a recovery would read after the snapshot."""
    damage: tuple[Damage, ...]
    """The files that a recovery would set aside."""
    refusal: str | None


def inspect_folder(folder: Path, files: Files | None = None) -> FolderReport:
    """Report on a folder, even while its owner writes to it. Raises StorageError."""
    files = files or RealFiles()
    names, plan = _planned(folder, files, thorough=True)
    obsolete = {path.name for path in plan.obsolete}
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
            if (segment := _segment(folder / name, epoch, number, files, counts=name not in obsolete))
        ),
        set_aside=tuple(sorted(names.set_aside)),
        unfinished=tuple(sorted(names.unfinished)),
        snapshot_sequence=plan.snapshot.sequence if plan.snapshot else None,
        sequence=plan.sequence,
        journal_bytes=plan.journal_bytes,
        damage=_damage(plan),
        refusal=str(plan.refusal) if plan.refusal else None,
    )


def read_only(folder: Path, files: Files | None = None) -> Recovered:
    """Return the newest snapshot and the records after it, without claiming the folder.

    A record that its owner is writing may look torn; `damage` reports it, and nothing is set aside. Raises
    the refusal of a recovery, and StorageError. Iterating the records raises StorageError if the owner has
    saved another snapshot and removed them; then call this again.
    """
    files = files or RealFiles()
    _, plan = _planned(folder, files)
    if plan.refusal is not None:
        raise plan.refusal
    return recovered(plan, files, _damage(plan))


def _planned(folder: Path, files: Files, *, thorough: bool = False) -> tuple[Listing, RecoveryPlan]:
    with storage_errors(f"{folder} cannot be read"):
        return list_and_plan(
            folder, lambda: listing(files.names(folder)), files, wall_clock_us(), thorough=thorough
        )


def _damage(plan: RecoveryPlan) -> tuple[Damage, ...]:
    return tuple(Damage(flaw.path, flaw.reason) for flaw in plan.flaws)


def _snapshot(path: Path, sequence: int, files: Files) -> SnapshotReport | None:
    data = _read(path, files)
    if data is None:
        return None
    try:
        snapshot = decode(data)
    except (Damaged, NewerFormat) as error:
        return SnapshotReport(path.name, sequence, len(data), reason=str(error))
    reason = None if snapshot.sequence == sequence else f"its header names number {snapshot.sequence}"
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
    reader = SegmentReader(SEGMENT_FILE.checked(data), path, header.first)
    sizes = [len(record.payload) for record in reader]
    return SegmentReport(
        path.name,
        epoch,
        number,
        len(data),
        counts,
        header.first,
        header.first + len(sizes) - 1 if sizes else None,
        len(sizes),
        sum(sizes),
        reader.stop.reason,
        reader.stop.torn,
    )


def _read(path: Path, files: Files) -> bytes | None:
    """Read a file; None if it is gone."""
    with storage_errors(f"{path} cannot be read"):
        try:
            return files.read(path)
        except FileNotFoundError:
            return None
