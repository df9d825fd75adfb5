"""Encodes and decodes snapshot files, without I/O. README.md has the layout."""

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from snapshots.errors import Damaged
from snapshots.format.framing import PREFIX, FileType, checked_format

SNAPSHOT_FILE: Final = FileType(b"\x89RDS\r\n\x1a\n", 1, struct.Struct("<IQQQI"))
HEADER_BYTES: Final = SNAPSHOT_FILE.header_bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of one snapshot file.

    `epoch` is its writer, `sequence` the last record that it includes. Both only grow. `version` says how
    to read `body`, which is opaque here.
    """

    epoch: int
    sequence: int
    version: int
    body: bytes


def encode(snapshot: Snapshot) -> bytes:
    """Encode a whole file."""
    body = snapshot.body
    header = encode_header(snapshot.epoch, snapshot.sequence, snapshot.version, len(body), zlib.crc32(body))
    return header + body


def encode_header(epoch: int, sequence: int, version: int, body_bytes: int, body_checksum: int) -> bytes:
    """Encode the header of a body with this length and CRC-32."""
    return SNAPSHOT_FILE.encode_header(version, epoch, sequence, body_bytes, body_checksum)


def decode(data: bytes) -> Snapshot:
    """Decode a whole file.

    Raises Damaged unless it is exactly what `encode` returns, NewerFormat if it is whole but of a later
    format.
    """
    data = SNAPSHOT_FILE.checked(data)
    version, epoch, sequence, body_bytes, checksum = SNAPSHOT_FILE.decode_header(data)
    return Snapshot(epoch, sequence, version, SNAPSHOT_FILE.body(data, body_bytes, checksum))


def epoch_of(start: bytes) -> int | None:
    """Return the epoch of the file that begins with these bytes; None if its header cannot be read."""
    try:
        format_ = checked_format(start, SNAPSHOT_FILE.magic)
    except Damaged:
        return None
    if format_ != SNAPSHOT_FILE.format:
        return None
    return int(SNAPSHOT_FILE.fields.unpack_from(start, PREFIX.size)[1])
