"""Encodes and decodes journal segments: header and records, without I/O. README.md has the layout."""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from snapshots.format.framing import CHECKSUM, FileType

SEGMENT_FILE: Final = FileType(b"\x89RDJ\r\n\x1a\n", 1, struct.Struct("<QIQQ"))

MARK: Final = b"\xb5rec"
"""The first bytes of each record. Each byte of MARK and END_MARK has more than one bit set, so that a single
flipped bit cannot make a sector with any of them look like zeros."""

END_MARK: Final = b"\xb6end"
"""The last bytes of each record."""

SECTOR_BYTES: Final = 512
"""The unit that a disk writes as a whole or not at all."""

_RECORD_FIELDS: Final = struct.Struct("<4sIQQHHI")

HEADER_BYTES: Final = SEGMENT_FILE.header_bytes
RECORD_HEADER_BYTES: Final = _RECORD_FIELDS.size + CHECKSUM.size
RECORD_OVERHEAD_BYTES: Final = RECORD_HEADER_BYTES + len(END_MARK)
_BLANK_SECTORS_MAX: Final = 2**16 - 1


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header of a segment: its writer's epoch, its number in that epoch, the number of its first record.

    `after` is the epoch whose records this epoch continues; the epochs between the two are void.
    """

    epoch: int
    number: int
    first: int
    after: int


@dataclass(frozen=True, slots=True)
class Segment(SegmentHeader):
    """A segment with a whole header, and its file. `first` may not have been written yet."""

    path: Path


class RecordHeader(NamedTuple):
    """The header of a record.

    `synced` is the last record known to be on the disk when this one was written. `blank_sectors` counts
    the whole sectors of the payload that hold fewer than two bits.
    """

    payload_bytes: int
    sequence: int
    synced: int
    version: int
    blank_sectors: int
    payload_checksum: int

    @property
    def bytes_(self) -> int:
        """The length of the whole record."""
        return self.payload_bytes + RECORD_OVERHEAD_BYTES


def encode_header(header: SegmentHeader) -> bytes:
    """Encode the header of a segment."""
    return SEGMENT_FILE.encode_header(header.epoch, header.number, header.first, header.after)


def decode_header(data: bytes) -> SegmentHeader:
    """Decode the header of a segment, from the file or its first bytes. Raises Damaged, NewerFormat."""
    return SegmentHeader(*SEGMENT_FILE.decode_header(SEGMENT_FILE.checked(data)))


def encode_record(sequence: int, version: int, payload: bytes, *, synced: int, offset: int) -> bytes:
    """Encode a record that will begin at this offset of its file."""
    assert synced < sequence, "a record is written before it is synced"
    blank = _blank_sectors(payload, offset + RECORD_HEADER_BYTES)
    fields = _RECORD_FIELDS.pack(MARK, len(payload), sequence, synced, version, blank, zlib.crc32(payload))
    return b"".join((fields, CHECKSUM.pack(zlib.crc32(fields)), payload, END_MARK))


def decode_record_header(data: bytes, offset: int) -> RecordHeader | None:
    """Decode the header of the record at an offset; None if there is no whole one."""
    if len(data) - offset < RECORD_HEADER_BYTES or not data.startswith(MARK, offset):
        return None
    end = offset + _RECORD_FIELDS.size
    (checksum,) = CHECKSUM.unpack_from(data, end)
    if checksum != zlib.crc32(memoryview(data)[offset:end]):
        return None
    return RecordHeader(*_RECORD_FIELDS.unpack_from(data, offset)[1:])


def payload_of(data: bytes, offset: int, header: RecordHeader) -> bytes | None:
    """Return the payload of the record at an offset; None if it fails its checksum or has no end mark."""
    begin = offset + RECORD_HEADER_BYTES
    end = begin + header.payload_bytes
    payload = data[begin:end]
    if zlib.crc32(payload) != header.payload_checksum or not data.startswith(END_MARK, end):
        return None
    return payload


def zero_sectors(data: bytes, begin: int, end: int) -> int:
    """Count the sectors between two offsets that are all zeros, to their ends or the end of the file.

    Of the first sector only the part from `begin` on counts, because the part before was written earlier.
    """
    count = 0
    while begin < min(end, len(data)):
        sector_end = min(begin - begin % SECTOR_BYTES + SECTOR_BYTES, len(data))
        count += data.count(0, begin, sector_end) == sector_end - begin
        begin = sector_end
    return count


def _blank_sectors(payload: bytes, offset: int) -> int:
    """Count the whole sectors of a payload at this offset that hold fewer than two bits."""
    # At most one byte of such a sector is not zero, so half of it is zeros in a row, which is rare.
    if bytes(SECTOR_BYTES // 2) not in payload:
        return 0
    sectors = range(-offset % SECTOR_BYTES, len(payload) - SECTOR_BYTES + 1, SECTOR_BYTES)
    blank = sum(int.from_bytes(payload[at : at + SECTOR_BYTES]).bit_count() < 2 for at in sectors)  # noqa: PLR2004
    return min(blank, _BLANK_SECTORS_MAX)
