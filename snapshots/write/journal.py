"""One owner's journal: records appended to its current segment, synced, and carried on in the next one."""

import contextlib
import errno
from pathlib import Path
from typing import Final

from snapshots.errors import NoRoom, StorageError, SyncFailed, WriteFailed
from snapshots.files import Files, OpenFile, write_all
from snapshots.format.file_names import segment_name
from snapshots.format.segments import (
    HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    SegmentHeader,
    encode_header,
    encode_record,
)
from snapshots.takeover.survey import Segment

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_RESERVED_AT_ONCE_BYTES_MIN: Final = 64 * 1024
_RESERVED_AT_ONCE_BYTES_MAX: Final = 1024 * 1024


class _OpenSegment:
    """A segment that records are appended to, and the room that is reserved for it."""

    def __init__(self, segment: Segment, file: OpenFile) -> None:
        self.segment = segment
        self.file = file
        self.bytes_ = 0
        self.reserved_bytes = 0

    def needed_bytes(self, payload_bytes: int) -> int:
        """How long the file is with one more record."""
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
            if self.reserved_bytes > self.bytes_:
                self.file.release(self.bytes_)
        with contextlib.suppress(OSError):
            self.file.close()


class Journal:
    """The segments of one epoch, which come after record `sequence` of epoch `after`. For one thread.

    A segment is made when there is something to write to it, and its header is written with that. `sequence`
    is the last record, `synced` the last one that is known to be on the disk.

    An error of the disk other than for want of room ends it: nobody knows what the next write would come
    after.
    """

    def __init__(
        self,
        folder: Path,
        epoch: int,
        *,
        sequence: int,
        after: int,
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
        self._current: _OpenSegment | None = None
        self._settled = False
        """Whether a segment before the current one, or this, is known to have its header on the disk."""
        self._promised = False
        """Whether room was found in the current segment for the next record."""
        self._number = 0
        """The last one that was tried: one that failed half-way is not used again."""

    @property
    def unsynced(self) -> bool:
        """Whether a record was appended since the last sync."""
        return self.synced < self.sequence

    @property
    def segment(self) -> Segment | None:
        """The current segment; None where none was needed yet."""
        return self._current.segment if self._current else None

    def missing(self) -> Path | None:
        """Give the current segment where its name is gone, or another file's. Raises OSError."""
        current = self._current
        if current is None or current.file.is_named(current.segment.path):
            return None
        return current.segment.path

    @property
    def bytes_(self) -> int:
        """What the current segment has."""
        return self._current.bytes_ if self._current else 0

    @property
    def needs_segment(self) -> bool:
        """Whether the next record belongs into a segment that is not there yet."""
        if self._current is None:
            return True
        return self._current.bytes_ >= self._segment_bytes_max and not self._promised

    def reserve(self, payload_bytes: int) -> None:
        """See to it that a record with such a payload finds room. Raises NoRoom, having changed nothing."""
        current = self._the_current()
        needed_bytes = current.needed_bytes(payload_bytes)
        if needed_bytes <= current.reserved_bytes:
            self._promised = True
            return
        piece_bytes = min(max(current.bytes_, _RESERVED_AT_ONCE_BYTES_MIN), _RESERVED_AT_ONCE_BYTES_MAX)
        try:
            try:
                current.reserve_up_to(needed_bytes + piece_bytes)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                current.reserve_up_to(needed_bytes)
        except OSError as error:
            path = current.segment.path
            raise NoRoom(f"{path} has no room for {payload_bytes} more bytes: {error}") from error
        self._promised = True

    def append(self, payload: bytes, version: int) -> int:
        """Write a record, and give its sequence. Raises WriteFailed."""
        current = self._the_current()
        self._promised = False
        sequence = self.sequence + 1
        header = b"" if current.bytes_ else self._header(current)
        offset = current.bytes_ + len(header)
        current.write(header + encode_record(sequence, version, payload, synced=self.synced, offset=offset))
        self.sequence = sequence
        return sequence

    def settle(self) -> None:
        """Make durable what the journal comes after, before it has a record of its own.

        Raises WriteFailed, SyncFailed; NoRoom where there is none, and has changed nothing then.
        """
        current = self._the_current()
        if not self._settled and not current.bytes_:
            self.reserve(0)
            current.write(self._header(current))
            self._sync(current)
            self._settled = True

    def sync(self) -> None:
        """Come back only when every record is on the disk. Raises SyncFailed."""
        if self._current is not None and self.unsynced:
            self._sync(self._current)
            self.synced = self.sequence

    def next_segment(self) -> Segment | None:
        """Go on in a new segment, and give that; None where the current one has no records yet.

        The current one is synced first, so that only the last of an epoch's segments can be torn. Raises
        SyncFailed; and NoRoom or StorageError where there can be no new one, and has changed nothing then.
        """
        current = self._current
        if current is not None:
            if self.sequence < current.segment.first:
                return None
            self.sync()
            self._settled = True
        self._number += 1
        path = self._folder / segment_name(self._epoch, self._number)
        try:
            file = self._files.create(path)
        except OSError as error:
            kind = NoRoom if error.errno in NO_ROOM else StorageError
            raise kind(f"{path} cannot be made: {error}") from error
        try:
            self._files.sync_folder(self._folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                file.close()
            raise SyncFailed(f"{self._folder} cannot be synced: {error}") from error
        self.close()
        segment = Segment(path, self._epoch, self._number, self.sequence + 1, self._after)
        self._current = _OpenSegment(segment, file)
        return segment

    def close(self) -> None:
        """Give the room back that was reserved and not used, and the descriptor.

        A segment that was made and never written to goes too: nobody else may ever take it for empty.
        """
        current, self._current = self._current, None
        if current is not None:
            current.close()
            if not current.bytes_:
                with contextlib.suppress(OSError):
                    self._files.remove(current.segment.path)

    def _the_current(self) -> _OpenSegment:
        assert self._current is not None, "there is a segment before there is something to write to it"
        return self._current

    def _header(self, current: _OpenSegment) -> bytes:
        segment = current.segment
        return encode_header(SegmentHeader(segment.epoch, segment.number, segment.first, segment.after))

    def _sync(self, current: _OpenSegment) -> None:
        try:
            current.file.sync_data()
        except OSError as error:
            path = current.segment.path
            raise SyncFailed(f"{path} cannot be synced after offset {current.bytes_}: {error}") from error
