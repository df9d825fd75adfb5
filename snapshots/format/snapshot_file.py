"""A snapshot file's bytes, and back. Pure; README.md has the layout."""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from snapshots.errors import Damaged
from snapshots.format.framing import (
    CHECKSUM,
    PREFIX,
    Migration,
    checked_format,
    frame,
    header_bytes_of,
    migrated,
)

MAGIC: Final = b"\x89RDS\r\n\x1a\n"
"""Its first byte is no text, and its line ends do not survive a transfer as text."""

FORMAT: Final = 1
"""The format that is written."""

_FIELDS: Final = struct.Struct("<IQQQI")

HEADER_BYTES: Final = PREFIX.size + _FIELDS.size + CHECKSUM.size


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one file holds.

    `epoch` says which owner of the folder wrote it, and `sequence` which record is the last that it includes;
    both only ever grow. `version` says how `body` is to be read, and is the body owner's business.
    """

    epoch: int
    sequence: int
    version: int
    body: bytes


MIGRATIONS: Final[Mapping[int, Migration]] = {}
"""By the format that each one reads. Format 1 is the first."""


def encode(snapshot: Snapshot) -> bytes:
    """Give the bytes of the file."""
    header = encode_header(
        snapshot.epoch, snapshot.sequence, snapshot.version, len(snapshot.body), zlib.crc32(snapshot.body)
    )
    return header + snapshot.body


def encode_header(epoch: int, sequence: int, version: int, body_bytes: int, body_checksum: int) -> bytes:
    """Give what stands before a body of this length and checksum."""
    assert epoch >= 0
    assert sequence >= 0
    return frame(MAGIC, FORMAT, _FIELDS.pack(version, epoch, sequence, body_bytes, body_checksum))


def decode(data: bytes, migrations: Mapping[int, Migration] = MIGRATIONS) -> Snapshot:
    """Give what the bytes of a file say.

    Raises Damaged where they are not exactly what some `encode` gave, and NewerFormat where they are whole
    but of a format past `FORMAT`.
    """
    data = migrated(data, MAGIC, FORMAT, migrations)
    if header_bytes_of(data) != HEADER_BYTES:
        raise Damaged("its header has another length than its format has")
    version, epoch, sequence, body_bytes, checksum = _FIELDS.unpack_from(data, PREFIX.size)
    body = memoryview(data)[HEADER_BYTES:]
    if len(body) != body_bytes:
        raise Damaged(f"its body has {len(body)} bytes and should have {body_bytes}")
    if zlib.crc32(body) != checksum:
        raise Damaged("its body does not fit its checksum")
    return Snapshot(epoch=epoch, sequence=sequence, version=version, body=bytes(body))


def epoch_of(start: bytes) -> int | None:
    """Give the epoch of the file that begins so; None where its header does not tell."""
    try:
        format_ = checked_format(start, MAGIC)
    except Damaged:
        return None
    return int(_FIELDS.unpack_from(start, PREFIX.size)[1]) if format_ == FORMAT else None
