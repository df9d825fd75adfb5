"""A journal segment's bytes, and back: its header and its records. Pure; README.md has the layout."""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from snapshots.errors import Damaged
from snapshots.format.framing import CHECKSUM, PREFIX, Migration, frame, header_bytes_of, migrated

MAGIC: Final = b"\x89RDJ\r\n\x1a\n"
"""Its first byte is no text, and its line ends do not survive a transfer as text."""

FORMAT: Final = 1
"""The format that is written."""

MARK: Final = b"\xb5rec"
"""How each record begins. No byte of it is one flipped bit away from zero, nor are those of END_MARK: a
sector with some of either in it was not written as zeros, and one flipped bit does not make it so."""

END_MARK: Final = b"\xb6end"
"""How each record ends."""

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all."""

_FIELDS: Final = struct.Struct("<QIQQ")
_RECORD_FIELDS: Final = struct.Struct("<4sIQQHHI")

HEADER_BYTES: Final = PREFIX.size + _FIELDS.size + CHECKSUM.size
RECORD_HEADER_BYTES: Final = _RECORD_FIELDS.size + CHECKSUM.size
RECORD_OVERHEAD_BYTES: Final = RECORD_HEADER_BYTES + len(END_MARK)
PAYLOAD_BYTES_MAX: Final = 2**32 - 1
_BLANK_SECTORS_MAX: Final = 2**16 - 1

MIGRATIONS: Final[Mapping[int, Migration]] = {}
"""By the format that each one reads. Format 1 is the first."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What stands before a segment's records: whose it is, its number among theirs, its first record.

    `after` is the epoch whose records the first of this epoch's come after; those between the two are void.
    """

    epoch: int
    number: int
    first: int
    after: int


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """What stands before a record's payload.

    `synced` is the last record that was known to be on the disk when this one was written, and
    `blank_sectors` how many whole sectors of it hold fewer than two bits.
    """

    payload_bytes: int
    sequence: int
    synced: int
    version: int
    blank_sectors: int
    payload_checksum: int

    @property
    def bytes_(self) -> int:
        """What the whole record takes."""
        return self.payload_bytes + RECORD_OVERHEAD_BYTES


def encode_header(header: SegmentHeader) -> bytes:
    """Give the bytes that stand before a segment's records."""
    return frame(MAGIC, FORMAT, _FIELDS.pack(header.epoch, header.number, header.first, header.after))


def decode_header(data: bytes) -> SegmentHeader:
    """Give what the header of a segment says. Raises Damaged, NewerFormat."""
    data = current(data)
    if header_bytes_of(data) != HEADER_BYTES:
        raise Damaged("its header has another length than its format has")
    return SegmentHeader(*_FIELDS.unpack_from(data, PREFIX.size))


def current(data: bytes, migrations: Mapping[int, Migration] = MIGRATIONS) -> bytes:
    """Give a segment in the format of now. Raises Damaged, NewerFormat."""
    return migrated(data, MAGIC, FORMAT, migrations)


def encode_record(sequence: int, version: int, payload: bytes, *, synced: int, offset: int) -> bytes:
    """Give the bytes of a record that is to stand at this offset of its file."""
    assert synced < sequence, "a record is written before it is synced"
    assert len(payload) <= PAYLOAD_BYTES_MAX
    blank = _blank_sectors(payload, offset + RECORD_HEADER_BYTES)
    fields = _RECORD_FIELDS.pack(MARK, len(payload), sequence, synced, version, blank, zlib.crc32(payload))
    return b"".join((fields, CHECKSUM.pack(zlib.crc32(fields)), payload, END_MARK))


def decode_record_header(data: bytes, offset: int) -> RecordHeader | None:
    """Give the header of the record that begins at an offset; None where there is no whole one."""
    if len(data) - offset < RECORD_HEADER_BYTES or not data.startswith(MARK, offset):
        return None
    end = offset + _RECORD_FIELDS.size
    if CHECKSUM.unpack_from(data, end)[0] != zlib.crc32(memoryview(data)[offset:end]):
        return None
    return RecordHeader(*_RECORD_FIELDS.unpack_from(data, offset)[1:])


def payload_of(data: bytes, offset: int, header: RecordHeader) -> bytes | None:
    """Give the payload of the record at an offset; None where it is not what was written."""
    begin = offset + RECORD_HEADER_BYTES
    end = begin + header.payload_bytes
    payload = data[begin:end]
    if zlib.crc32(payload) != header.payload_checksum or not data.startswith(END_MARK, end):
        return None
    return payload


def zero_sectors(data: bytes, begin: int, end: int) -> int:
    """Count the sectors from `begin` to `end` that are all zeros, to their ends or that of the file.

    Of the first one only the part from `begin` on counts: what stands before it was written earlier.
    """
    count = 0
    while begin < min(end, len(data)):
        sector_end = min(begin - begin % SECTOR_BYTES + SECTOR_BYTES, len(data))
        count += data.count(0, begin, sector_end) == sector_end - begin
        begin = sector_end
    return count


def _blank_sectors(payload: bytes, offset: int) -> int:
    """Count the whole sectors of a payload, which stands at this offset, that hold fewer than two bits."""
    # All but one byte of such a sector are zeros. Hardly any payload has so many in a row.
    if bytes(SECTOR_BYTES // 2 - 1) not in payload:
        return 0
    sectors = range(-offset % SECTOR_BYTES, len(payload) - SECTOR_BYTES + 1, SECTOR_BYTES)
    blank = sum(int.from_bytes(payload[at : at + SECTOR_BYTES]).bit_count() < 2 for at in sectors)  # noqa: PLR2004
    return min(blank, _BLANK_SECTORS_MAX)
