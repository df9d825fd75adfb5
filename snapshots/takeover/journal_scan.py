"""Scans the segments of a folder's history for the records after the snapshot."""

from snapshots.errors import Damaged, Hole
from snapshots.files import Files
from snapshots.format.segment_reader import Record, SegmentReader
from snapshots.format.segments import HEADER_BYTES, SEGMENT_FILE, Segment
from snapshots.takeover.recovery_plan import Flaw, RecordRange, RecoveryPlan, Unsynced


def scan_journal(plan: RecoveryPlan, files: Files) -> None:
    """Add all records after the snapshot to the plan. Raises Damaged, Hole."""
    # The snapshot includes all records that count of owners before its own.
    segments = [segment for segment in plan.segments if segment.epoch >= plan.epoch]
    for index, segment in enumerate(segments):
        _scan(plan, segment, segments[index + 1 :], files)


def _scan(plan: RecoveryPlan, segment: Segment, later: list[Segment], files: Files) -> None:
    """Add the records of a segment that come after those of the plan, up to where a later owner took over."""
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
    # Until a record of a segment is known to be on the disk, its header may not be there either.
    begin = 0 if reader.synced < segment.first else begin
    return Unsynced(segment.path, begin, reader.stop.offset)
