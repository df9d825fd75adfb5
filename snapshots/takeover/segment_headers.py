"""Reads the headers of a folder's segments, and decides about segments without a whole header."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from snapshots.errors import Damaged, NewerFormat
from snapshots.files import Files
from snapshots.format.segment_reader import header_is_torn, last_known_synced
from snapshots.format.segments import Segment, decode_header
from snapshots.takeover.recovery_plan import RecoveryPlan

_SMALL_BYTES: Final = 16 * 1024
"""A smaller segment is read with its header: most passive detectors have a few short ones."""


@dataclass(frozen=True, slots=True)
class Headerless:
    """A segment without a whole header. Its records, if any, say that record `synced` was on the disk."""

    place: tuple[int, int]
    """Epoch and number."""
    path: Path
    reason: str
    torn: bool
    synced: int


def read_headers(plan: RecoveryPlan, segments: dict[tuple[int, int], str], files: Files) -> list[Headerless]:
    """Add the segments with a whole header to the plan; return those without. Raises NewerFormat.

    All of them must be earlier than the segments that are in the plan already.
    """
    read: list[Segment] = []
    headerless = []
    # A header tells what its writer has read of earlier segments, so those must be read after it.
    for place, name in reversed(segments.items()):
        path = plan.folder / name
        start = files.read_start(path, _SMALL_BYTES)
        if len(start) < _SMALL_BYTES:
            plan.small[name] = start
        if not start:
            # It was created for a record that was never written.
            plan.obsolete.append(path)
        elif isinstance(header := _header(place, path, start), Segment):
            read.append(header)
        else:
            data = plan.read(path, files)
            # A newer format may have a longer header.
            _header(place, path, data)
            headerless.append(
                Headerless(
                    place, path, f"at offset 0, {header}", header_is_torn(data), last_known_synced(data)
                )
            )
    plan.segments = read[::-1] + plan.segments
    return headerless[::-1]


def judge_headerless(plan: RecoveryPlan, headerless: list[Headerless], history: set[int]) -> None:
    """Skip the segments without a header that are torn or not needed. Raises Damaged for any other."""
    latest = max(history)
    for one in headerless:
        epoch = one.place[0]
        later = [segment.first for segment in plan.segments if (segment.epoch, segment.number) > one.place]
        void = epoch < latest and epoch not in history
        covered = bool(later) and min(later) <= plan.sequence + 1
        plan.set_aside(one.path, "torn" if one.torn else "damaged", one.reason)
        if not (void or covered or one.torn):
            raise Damaged(f"{one.path}: {one.reason}")


def check_headerless_were_unsynced(
    plan: RecoveryPlan, headerless: list[Headerless], history: set[int]
) -> None:
    """Raise Damaged if a segment that was skipped as torn had records on the disk."""
    for one in headerless:
        if one.torn and one.place[0] >= max(history) and one.synced > plan.sequence:
            raise Damaged(f"{one.path}: {one.reason}, and record {one.synced} was on the disk")


def _header(place: tuple[int, int], path: Path, data: bytes) -> Segment | str:
    """Return the segment that a header describes, or what is wrong with the header."""
    try:
        header = decode_header(data)
    except Damaged as error:
        return str(error)
    except NewerFormat as error:
        raise NewerFormat(f"{path} cannot be used: {error}") from error
    if (header.epoch, header.number) != place:
        return f"it says that it is number {header.number} of epoch {header.epoch}"
    return Segment(header.epoch, header.number, header.first, header.after, path)
