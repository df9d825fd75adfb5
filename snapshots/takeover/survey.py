"""What a folder's files say together: where a recovery comes to, from which files, or why it must not.

Reads, decides, and changes nothing; README.md has the rules and the reasons.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from snapshots.errors import Damaged, Hole, NewerFormat, NothingUsable, StorageError
from snapshots.files import Files
from snapshots.format.file_names import Listing
from snapshots.format.pages import HEADER_BYTES as PAGE_HEADER_BYTES
from snapshots.format.pages import Page, PageHeader
from snapshots.format.pages import decode as decode_page
from snapshots.format.pages import decode_header as decode_header_of_page
from snapshots.format.segments import HEADER_BYTES, current, decode_header
from snapshots.format.snapshot_file import Snapshot, decode
from snapshots.format.tails import Record, SegmentReader, header_is_torn, synced_last_told


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment whose header is whole. `first` is its first record, or would be; see SegmentHeader."""

    path: Path
    epoch: int
    number: int
    first: int
    after: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A file of which a copy is to be set aside, from an offset on."""

    path: Path
    suffix: str
    reason: str
    copy_from: int = 0


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
    epoch: int = 0
    """Whose that record is, or the snapshot that includes it.

    Not a later one that has written its header only: nobody has seen to it that this is on the disk.
    """
    pieces: list[Piece] = field(default_factory=list)
    journal_bytes: int = 0
    segments: list[Segment] = field(default_factory=list)
    """Those with a whole header that belong to the folder's history, in order."""
    litter: list[Path] = field(default_factory=list)
    """Files that nobody needs once there is another snapshot; what is damaged was copied before."""
    pages: list[Path] = field(default_factory=list)
    """Those that the snapshot goes with and that are still needed, in order."""
    findings: list[Finding] = field(default_factory=list)
    unsynced: Unsynced | None = None
    refusal: StorageError | None = None


def survey(
    folder: Path, names: Listing, files: Files, *, now_us: int, missing_is_empty: bool = False
) -> Survey:
    """Read a folder. Raises FileNotFoundError where a file of the listing is there no more."""
    found = Survey(folder)
    try:
        _Surveyor(folder, names, files, found).run(now_us, missing_is_empty=missing_is_empty)
    except StorageError as error:
        found.refusal = error
    return found


def pages_of(found: Survey, files: Files) -> Iterator[Page]:
    """Give the pages that the snapshot goes with, in order, one in memory at a time."""
    for path in found.pages:
        try:
            yield decode_page(files.read(path))
        except Damaged as error:
            raise Damaged(f"{path} is no longer what it was: {error}") from error


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


@dataclass(frozen=True, slots=True)
class _Headless:
    """A segment without a whole header. By what else it has, record `synced` was on the disk."""

    place: tuple[int, int]
    path: Path
    reason: str
    torn: bool
    synced: int


