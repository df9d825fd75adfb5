"""How every file here begins, in every format: magic, format, the header's length, at its end a checksum."""

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Final

from snapshots.errors import Damaged, NewerFormat

PREFIX: Final = struct.Struct("<8sHH")
CHECKSUM: Final = struct.Struct("<I")

Migration = Callable[[bytes], bytes]
"""Takes a whole file of one format, checks it, and gives the same as a file of the next format."""


def frame(magic: bytes, format_: int, fields: bytes) -> bytes:
    """Give a header with these fields, its checksum at the end."""
    header = PREFIX.pack(magic, format_, PREFIX.size + len(fields) + CHECKSUM.size) + fields
    return header + CHECKSUM.pack(zlib.crc32(header))


def checked_format(data: bytes, magic: bytes) -> int:
    """Give the format that a file claims, once its header is known to be whole.

    The prefix and the checksum at the header's end are the same in every format, so that a damaged file is
    never taken for one of a newer format. Raises Damaged.
    """
    if len(data) < PREFIX.size:
        raise Damaged(f"it ends within its header, after {len(data)} bytes")
    begins, format_, header_bytes = PREFIX.unpack_from(data)
    if begins != magic:
        raise Damaged("it does not begin as such a file does")
    if header_bytes < PREFIX.size + CHECKSUM.size or header_bytes > len(data):
        raise Damaged(f"its header's length of {header_bytes} bytes cannot be")
    end = header_bytes - CHECKSUM.size
    (checksum,) = CHECKSUM.unpack_from(data, end)
    if checksum != zlib.crc32(memoryview(data)[:end]):
        raise Damaged("its header does not fit its checksum")
    return int(format_)


def migrated(data: bytes, magic: bytes, current: int, migrations: Mapping[int, Migration]) -> bytes:
    """Give a file as one of the current format. Raises Damaged, and NewerFormat past `current`."""
    format_ = checked_format(data, magic)
    while format_ < current:
        if format_ not in migrations:
            raise Damaged(f"it is of format {format_}, which never was")
        data = migrations[format_](data)
        newer = checked_format(data, magic)
        assert newer > format_, "a migration leads to a newer format"
        format_ = newer
    if format_ > current:
        raise NewerFormat(f"it is of format {format_}, and this program knows formats up to {current}")
    return data


def header_bytes_of(data: bytes) -> int:
    """Give the length that a file's header says it has; of a file whose header was checked."""
    return int(PREFIX.unpack_from(data)[2])
