"""Reads the segments of a folder's history: their headers first, then the records after the snapshot."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from snapshots.errors import Damaged, Hole, NewerFormat
from snapshots.files import Files
from snapshots.format.segment_reader import Record, SegmentReader, header_is_torn, last_known_synced
from snapshots.format.segments import HEADER_BYTES, SEGMENT_FILE, Segment, decode_header
from snapshots.takeover.recovered import Flaw, RecordRange, RecoveryPlan, Unsynced

_SMALL_BYTES: Final = 16 * 1024
"""Smaller segments are read whole with their headers: most passive detectors have a few short ones."""


@dataclass(frozen=True, slots=True)
class Headerless:
    """A segment without a whole header. `synced` is the last record that its records call synced."""

    place: tuple[int, int]
    """Epoch and number."""
    path: Path
    reason: str
    torn: bool
    synced: int


def read_headers(plan: RecoveryPlan, segments: dict[tuple[int, int], str], files: Files) -> list[Headerless]:
    """Add the segments with a whole header to the plan; return those without. Raises NewerFormat.

    All of them must be earlier than the segments already in the plan.
    """
    read: list[Segment] = []
    headerless = []
    # A header records what its writer has read of earlier segments, so those must be read after it.
    for place, name in reversed(segments.items()):
        path = plan.folder / name
        start = files.read_start(path, _SMALL_BYTES)
        if len(start) < _SMALL_BYTES:
            plan.small[name] = start
        if not start:
            # The segment was created for a record that was never written.
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
    """Skip segments without a header that are torn or not needed. Raises Damaged for others."""
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
    """Raise Damaged if a segment skipped as torn had records on the disk."""
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
        return f"its header names number {header.number} of epoch {header.epoch}"
    return Segment(header.epoch, header.number, header.first, header.after, path)


def scan_journal(plan: RecoveryPlan, files: Files) -> None:
    """Add all records after the snapshot to the plan. Raises Damaged, Hole."""
    # The snapshot includes all valid records of earlier owners.
    segments = [segment for segment in plan.segments if segment.epoch >= plan.epoch]
    for index, segment in enumerate(segments):
        _scan(plan, segment, segments[index + 1 :], files)


def _scan(plan: RecoveryPlan, segment: Segment, later: list[Segment], files: Files) -> None:
    """Add the records of a segment after those in the plan, up to where a later owner took over."""
    fence = plan.first_fenced(segment.epoch)
    following = later[0] if later and later[0].epoch == segment.epoch else None
    if following is not None and fence is not None and following.first >= fence:
        following = None
    end = following.first if following is not None else fence
    begin = plan.sequence + 1
    if (end is not None and end <= begin) or (fence is not None and segment.first >= fence):
        return
    if segment.first > begin:
        raise Hole(
            f"{segment.path} begins with record {segment.first}, and those from {begin} on are missing"
        )
    data = SEGMENT_FILE.checked(plan.read(segment.path, files))
    reader = SegmentReader(data, segment.path, segment.first, fence)
    begin_offset = HEADER_BYTES
    records: list[Record] = []
    kept = segment.path.name in plan.small
    for record in reader:
        if record.sequence <= begin:
            begin_offset = record.offset
        if kept and record.sequence >= begin:
            records.append(record)
    stop = reader.stop
    if stop.reason is not None:
        if end is not None or not stop.torn:
            plan.set_aside(segment.path, "damaged", stop.reason)
            raise Damaged(f"{segment.path}: {stop.reason}")
        plan.flaws.append(Flaw(segment.path, "torn", stop.reason, stop.offset))
    if end is not None and stop.sequence != end:
        ends = f"{segment.path} ends with record {stop.sequence - 1} at offset {stop.offset}"
        if following is not None:
            raise Hole(f"{ends}, and {following.path} begins with record {end}")
        raise Hole(f"{ends}, and a later owner found records up to {end - 1}")
    if stop.sequence > begin:
        plan.ranges.append(RecordRange(segment, begin, stop.sequence - 1, records))
        plan.sequence = stop.sequence - 1
        plan.epoch = segment.epoch
        plan.journal_bytes += stop.offset - begin_offset
        plan.unsynced = _unsynced(segment, reader)


def _unsynced(segment: Segment, reader: SegmentReader) -> Unsynced | None:
    begin = reader.unsynced_offset
    if begin is None:
        return None
    # Unless a record of a segment is known to be on the disk, its header may be missing there, too.
    begin = 0 if reader.synced < segment.first else begin
    return Unsynced(segment.path, begin, reader.stop.offset)
