"""What a folder's files say together: where a recovery comes to, from which files, or why it must not.

Reads, decides, and changes nothing; README.md has the rules and the reasons.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from snapshots.errors import Damaged, Hole, NewerFormat, NothingUsable, StorageError
from snapshots.files import Files
from snapshots.names import Listing
from snapshots.records import Snapshot, decode
from snapshots.segments import HEADER_BYTES, current, decode_header
from snapshots.tails import Record, SegmentReader, header_is_torn, synced_last_told


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment whose header is whole. `first` is its first record, or would be."""

    path: Path
    epoch: int
    number: int
    first: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A file that is to be set aside: under another name, or as a copy from an offset on."""

    path: Path
    suffix: str
    reason: str
    copy_from: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment of which the records from `begin` to `end`, both included, come after the snapshot."""

    segment: Segment
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Unsynced:
    """The bytes of a segment of which nothing says that they are on the disk, though they can be read."""

    path: Path
    begin: int
    end: int


@dataclass(slots=True)
class Survey:
    """What a folder holds. Where `refusal` is there, no more than that may be believed."""

    folder: Path
    snapshot: Snapshot | None = None
    sequence: int = 0
    """The last record that is there."""
    pieces: list[Piece] = field(default_factory=list)
    journal_bytes: int = 0
    segments: list[Segment] = field(default_factory=list)
    """Those with a whole header, in order of epoch and number."""
    silent: list[Path] = field(default_factory=list)
    """Segments to which nothing was ever written."""
    findings: list[Finding] = field(default_factory=list)
    unsynced: Unsynced | None = None
    refusal: StorageError | None = None


def survey(folder: Path, names: Listing, files: Files, *, missing_is_empty: bool = False) -> Survey:
    """Read a folder. Raises FileNotFoundError where a file of the listing is there no more."""
    found = Survey(folder)
    try:
        _Surveyor(folder, names, files, found).run(missing_is_empty=missing_is_empty)
    except StorageError as error:
        found.refusal = error
    return found


def records_of(found: Survey, files: Files) -> Iterator[Record]:
    """Give the records after the snapshot, in order, one segment in memory at a time."""
    for piece in found.pieces:
        path = piece.segment.path
        reader = SegmentReader(current(files.read(path)), path, piece.segment.first, piece.end + 1)
        for record in reader:
            if record.sequence >= piece.begin:
                yield record
        if reader.stop.sequence != piece.end + 1:
            raise Damaged(f"{path} is no longer what it was: {reader.stop.reason or 'it is shorter'}")


