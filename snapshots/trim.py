"""Removing what a new snapshot makes needless, in an order in which a crash leaves a whole folder."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from snapshots.files import Files
from snapshots.names import listing
from snapshots.survey import Segment


def trim(folder: Path, segments: Sequence[Segment], *, kept: int, files: Files) -> frozenset[Segment]:
    """Keep the newest snapshots and the segments that the oldest of those needs; the segments that are gone.

    `segments` are in order, the last one the owner's current one, which is never removed: it is the claim.
    What cannot be removed costs room, not safety, and the next attempt tries again.
    """
    removed: set[Segment] = set()
    try:
        snapshots = listing(files.names(folder)).snapshots
        numbers = sorted(snapshots)
        for number in numbers[:-kept]:
            _remove(folder / snapshots[number], files)
        oldest = min(numbers[-kept:])
        needless = [segment for segment, after in pairwise(segments) if after.first <= oldest + 1]
        if needless:
            # No older snapshot may come back after a crash: it would not find its records any more.
            files.sync_folder(folder)
        for segment in needless:
            _remove(segment.path, files)
            removed.add(segment)
    except OSError:
        pass
    return frozenset(removed)


def _remove(path: Path, files: Files) -> None:
    try:
        files.remove(path)
    except FileNotFoundError:
        return
