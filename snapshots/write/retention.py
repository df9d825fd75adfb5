"""Removing what a new snapshot makes needless, in an order in which a crash leaves a whole folder."""

import contextlib
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from pathlib import Path

from snapshots.errors import Damaged, NewerFormat
from snapshots.files import Files
from snapshots.format.file_names import listing
from snapshots.format.pages import HEADER_BYTES as PAGE_HEADER_BYTES
from snapshots.format.pages import decode_header
from snapshots.takeover.survey import Segment


def trim(
    folder: Path,
    segments: Sequence[Segment],
    litter: AbstractSet[Path],
    *,
    kept: int,
    files: Files,
    now_us: int,
) -> frozenset[Path]:
    """Keep the newest snapshots, the segments that the oldest of those needs, and pages until they expire.

    Gives the files that are gone.

    `segments` are in order, the last one the owner's current one, which is never removed. `litter` is needed
    by nobody, snapshots that are damaged among it. What cannot be removed costs room, not safety, and the
    next attempt tries again.
    """
    removed: set[Path] = set()

    def remove(path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            files.remove(path)
        removed.add(path)

    # Whatever cannot be removed ends it: what comes later may only go where what comes before is gone.
    with contextlib.suppress(OSError):
        for path in sorted(litter):
            remove(path)
        names = listing(files.names(folder))
        snapshots = names.snapshots
        numbers = sorted(snapshots)
        for number in numbers[:-kept]:
            remove(folder / snapshots[number])
        oldest = min(numbers[-kept:])
        needless = [segment for segment, after in pairwise(segments) if after.first <= oldest + 1]
        if needless:
            # No older snapshot may come back after a crash: it would not find its records any more.
            files.sync_folder(folder)
        for segment in needless:
            remove(segment.path)
        for name in names.pages.values():
            if not _has_expired(files.read_start(folder / name, PAGE_HEADER_BYTES), now_us):
                # Those after it expire later.
                break
            remove(folder / name)
    return frozenset(removed)


def _has_expired(start: bytes, now_us: int) -> bool:
    """Whether nobody needs the page that begins so. A damaged one is left to the next recovery."""
    try:
        return decode_header(start).expires_us < now_us
    except (Damaged, NewerFormat):
        return False
