"""Removes files that a new snapshot makes obsolete, in an order that survives a crash at any point."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from pathlib import Path

from snapshots.errors import Damaged, NewerFormat
from snapshots.files import Files
from snapshots.format import pages
from snapshots.format.file_names import Listing, listing, mark_name
from snapshots.format.segments import Segment
from snapshots.format.snapshot_file import HEADER_BYTES, epoch_of


def trim(
    folder: Path,
    segments: Sequence[Segment],
    earlier: Mapping[str, int],
    obsolete: AbstractSet[Path],
    *,
    snapshots_kept: int,
    files: Files,
    now_us: int,
) -> frozenset[Path]:
    """Keep the newest snapshots, the segments that the oldest of them needs, and pages until they expire.

    `segments` are in order; the last one, the owner's current segment, stays. `earlier` are the names of
    earlier segments, with their epochs; each is needed until the oldest snapshot is by a later owner.
    `obsolete` are useless files, such as damaged snapshots. Returns the removed paths. A file that cannot be
    removed costs disk space, not safety; the next call tries again.
    """
    removed: set[Path] = set()

    def remove(path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            files.remove(path)
        removed.add(path)

    # Stop at the first failure: each file may only be removed once those before it are.
    with contextlib.suppress(OSError):
        for path in sorted(obsolete):
            remove(path)
        names = listing(files.names(folder))
        numbers = sorted(names.snapshots)
        for number in numbers[:-snapshots_kept]:
            remove(folder / names.snapshots[number])
        oldest = min(numbers[-snapshots_kept:])
        covered = []
        epoch = epoch_of(files.read_start(folder / names.snapshots[oldest], HEADER_BYTES)) or 0
        if earlier:
            covered = [folder / name for name, writer in earlier.items() if writer < epoch]
        covered += [segment.path for segment, after in pairwise(segments) if after.first <= oldest + 1]
        gone = {path.name for path in covered}
        for mark in _needless_marks(names, oldest, epoch, gone):
            remove(folder / mark)
        if covered:
            # No removed snapshot may come back after a crash, because the records after it will be gone, and
            # no mark whose segment will be gone.
            files.sync_folder(folder)
        for path in covered:
            remove(path)
        for name in names.pages.values():
            if not _has_expired(files.read_start(folder / name, pages.HEADER_BYTES), now_us):
                # Later pages expire later.
                break
            remove(folder / name)
    return frozenset(removed)


def _needless_marks(names: Listing, oldest: int, epoch: int, gone: AbstractSet[str]) -> Iterator[str]:
    """Yield the marks of segments that no recovery from a kept snapshot needs, or that will be removed.

    `oldest` is the oldest kept snapshot, of this epoch.
    """
    for place, first in names.marks.items():
        if first <= oldest or place[0] < epoch or names.segments.get(place, "") in gone | {""}:
            yield mark_name(*place, first)


def _has_expired(start: bytes, now_us: int) -> bool:
    """Whether the page that begins with these bytes has expired. Damaged pages are left to the recovery."""
    try:
        return pages.decode_header(start).expires_us < now_us
    except (Damaged, NewerFormat):
        return False
