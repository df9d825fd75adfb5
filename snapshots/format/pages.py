"""A page file's bytes, and back: what many snapshots would repeat, and what is needed only until a time.

README.md has the layout.
"""

import struct
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from snapshots.errors import Damaged
from snapshots.format.framing import CHECKSUM, PREFIX, Migration, frame, header_bytes_of, migrated

MAGIC: Final = b"\x89RDP\r\n\x1a\n"
"""Its first byte is no text, and its line ends do not survive a transfer as text."""

FORMAT: Final = 1
"""The format that is written."""

_FIELDS: Final = struct.Struct("<IQQqQI")

HEADER_BYTES: Final = PREFIX.size + _FIELDS.size + CHECKSUM.size

MIGRATIONS: Final[Mapping[int, Migration]] = {}
"""By the format that each one reads. Format 1 is the first."""


@dataclass(frozen=True, slots=True)
class PageHeader:
    """What stands before a page's body.

    `epoch` is its writer's, `sequence` the last record that the page tells of, `expires_us` the time from
    which nobody needs it, in microseconds since 1970. `version` says how the body is to be read.
    """

    version: int
    epoch: int
    sequence: int
    expires_us: int
    body_bytes: int
    body_checksum: int


@dataclass(frozen=True, slots=True)
class Page:
    """A page's body, whose version is its owner's business."""

    version: int
    body: bytes


def now_us() -> int:
    """Give the time by which pages expire."""
    return time.time_ns() // 1_000


def encode_header(header: PageHeader) -> bytes:
    """Give what stands before a body."""
    fields = _FIELDS.pack(
        header.version,
        header.epoch,
        header.sequence,
        header.expires_us,
        header.body_bytes,
        header.body_checksum,
    )
    return frame(MAGIC, FORMAT, fields)


def decode_header(data: bytes) -> PageHeader:
    """Give what the header of a file says. Raises Damaged, NewerFormat."""
    data = migrated(data, MAGIC, FORMAT, MIGRATIONS)
    if header_bytes_of(data) != HEADER_BYTES:
        raise Damaged("its header has another length than its format has")
    return PageHeader(*_FIELDS.unpack_from(data, PREFIX.size))


def decode(data: bytes) -> Page:
    """Give the page that a file holds. Raises Damaged, NewerFormat."""
    data = migrated(data, MAGIC, FORMAT, MIGRATIONS)
    header = decode_header(data)
    body = data[HEADER_BYTES:]
    if len(body) != header.body_bytes:
        raise Damaged(f"its body has {len(body)} bytes and should have {header.body_bytes}")
    if zlib.crc32(body) != header.body_checksum:
        raise Damaged("its body does not fit its checksum")
    return Page(header.version, body)
