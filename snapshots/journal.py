"""One owner's journal: records appended to its current segment, synced, and carried on in the next one."""

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final

from snapshots.errors import NoRoom, StorageError, SyncFailed, WriteFailed
from snapshots.files import Files, OpenFile, write_all
from snapshots.names import segment_name
from snapshots.segments import (
    HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    SegmentHeader,
    encode_header,
    encode_record,
)
from snapshots.survey import Segment

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_RESERVED_AT_ONCE_BYTES_MIN: Final = 64 * 1024
_RESERVED_AT_ONCE_BYTES_MAX: Final = 1024 * 1024


class Journal:
    """The segments of one epoch, from its claim on. For one thread.

    `claim`, new and empty, is the epoch's first segment. A segment's header is written with its first record,
    so that one without a header never had any. `sequence` is the last record, `synced` the last that is known
    to be on the disk.

    An error of the disk other than in `reserve` ends it: nobody knows what the next write would come after.
    """

    def __init__(
        self,
        folder: Path,
        epoch: int,
        claim: OpenFile,
        *,
        sequence: int,
        segment_bytes_max: int,
        files: Files,
    ) -> None:
        self.sequence = sequence
        self.synced = sequence
        self.segment = Segment(folder / segment_name(epoch, 1), epoch, 1, sequence + 1)
        self.bytes_ = 0
        """What the current segment has."""
        self._folder = folder
        self._files = files
        self._file = claim
        self._segment_bytes_max = segment_bytes_max
        self._reserved_bytes = 0
        self._number = 1
        """The last one that was tried: one that failed half-way is not used again."""

    @property
    def unsynced(self) -> bool:
        """Whether a record was appended since the last sync."""
        return self.synced < self.sequence

    @property
    def full(self) -> bool:
        """Whether the next record belongs into another segment."""
        return self.bytes_ >= self._segment_bytes_max

    def has_reserved(self, payload_bytes: int) -> bool:
        """Whether room was found before for a record with such a payload."""
        return self._needed_bytes(payload_bytes) <= self._reserved_bytes

    def reserve(self, payload_bytes: int) -> None:
        """See to it that a record with such a payload finds room. Raises NoRoom, having changed nothing."""
        if self.has_reserved(payload_bytes):
            return
        needed_bytes = self._needed_bytes(payload_bytes)
        piece_bytes = min(max(self.bytes_, _RESERVED_AT_ONCE_BYTES_MIN), _RESERVED_AT_ONCE_BYTES_MAX)
        try:
            try:
                self._reserve_up_to(needed_bytes + piece_bytes)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                self._reserve_up_to(needed_bytes)
        except OSError as error:
            raise NoRoom(
                f"{self.segment.path} has no room for {payload_bytes} more bytes: {error}"
            ) from error

    def append(self, payload: bytes, version: int) -> int:
        """Write a record, and give its sequence. Raises WriteFailed."""
        sequence = self.sequence + 1
        header = b""
        if not self.bytes_:
            segment = self.segment
            header = encode_header(SegmentHeader(segment.epoch, segment.number, segment.first))
        offset = self.bytes_ + len(header)
        data = header + encode_record(sequence, version, payload, synced=self.synced, offset=offset)
        try:
            write_all(self._file, data)
        except OSError as error:
            raise WriteFailed(
                f"{self.segment.path} cannot be written at offset {self.bytes_}: {error}"
            ) from error
        self.bytes_ += len(data)
        self.sequence = sequence
        return sequence

    def sync(self) -> None:
        """Come back only when every record is on the disk. Raises SyncFailed."""
        if not self.unsynced:
            return
        try:
            self._file.sync_data()
        except OSError as error:
            raise SyncFailed(
                f"{self.segment.path} cannot be synced after offset {self.bytes_}: {error}"
            ) from error
        self.synced = self.sequence

    def next_segment(self, check_owner: Callable[[], None]) -> bool:
        """Go on in a new segment, unless the current one is still empty; whether there is a new one.

        The current one is synced first, so that only the last of an epoch's segments can be torn. Then
        `check_owner` is called: a later owner has seen either this epoch's header or none of its segments.
        Raises SyncFailed; and NoRoom or StorageError where there can be no new one, and has changed nothing
        then.
        """
        if not self.bytes_:
            return False
        self.sync()
        check_owner()
        self._number += 1
        segment = Segment(
            self._folder / segment_name(self.segment.epoch, self._number),
            self.segment.epoch,
            self._number,
            self.sequence + 1,
        )
        try:
            file = self._files.create(segment.path)
        except OSError as error:
            kind = NoRoom if error.errno in NO_ROOM else StorageError
            raise kind(f"{segment.path} cannot be made: {error}") from error
        try:
            self._files.sync_folder(self._folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                file.close()
            raise SyncFailed(f"{self._folder} cannot be synced: {error}") from error
        self.close()
        self.segment, self._file = segment, file
        self.bytes_ = self._reserved_bytes = 0
        return True

    def close(self) -> None:
        """Give the room back that was reserved and not used, and the descriptor."""
        with contextlib.suppress(OSError):
            if self._reserved_bytes > self.bytes_:
                self._file.release(self.bytes_)
        with contextlib.suppress(OSError):
            self._file.close()

    def _needed_bytes(self, payload_bytes: int) -> int:
        header_bytes = 0 if self.bytes_ else HEADER_BYTES
        return self.bytes_ + header_bytes + payload_bytes + RECORD_OVERHEAD_BYTES

    def _reserve_up_to(self, end: int) -> None:
        self._file.reserve(self.bytes_, end - self.bytes_)
        self._reserved_bytes = end