class _Surveyor:
    def __init__(self, folder: Path, names: Listing, files: Files, found: Survey) -> None:
        self._folder = folder
        self._names = names
        self._files = files
        self._found = found
        self._headless: list[_Headless] = []
        self._fenced: set[str] = set()

    def run(self, now_us: int, *, missing_is_empty: bool) -> None:
        self._read_headers()
        self._choose_snapshot(missing_is_empty=missing_is_empty)
        self._choose_pages(now_us)
        line = self._choose_line()
        self._judge_headless(line)
        for index, segment in enumerate(self._found.segments):
            self._visit(segment, self._found.segments[index + 1 :])
        self._check_nothing_else_was_there(line)

    def _read_headers(self) -> None:
        for place, name in self._names.segments.items():
            path = self._folder / name
            start = self._files.read_start(path, HEADER_BYTES)
            if not start:
                # It was made for a record that was never written.
                self._found.litter.append(path)
            elif isinstance(header := self._header(place, path, start), Segment):
                self._found.segments.append(header)
            else:
                self._headless.append(self._look_again(place, path, header))

    def _header(self, place: tuple[int, int], path: Path, data: bytes) -> Segment | str:
        """Give what a header says, or what is wrong with it."""
        try:
            header = decode_header(data)
        except Damaged as error:
            return str(error)
        except NewerFormat as error:
            raise NewerFormat(f"{path} cannot be used: {error}") from error
        if (header.epoch, header.number) != place:
            return f"it says that it is number {header.number} of epoch {header.epoch}"
        return Segment(path, *place, header.first, header.after)

    def _look_again(self, place: tuple[int, int], path: Path, reason: str) -> _Headless:
        data = self._files.read(path)
        # A longer header may be whole, and of a newer format.
        self._header(place, path, data)
        return _Headless(place, path, f"at offset 0, {reason}", header_is_torn(data), synced_last_told(data))

    def _choose_snapshot(self, *, missing_is_empty: bool) -> None:
        found, names = self._found, self._names
        for sequence in sorted(names.snapshots, reverse=True):
            path = self._folder / names.snapshots[sequence]
            try:
                snapshot = self._read_snapshot(path, sequence)
            except Damaged as error:
                self._set_aside(path, "damaged", str(error))
                continue
            except NewerFormat as error:
                raise NewerFormat(f"{path} cannot be used: {error}") from error
            if self._is_fenced(path, snapshot.epoch, sequence):
                self._fenced.add(path.name)
                continue
            found.snapshot = snapshot
            found.sequence = sequence
            found.epoch = snapshot.epoch
            return
        if missing_is_empty and not names.ever_had_a_snapshot:
            return
        told = "; ".join(f"{finding.path}: {finding.reason}" for finding in found.findings)
        if not told:
            told = "all were set aside before" if names.damaged_snapshots else "there is none"
        raise NothingUsable(f"{self._folder} holds no snapshot that can be used: {told}")

    def _is_fenced(self, path: Path, epoch: int, sequence: int) -> bool:
        """Whether a later owner's records begin before the end of what a file tells; it is set aside then."""
        fence = min((one.first for one in self._found.segments if one.epoch > epoch), default=None)
        if fence is None or sequence < fence:
            return False
        self._set_aside(path, "fenced", f"it is by epoch {epoch}, which was fenced off before record {fence}")
        return True

    def _choose_pages(self, now_us: int) -> None:
        """Take the pages that tell of what the snapshot has; those of what comes after it the journal has.

        A damaged one is set aside and reported, and no reason to refuse: what it told is soon not needed.
        """
        found = self._found
        for sequence, name in self._names.pages.items():
            path = self._folder / name
            try:
                header = self._page_header(path, sequence)
                if header.expires_us < now_us or sequence > found.sequence:
                    found.litter.append(path)
                elif not self._is_fenced(path, header.epoch, sequence):
                    decode_page(self._files.read(path))
                    found.pages.append(path)
            except Damaged as error:
                self._set_aside(path, "damaged", str(error))
            except NewerFormat as error:
                raise NewerFormat(f"{path} cannot be used: {error}") from error

    def _page_header(self, path: Path, sequence: int) -> PageHeader:
        header = decode_header_of_page(self._files.read_start(path, PAGE_HEADER_BYTES))
        if header.sequence != sequence:
            raise Damaged(f"it says that it is number {header.sequence}")
        return header

    def _read_snapshot(self, path: Path, sequence: int) -> Snapshot:
        snapshot = decode(self._files.read(path))
        if snapshot.sequence != sequence:
            raise Damaged(f"it says that it is number {snapshot.sequence}")
        return snapshot

    def _choose_line(self) -> set[int]:
        """Give the epochs of the folder's history, and leave the segments of the others out.

        Each owner says whom it came after. One between the two was fenced off before it had answered
        anything: what it wrote is void.
        """
        found = self._found
        after = {segment.epoch: segment.after for segment in found.segments}
        epoch = max([found.epoch, *after])
        line = {epoch}
        while epoch in after:
            epoch = after[epoch]
            line.add(epoch)
        found.litter += [segment.path for segment in found.segments if segment.epoch not in line]
        found.segments = [segment for segment in found.segments if segment.epoch in line]
        return line

    def _judge_headless(self, line: set[int]) -> None:
        """Pass over a segment without a header where its write was torn, or where nobody needs it."""
        found = self._found
        for one in self._headless:
            epoch = one.place[0]
            later = [
                segment.first for segment in found.segments if (segment.epoch, segment.number) > one.place
            ]
            void = epoch < max(line) and epoch not in line
            needless = void or (bool(later) and min(later) <= found.sequence + 1)
            self._set_aside(one.path, "torn" if one.torn else "damaged", one.reason)
            if not needless and not one.torn:
                raise Damaged(f"{one.path}: {one.reason}")

    def _visit(self, segment: Segment, later: list[Segment]) -> None:
        """Take over what comes after what was found until now."""
        found = self._found
        fence = self._fence(segment, later)
        following = later[0] if later and later[0].epoch == segment.epoch else None
        if following is not None and fence is not None and following.first >= fence:
            following = None
        end = following.first if following is not None else fence
        begin = found.sequence + 1
        if (end is not None and end <= begin) or (fence is not None and segment.first >= fence):
            return
        if segment.first > begin:
            raise Hole(
                f"{segment.path} begins with record {segment.first}, and those from {begin} on are missing"
            )
        data = current(self._files.read(segment.path))
        reader = SegmentReader(data, segment.path, segment.first, fence)
        begin_offset = HEADER_BYTES
        for record in reader:
            if record.sequence <= begin:
                begin_offset = record.offset
        stop = reader.stop
        if stop.reason is not None:
            if end is not None or not stop.torn:
                self._set_aside(segment.path, "damaged", stop.reason)
                raise Damaged(f"{segment.path}: {stop.reason}")
            found.findings.append(Finding(segment.path, "torn", stop.reason, stop.offset))
        if end is not None and stop.sequence != end:
            told = f"{segment.path} ends with record {stop.sequence - 1} at offset {stop.offset}"
            if following is not None:
                raise Hole(f"{told}, and {following.path} begins with record {end}")
            raise Hole(f"{told}, and a later owner found records up to {end - 1}")
        if stop.sequence > begin:
            found.pieces.append(Piece(segment, begin, stop.sequence - 1))
            found.sequence = stop.sequence - 1
            found.epoch = max(found.epoch, segment.epoch)
            found.journal_bytes += stop.offset - begin_offset
            self._note_unsynced(segment, reader)

    def _fence(self, segment: Segment, later: list[Segment]) -> int | None:
        """Give the first record that is not a segment's, because a later epoch owned the folder by then."""
        snapshot = self._found.snapshot
        firsts = [one.first for one in later if one.epoch > segment.epoch]
        if snapshot is not None and snapshot.epoch > segment.epoch:
            firsts.append(snapshot.sequence + 1)
        return min(firsts, default=None)

    def _note_unsynced(self, segment: Segment, reader: SegmentReader) -> None:
        begin = reader.unsynced_offset
        if begin is None:
            self._found.unsynced = None
        else:
            # While no record of a segment is on the disk, its header need not be either.
            begin = 0 if reader.synced < segment.first else begin
            self._found.unsynced = Unsynced(segment.path, begin, reader.stop.offset)

    def _check_nothing_else_was_there(self, line: set[int]) -> None:
        found = self._found
        for one in self._headless:
            if one.torn and one.place[0] >= max(line) and one.synced > found.sequence:
                raise Damaged(f"{one.path}: {one.reason}, and record {one.synced} was on the disk")
        # A fenced owner's snapshot was never anything, whatever its number.
        numbers = {number for number, name in self._names.snapshots.items() if name not in self._fenced}
        was = max(numbers | self._names.damaged_snapshots, default=0)
        if was > found.sequence:
            raise Hole(
                f"{self._folder} once had a snapshot of record {was}, and without that the last record that "
                f"can be read is {found.sequence}"
            )

    def _set_aside(self, path: Path, suffix: str, reason: str) -> None:
        self._found.findings.append(Finding(path, suffix, reason))
        self._found.litter.append(path)
