"""The files of one folder of a data folder, in the words of the report, and what can be read from them."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from api.commands.folder_report import Defect, SegmentFile, SnapshotFile, Storage
from snapshots.errors import StorageError
from snapshots.files import Files, RealFiles
from snapshots.names import Listing, listing
from snapshots.records import decode
from snapshots.segments import current, decode_header
from snapshots.store import Records, Recovered
from snapshots.survey import Survey, survey
from snapshots.tails import SegmentReader

_PLACE: Final = re.compile(r"at offset ([0-9]+), (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at a folder gave. `recovered` is None where a recovery would be refused."""

    storage: Storage
    recovered: Recovered | None = None
    damage: tuple[Defect, ...] = ()
    remarks: tuple[str, ...] = ()


def look_at(folder: Path, files: Files | None = None) -> Look:
    """Look at the files of a folder, and change nothing. Raises OSError, also where one is gone meanwhile."""
    files = files or RealFiles()
    names = listing(files.names(folder))
    found = survey(folder, names, files)
    snapshots, bad_snapshots = _snapshots(folder, names, files)
    segments, bad_segments = _segments(folder, names, files)
    damage, remarks = _judged(found, [*bad_snapshots, *bad_segments])
    return Look(
        storage=Storage(
            folder=str(folder),
            position=None if found.refusal else found.sequence,
            refusal=str(found.refusal) if found.refusal else None,
            snapshots=snapshots,
            segments=segments,
            set_aside=sorted(names.set_aside),
        ),
        recovered=None if found.refusal else Recovered(found.snapshot, Records(found, files)),
        damage=damage,
        remarks=remarks,
    )


def _snapshots(folder: Path, names: Listing, files: Files) -> tuple[list[SnapshotFile], list[Defect]]:
    """Give the snapshots, the newest first, and what is wrong with them."""
    told, defects = [], []
    for sequence, name in sorted(names.snapshots.items(), reverse=True):
        data = files.read(folder / name)
        epoch = None
        try:
            snapshot = decode(data)
        except StorageError as error:
            defects.append(_defect(folder / name, str(error)))
        else:
            epoch = snapshot.epoch
            if snapshot.sequence != sequence:
                defects.append(_defect(folder / name, f"it says that it is number {snapshot.sequence}"))
        told.append(SnapshotFile(file=name, sequence=sequence, epoch=epoch, bytes=len(data)))
    return told, defects


def _segments(folder: Path, names: Listing, files: Files) -> tuple[list[SegmentFile], list[Defect]]:
    """Give the segments in order, each as far as it can be read, and what is wrong with them."""
    told, defects = [], []
    for (epoch, _), name in names.segments.items():
        path = folder / name
        data = files.read(path)
        first, records, reason = None, 0, None
        if data:
            try:
                first = decode_header(data).first
                reader = SegmentReader(current(data), path, first)
                records = sum(1 for _ in reader)
                reason = reader.stop.reason
            except StorageError as error:
                reason = f"at offset 0, {error}"
        if reason is not None:
            defects.append(_defect(path, reason))
        told.append(
            SegmentFile(
                file=name,
                epoch=epoch,
                first=first if records else None,
                last=first + records - 1 if first is not None and records else None,
                records=records,
                bytes=len(data),
            )
        )
    return told, defects


def _judged(found: Survey, defects: list[Defect]) -> tuple[tuple[Defect, ...], tuple[str, ...]]:
    """Tell damage from what is none: a write that was never finished, and what no recovery needs."""
    damage, remarks = [], []
    for finding in found.findings:
        defect = _defect(finding.path, finding.reason)
        match finding.suffix:
            case "damaged":
                damage.append(defect)
            case "torn":
                remarks.append(f"{defect}: a write that was never finished, or is under way")
            case _:
                remarks.append(str(defect))
    judged = {str(finding.path) for finding in found.findings}
    for defect in defects:
        if defect.path in judged:
            continue
        if defect.path.endswith(".rds"):
            damage.append(defect)
        else:
            remarks.append(f"{defect}; no recovery needs that")
    if found.refusal is not None and not damage:
        damage.append(Defect(path=str(found.folder), reason=str(found.refusal)))
    return tuple(damage), tuple(remarks)


def _defect(path: Path, reason: str) -> Defect:
    placed = _PLACE.fullmatch(reason)
    if placed is None:
        return Defect(path=str(path), reason=reason)
    return Defect(path=str(path), offset=int(placed[1]), reason=placed[2])
