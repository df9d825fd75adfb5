"""One owner's journal: appends records to the current segment, syncs them, and begins the next segment."""

import contextlib
from pathlib import Path
from typing import Final

from snapshots.errors import NoRoom, SyncFailed, WriteFailed
from snapshots.files import NO_ROOM, Files, OpenFile, close_and_remove, storage_errors, write_all
from snapshots.format.file_names import FIRST_NUMBER, mark_name, segment_name
from snapshots.format.segments import (
    HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    Segment,
    encode_header,
    encode_record,
)

_RESERVED_AT_ONCE_BYTES_MIN: Final = 64 * 1024
_RESERVED_AT_ONCE_BYTES_MAX: Final = 1024 * 1024

_BLOCK_BYTES: Final = 4096
"""The usual size of file system blocks, which a write takes as a whole."""


class _OpenSegment:
    """The current segment, and the disk space reserved for it."""

    def __init__(self, segment: Segment, file: OpenFile) -> None:
        self.segment = segment
        self.file = file
        self.bytes_ = 0
        self.reserved_bytes = 0
        self.marked = False
        """Whether the mark exists that this segment was written to."""

    def needed_bytes(self, payload_bytes: int) -> int:
        """The length of the file with one more record."""
        header_bytes = 0 if self.bytes_ else HEADER_BYTES
        return self.bytes_ + header_bytes + payload_bytes + RECORD_OVERHEAD_BYTES

    def reserve_up_to(self, end: int) -> None:
        self.file.reserve(self.bytes_, end - self.bytes_)
        self.reserved_bytes = end

    def write(self, data: bytes) -> None:
        try:
            write_all(self.file, data)
        except OSError as error:
            path = self.segment.path
            raise WriteFailed(f"{path} cannot be written at offset {self.bytes_}: {error}") from error
        self.bytes_ += len(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            # Giving space back waits for other changes of the file system.
            if self.reserved_bytes > _whole_blocks(self.bytes_):
                self.file.release(self.bytes_)
        with contextlib.suppress(OSError):
            self.file.close()


class Journal:
    """The segments of one epoch, which continue after record `sequence` of epoch `after`. For one thread.

    `first_file` is its first segment, empty; the next one is created when there is something to write. The
    header is written with the first record. `sequence` is the last record, `synced` the last one known to be
    on the disk.

    After a disk error other than a full disk, the journal cannot continue, because the end of the file is
    unknown.
    """

    def __init__(
        self,
        folder: Path,
        epoch: int,
        *,
        sequence: int,
        after: int,
        first_file: OpenFile,
        segment_bytes_max: int,
        files: Files,
    ) -> None:
        self.sequence = sequence
        self.synced = sequence
        self._folder = folder
        self._epoch = epoch
        self._after = after
        self._files = files
        self._segment_bytes_max = segment_bytes_max
        self.settled = False
        """Whether the header of any segment of this epoch is known to be on the disk."""
        self._first_file: OpenFile | None = first_file
        """None once it is the current segment."""
        self._current: _OpenSegment | None = None
        self._promised = False
        """Whether the current segment has space reserved for the next record."""
        self._number = 0
        """The last segment number tried. A number that failed half-way is not reused."""

    @property
    def unsynced(self) -> bool:
        """Whether any record was appended since the last sync."""
        return self.synced < self.sequence

    @property
    def segment(self) -> Segment | None:
        """The current segment; None if none was needed yet."""
        return self._current.segment if self._current else None

    def missing(self) -> Path | None:
        """Return the current segment if its name is gone or names another file. Raises OSError."""
        current = self._current
        if current is None or current.file.is_named(current.segment.path):
            return None
        return current.segment.path

    @property
    def bytes_(self) -> int:
        """The length of the current segment."""
        return self._current.bytes_ if self._current else 0

    @property
    def needs_segment(self) -> bool:
        """Whether the next record goes to a new segment."""
        if self._current is None:
            return True
        return self._current.bytes_ >= self._segment_bytes_max and not self._promised

    def reserve(self, payload_bytes: int) -> None:
        """Reserve disk space for a record with such a payload. Raises NoRoom, with nothing changed."""
        current = self._the_current()
        needed_bytes = current.needed_bytes(payload_bytes)
        if needed_bytes <= current.reserved_bytes:
            self._promised = True
            return
        if current.bytes_:
            piece_bytes = min(max(current.bytes_, _RESERVED_AT_ONCE_BYTES_MIN), _RESERVED_AT_ONCE_BYTES_MAX)
            wanted_bytes = needed_bytes + piece_bytes
        else:
            # Many owners write only one short record, and then have nothing to give back.
            wanted_bytes = _whole_blocks(needed_bytes)
        try:
            try:
                current.reserve_up_to(wanted_bytes)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                current.reserve_up_to(needed_bytes)
        except OSError as error:
            path = current.segment.path
            raise NoRoom(f"{path} has no room for {payload_bytes} more bytes: {error}") from error
        self._promised = True

    def append(self, payload: bytes, version: int) -> int:
        """Write a record and return its sequence. Raises WriteFailed."""
        current = self._the_current()
        self._promised = False
        sequence = self.sequence + 1
        header = b"" if current.bytes_ else encode_header(current.segment)
        offset = current.bytes_ + len(header)
        current.write(header + encode_record(sequence, version, payload, synced=self.synced, offset=offset))
        self._mark(current)
        self.sequence = sequence
        return sequence

    def settle(self) -> None:
        """Return once the header, which says where this epoch continues, is on the disk.

        Raises WriteFailed, SyncFailed; NoRoom, with nothing changed.
        """
        if not self.settled:
            self.write_header()

    def write_header(self) -> None:
        """Write the current segment's header, which says where the segments before it end; sync it.

        Raises what `settle` raises.
        """
        current = self._the_current()
        if not current.bytes_:
            self.reserve(0)
            current.write(encode_header(current.segment))
            self._mark(current)
        self._sync(current)

    def sync(self) -> None:
        """Return once every record is on the disk. Raises SyncFailed."""
        if self._current is not None and self.unsynced:
            self._sync(self._current)

    def next_segment(self) -> Segment | None:
        """Begin a new segment and return it; None if the current one has no records yet.

        Syncs the current segment first, so that only the last segment of an epoch can be torn. Raises
        SyncFailed; NoRoom or StorageError if a new one is impossible, with nothing changed.
        """
        current = self._current
        if current is not None:
            if self.sequence < current.segment.first:
                return None
            self.sync()
        self._number += 1
        path = self._folder / segment_name(self._epoch, self._number)
        file, self._first_file = self._first_file or self._created(path), None
        self.close()
        segment = Segment(self._epoch, self._number, self.sequence + 1, self._after, path)
        self._current = _OpenSegment(segment, file)
        return segment

    def _created(self, path: Path) -> OpenFile:
        with storage_errors(f"{path} cannot be made"):
            file = self._files.create(path)
        try:
            self._files.sync_folder(self._folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                file.close()
            raise SyncFailed(f"{self._folder} cannot be synced: {error}") from error
        return file

    def close(self) -> None:
        """Give back the unused reserved space and close the file.

        Removes a segment that was never written to, so that it is never taken for an empty one.
        """
        first_file, self._first_file = self._first_file, None
        if first_file is not None:
            close_and_remove(first_file, self._folder / segment_name(self._epoch, FIRST_NUMBER), self._files)
        current, self._current = self._current, None
        if current is None:
            return
        if current.bytes_:
            current.close()
        else:
            close_and_remove(current.file, current.segment.path, self._files)

    def _mark(self, current: _OpenSegment) -> None:
        """Mark in the folder that this segment was written to, so that its loss is noticed.

        The segment's name is on the disk by now, and is not removed before a snapshot replaces it. So no
        crash leaves a mark without its segment. Without a mark, as on a full disk, less loss is noticed.
        """
        if current.marked:
            return
        segment = current.segment
        path = self._folder / mark_name(segment.epoch, segment.number, segment.first)
        with contextlib.suppress(OSError):
            self._files.create(path).close()
            current.marked = True

    def _the_current(self) -> _OpenSegment:
        assert self._current is not None, "a segment is created before anything is written"
        return self._current

    def _sync(self, current: _OpenSegment) -> None:
        try:
            current.file.sync_data()
        except OSError as error:
            path = current.segment.path
            raise SyncFailed(f"{path} cannot be synced after offset {current.bytes_}: {error}") from error
        self.synced = self.sequence
        self.settled = True


def _whole_blocks(bytes_: int) -> int:
    return -(-bytes_ // _BLOCK_BYTES) * _BLOCK_BYTES
