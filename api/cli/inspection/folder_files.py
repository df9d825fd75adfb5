"""Reads the files of the directory or of one detector into the types of the report."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from api.cli.inspection.report import Defect, SegmentFile, SnapshotFile, Storage
from snapshots.format.file_names import listing
from snapshots.inspection import FolderReport, inspect_folder, read_only
from snapshots.takeover.recovered import Recovered

_PLACE: Final = re.compile(r"at offset ([0-9]+), (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The findings of one look at a folder. `recovered` is None if a recovery would fail."""

    storage: Storage
    recovered: Recovered | None = None
    damage: tuple[Defect, ...] = ()
    warnings: tuple[str, ...] = ()


def look_at(folder: Path) -> Look:
    """Read the files of a folder without changing anything. Raises StorageError."""
    found = inspect_folder(folder)
    damage, warnings = _findings(found)
    return Look(
        storage=Storage(
            folder=str(folder),
            position=None if found.refusal else found.sequence,
            refusal=found.refusal,
            snapshots=[
                SnapshotFile(file=one.name, sequence=one.sequence, epoch=one.epoch, bytes=one.file_bytes)
                for one in found.snapshots
            ],
            segments=[
                SegmentFile(
                    file=one.name,
                    epoch=one.epoch,
                    first=one.first if one.records else None,
                    last=one.last,
                    records=one.records,
                    bytes=one.file_bytes,
                )
                for one in found.segments
                # An empty segment only claims the folder, or is about to be written.
                if one.file_bytes
            ],
            set_aside=list(found.set_aside),
        ),
        recovered=None if found.refusal else read_only(folder),
        damage=damage,
        warnings=warnings,
    )


def _findings(found: FolderReport) -> tuple[tuple[Defect, ...], tuple[str, ...]]:
    """Separate damage from warnings: an unfinished write, or a defect that no recovery meets."""
    folder = found.folder
    damage = [_defect(folder / one.name, one.reason) for one in found.snapshots if one.reason is not None]
    warnings = []
    for segment in found.segments:
        if segment.reason is None:
            continue
        path = folder / segment.name
        defect = _defect(path, segment.reason)
        if str(path) in (found.refusal or ""):
            damage.append(defect)
        elif segment.torn:
            warnings.append(f"{defect}: a write that was never finished, or is under way")
        elif found.refusal is not None:
            damage.append(defect)
        else:
            warnings.append(f"{defect}; no recovery needs that")
    if found.refusal is not None and not damage:
        damage.append(Defect(path=str(folder), reason=found.refusal))
    unreadable = {one.name for one in found.snapshots if one.reason is not None}
    unreadable |= {one.name for one in found.segments if one.reason is not None}
    for one in found.damage:
        if listing([one.path.name]).pages:
            damage.append(_defect(one.path, one.reason))
        elif one.path.name not in unreadable:
            warnings.append(str(one))
    return tuple(damage), tuple(warnings)


def _defect(path: Path, reason: str) -> Defect:
    placed = _PLACE.fullmatch(reason)
    if placed is None:
        return Defect(path=str(path), reason=reason)
    return Defect(path=str(path), offset=int(placed[1]), reason=placed[2])
