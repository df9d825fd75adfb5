"""A snapshot file's bytes, and back: framing, checksums, format versions. Pure; README.md has the layout."""

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from snapshots.errors import Damaged, NewerFormat

MAGIC: Final = b"\x89RDS\r\n\x1a\n"
"""Its first byte is no text, and its line ends do not survive a transfer as text."""

FORMAT: Final = 1
"""The format that is written."""

_PREFIX: Final = struct.Struct("<8sHH")
_FIELDS: Final = struct.Struct("<IQQQI")
_CHECKSUM: Final = struct.Struct("<I")

HEADER_BYTES: Final = _PREFIX.size + _FIELDS.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one file holds.

    `epoch` counts the folder's owners and `sequence` what was written to it; both only ever grow. `version`
    says how `body` is to be read, and is the body owner's business.
    """

    epoch: int
    sequence: int
    version: int
    body: bytes


Migration = Callable[[bytes], bytes]
"""Takes a whole file of one format, checks it, and gives the same as a file of the next format."""

MIGRATIONS: Final[Mapping[int, Migration]] = {}
"""By the format that each one reads. Format 1 is the first."""


def encode(snapshot: Snapshot) -> bytes:
    """Give the bytes of the file."""
    assert snapshot.epoch >= 0
    assert snapshot.sequence >= 0
    header = _PREFIX.pack(MAGIC, FORMAT, HEADER_BYTES) + _FIELDS.pack(
        snapshot.version, snapshot.epoch, snapshot.sequence, len(snapshot.body), zlib.crc32(snapshot.body)
    )
    return b"".join((header, _CHECKSUM.pack(zlib.crc32(header)), snapshot.body))


def decode(data: bytes, migrations: Mapping[int, Migration] = MIGRATIONS) -> Snapshot:
    """Give what the bytes of a file say.

    Raises Damaged where they are not exactly what some `encode` gave, and NewerFormat where they are whole
    but of a format past `FORMAT`.
    """
    format_ = _checked_format(data)
    while format_ < FORMAT:
        if format_ not in migrations:
            raise Damaged(f"it is of format {format_}, which never was")
        data = migrations[format_](data)
        newer = _checked_format(data)
        assert newer > format_, "a migration leads to a newer format"
        format_ = newer
    if format_ > FORMAT:
        raise NewerFormat(f"it is of format {format_}, and this program knows formats up to {FORMAT}")
    return _decode_current(data)


def _checked_format(data: bytes) -> int:
    """Give the format that a file claims, once its header is known to be whole.

    The prefix and the checksum at the header's end are the same in every format, so that a damaged file is
    never taken for one of a newer format.
    """
    if len(data) < _PREFIX.size:
        raise Damaged(f"it ends within its header, after {len(data)} bytes")
    magic, format_, header_bytes = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise Damaged("it does not begin as a snapshot does")
    if header_bytes < _PREFIX.size + _CHECKSUM.size or header_bytes > len(data):
        raise Damaged(f"its header's length of {header_bytes} bytes cannot be")
    end = header_bytes - _CHECKSUM.size
    (checksum,) = _CHECKSUM.unpack_from(data, end)
    if checksum != zlib.crc32(memoryview(data)[:end]):
        raise Damaged("its header does not fit its checksum")
    return int(format_)


def _decode_current(data: bytes) -> Snapshot:
    if _PREFIX.unpack_from(data)[2] != HEADER_BYTES:
        raise Damaged("its header has another length than its format has")
    version, epoch, sequence, body_bytes, checksum = _FIELDS.unpack_from(data, _PREFIX.size)
    body = memoryview(data)[HEADER_BYTES:]
    if len(body) != body_bytes:
        raise Damaged(f"its body has {len(body)} bytes and should have {body_bytes}")
    if zlib.crc32(body) != checksum:
        raise Damaged("its body does not fit its checksum")
    return Snapshot(epoch=epoch, sequence=sequence, version=version, body=bytes(body))
