"""Reads a segment record by record, and classifies its end: as written, torn, or damaged. Without I/O."""

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from snapshots.errors import NewerFormat
from snapshots.format.segments import (
    HEADER_BYTES,
    MARK,
    RECORD_HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    SECTOR_BYTES,
    RecordHeader,
    decode_record_header,
    payload_of,
    zero_sectors,
)

_MARK: Final = re.compile(re.escape(MARK))


class Record(NamedTuple):
    """A record, and the place from which it was read."""

    sequence: int
    version: int
    payload: bytes
    path: Path
    offset: int

    def check_version(self, newest: int) -> None:
        """Raise NewerFormat if its version is later than the newest that the caller knows."""
        if self.version > newest:
            raise NewerFormat(
                f"{self.path} at {self.offset}: the record is of a newer program, with version "
                f"{self.version}; this one knows versions up to {newest}"
            )


class Stop(NamedTuple):
    """The end of reading: the next record, `sequence`, is not at `offset`.

    `reason` says what is there instead; it is None if the file ends there as it was written, or if the limit
    was reached. `torn` says whether an unfinished write explains it.
    """

    offset: int
    sequence: int
    reason: str | None = None
    torn: bool = False


class SegmentReader:
    """The records of a segment from `first` up to, and without, `limit`, in order.

    After the iteration, `stop` is its end, `synced` the last record that any of the records knew to be on the
    disk, and `unsynced_offset` the start of the first record that none of them knew to be there.
    """

    def __init__(self, data: bytes, path: Path, first: int, limit: int | None = None) -> None:
        self._data = data
        self._path = path
        self._limit = limit
        self._unsynced: deque[tuple[int, int]] = deque()
        self.synced = first - 1
        self.stop = Stop(HEADER_BYTES, first)

    @property
    def unsynced_offset(self) -> int | None:
        """The offset of the first record that may not be on the disk; None if all are."""
        return self._unsynced[0][1] if self._unsynced else None

    def __iter__(self) -> Iterator[Record]:
        data, offset, sequence = self._data, self.stop.offset, self.stop.sequence
        while offset < len(data) and (self._limit is None or sequence < self._limit):
            header = decode_record_header(data, offset)
            payload = payload_of(data, offset, header) if header and header.sequence == sequence else None
            if header is None or payload is None:
                self.stop = classify(data, offset, sequence)
                return
            self._note(header.sequence, offset, header.synced)
            record = Record(sequence, header.version, payload, self._path, offset)
            offset += header.bytes_
            sequence += 1
            self.stop = Stop(offset, sequence)
            yield record

    def _note(self, sequence: int, offset: int, synced: int) -> None:
        self.synced = max(self.synced, synced)
        self._unsynced.append((sequence, offset))
        while self._unsynced and self._unsynced[0][0] <= self.synced:
            self._unsynced.popleft()


def classify(data: bytes, offset: int, sequence: int) -> Stop:
    """Return why there is no whole record `sequence` at an offset, and whether the write was torn."""
    reason, torn = _look(data, offset, sequence)
    if torn:
        witness = _witness(data, offset, sequence)
        if witness is not None:
            later, at = witness
            reason = f"{reason}, and record {later} at offset {at} confirms that it was synced"
            torn = False
    return Stop(offset, sequence, reason, torn)


def header_is_torn(data: bytes) -> bool:
    """Whether an unfinished write explains a segment's damaged header."""
    return len(data) < HEADER_BYTES or not any(data[:SECTOR_BYTES])


def last_known_synced(data: bytes) -> int:
    """Return the last record that any record of a file knew to be on the disk; 0 if there is none."""
    return max((header.synced for _, header in _headers(data, HEADER_BYTES)), default=0)


def _look(data: bytes, offset: int, sequence: int) -> tuple[str, bool]:
    rest_bytes = len(data) - offset
    place = f"at offset {offset}, record {sequence}"
    if rest_bytes < RECORD_OVERHEAD_BYTES:
        return f"{place} ends with the file after {rest_bytes} bytes", True
    header = decode_record_header(data, offset)
    if header is None:
        torn = zero_sectors(data, offset, offset + RECORD_HEADER_BYTES) > 0
        return f"{place} has no header that fits its checksum", torn
    if header.sequence != sequence:
        return f"{place} is expected, and record {header.sequence} is there", False
    if header.bytes_ > rest_bytes:
        return f"{place} ends with the file after {rest_bytes} of {header.bytes_} bytes", True
    zeros = zero_sectors(data, offset, offset + header.bytes_)
    return f"{place} does not fit its checksum", zeros > header.blank_sectors


def _witness(data: bytes, offset: int, sequence: int) -> tuple[int, int] | None:
    """Find a later record that knew this one to be on the disk: its sequence and its offset."""
    for at, header in _headers(data, offset):
        # A record knows only of records before it, so this one is later.
        if header.synced >= sequence:
            return header.sequence, at
    return None


def _headers(data: bytes, offset: int) -> Iterator[tuple[int, RecordHeader]]:
    for mark in _MARK.finditer(data, offset):
        header = decode_record_header(data, mark.start())
        if header is not None:
            yield mark.start(), header