class _Surveyor:
    def __init__(self, folder: Path, names: Listing, files: Files, found: Survey) -> None:
        self._folder = folder
        self._names = names
        self._files = files
        self._found = found
        self._garbled: list[tuple[tuple[int, int], Path, str]] = []
        """Segments whose header does not fit, though no torn write explains that."""
        self._torn_headers: list[tuple[Path, int]] = []
        """With the last record that was on the disk, as the rest of the file has it."""

    def run(self, *, missing_is_empty: bool) -> None:
        self._read_headers()
        self._choose_snapshot(missing_is_empty=missing_is_empty)
        self._judge_garbled()
        self._walk()
        self._check_nothing_else_was_there()

    def _read_headers(self) -> None:
        found = self._found
        for (epoch, number), name in self._names.segments.items():
            path = self._folder / name
            start = self._files.read_start(path, HEADER_BYTES)
            if not start:
                found.silent.append(path)
                continue
            try:
                header = decode_header(start)
            except Damaged as error:
                self._note_bad_header((epoch, number), path, str(error))
                continue
            except NewerFormat as error:
                raise NewerFormat(f"{path} cannot be used: {error}") from error
            if (header.epoch, header.number) == (epoch, number):
                found.segments.append(Segment(path, epoch, number, header.first))
            else:
                told = f"it says that it is number {header.number} of epoch {header.epoch}"
                self._note_bad_header((epoch, number), path, told)

    def _note_bad_header(self, place: tuple[int, int], path: Path, reason: str) -> None:
        data = self._files.read(path)
        try:
            # Its header may have been written since, and a longer one may be of a newer format.
            header = decode_header(data)
            if (header.epoch, header.number) == place:
                self._found.segments.append(Segment(path, *place, header.first))
                return
        except Damaged:
            pass
        except NewerFormat as error:
            raise NewerFormat(f"{path} cannot be used: {error}") from error
        if header_is_torn(data):
            self._torn_headers.append((path, synced_last_told(data)))
            self._found.findings.append(Finding(path, "torn", f"at offset 0, {reason}"))
        else:
            self._garbled.append((place, path, f"at offset 0, {reason}"))

    def _choose_snapshot(self, *, missing_is_empty: bool) -> None:
        found, names = self._found, self._names
        for sequence in sorted(names.snapshots, reverse=True):
            path = self._folder / names.snapshots[sequence]
            try:
                snapshot = self._read_snapshot(path, sequence)
            except Damaged as error:
                found.findings.append(Finding(path, "damaged", str(error)))
                continue
            except NewerFormat as error:
                found.findings.clear()
                raise NewerFormat(f"{path} cannot be used: {error}") from error
            fence = self._fence(snapshot.epoch)
            if fence is not None and snapshot.sequence >= fence:
                reason = f"it is by epoch {snapshot.epoch}, which was fenced off before record {fence}"
                found.findings.append(Finding(path, "fenced", reason))
                continue
            found.snapshot = snapshot
            found.sequence = snapshot.sequence
            return
        if missing_is_empty and not names.ever_had_a_snapshot:
            return
        told = "; ".join(f"{finding.path}: {finding.reason}" for finding in found.findings)
        if not told:
            told = "all were set aside before" if names.damaged_snapshots else "there is none"
        raise NothingUsable(f"{self._folder} holds no snapshot that can be used: {told}")

    def _read_snapshot(self, path: Path, sequence: int) -> Snapshot:
        snapshot = decode(self._files.read(path))
        if snapshot.sequence != sequence:
            raise Damaged(f"it says that it is number {snapshot.sequence}")
        return snapshot

    def _fence(self, epoch: int) -> int | None:
        """Give the first record that an epoch cannot have written, because a later one owned the folder."""
        firsts = [segment.first for segment in self._found.segments if segment.epoch > epoch]
        snapshot = self._found.snapshot
        if snapshot is not None and snapshot.epoch > epoch:
            firsts.append(snapshot.sequence + 1)
        return min(firsts, default=None)

    def _judge_garbled(self) -> None:
        """Pass over segments without a header only where the snapshot makes them needless."""
        found = self._found
        for place, path, reason in self._garbled:
            later = [segment.first for segment in found.segments if (segment.epoch, segment.number) > place]
            needless = bool(later) and min(later) <= found.sequence + 1
            found.findings.append(Finding(path, "damaged", reason, copy_from=None if needless else 0))
            if not needless:
                raise Damaged(f"{path}: {reason}")

    def _walk(self) -> None:
        segments = self._found.segments
        for index, segment in enumerate(segments):
            following = segments[index + 1] if index + 1 < len(segments) else None
            if following is not None and following.epoch != segment.epoch:
                following = None
            self._visit(segment, following, self._fence(segment.epoch))

    def _visit(self, segment: Segment, following: Segment | None, fence: int | None) -> None:
        found = self._found
        if following is not None and fence is not None and following.first >= fence:
            following = None
        ends = [end for end in (fence, following.first if following else None) if end is not None]
        begin = found.sequence + 1
        if (ends and min(ends) <= begin) or (fence is not None and segment.first >= fence):
            return
        if segment.first > begin:
            raise Hole(
                f"{segment.path} begins with record {segment.first}, and those from {begin} on are missing"
            )
        data = current(self._files.read(segment.path))
        reader = SegmentReader(data, segment.path, segment.first, fence)
        begin_offset = end_offset = HEADER_BYTES
        for record in reader:
            if record.sequence <= begin:
                begin_offset = record.offset
            end_offset = reader.stop.offset
        stop = reader.stop
        if stop.reason is not None:
            self._judge_stop(segment, stop.offset, stop.reason, torn=stop.torn and not ends)
        told = f"{segment.path} ends with record {stop.sequence - 1} at offset {stop.offset}"
        if following is not None:
            if stop.sequence != following.first:
                raise Hole(f"{told}, and {following.path} begins with record {following.first}")
        elif fence is not None and stop.sequence < fence:
            raise Hole(f"{told}, and a later owner found records up to {fence - 1}")
        if stop.sequence > begin:
            found.pieces.append(Piece(segment, begin, stop.sequence - 1))
            found.sequence = stop.sequence - 1
            found.journal_bytes += end_offset - begin_offset
            self._note_unsynced(segment, reader, end_offset)

    def _judge_stop(self, segment: Segment, offset: int, reason: str, *, torn: bool) -> None:
        if torn:
            self._found.findings.append(Finding(segment.path, "torn", reason, copy_from=offset))
            return
        self._found.findings.append(Finding(segment.path, "damaged", reason, copy_from=0))
        raise Damaged(f"{segment.path}: {reason}")

    def _note_unsynced(self, segment: Segment, reader: SegmentReader, end: int) -> None:
        begin = reader.unsynced_offset
        if begin is None:
            self._found.unsynced = None
        else:
            # While no record of a segment is on the disk, its header need not be either.
            begin = 0 if reader.synced < segment.first else begin
            self._found.unsynced = Unsynced(segment.path, begin, end)

    def _check_nothing_else_was_there(self) -> None:
        found = self._found
        for path, synced in self._torn_headers:
            if synced > found.sequence:
                raise Damaged(f"{path}: its header at offset 0 is lost, and record {synced} was on the disk")
        # A fenced owner's snapshot was never anything, whatever its number.
        fenced = {finding.path.name for finding in found.findings if finding.suffix == "fenced"}
        numbers = {number for number, name in self._names.snapshots.items() if name not in fenced}
        was = max(numbers | self._names.damaged_snapshots, default=0)
        if was > found.sequence:
            raise Hole(
                f"{self._folder} once had a snapshot of record {was}, and without that the last record that "
                f"can be read is {found.sequence}"
            )
