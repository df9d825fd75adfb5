"""The frame of every file: a magic, a format number, a header with its own checksum, and maybe a body."""

import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final

from snapshots.errors import Damaged, NewerFormat

PREFIX: Final = struct.Struct("<8sHH")
CHECKSUM: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class FileType:
    """One type of file: its magic, its current format, and the fields of that format's header.

    The magic's first byte is not text, and a transfer as text breaks its line ends.
    """

    magic: bytes
    format: int
    fields: struct.Struct

    @property
    def header_bytes(self) -> int:
        """The length of a header of the current format."""
        return PREFIX.size + self.fields.size + CHECKSUM.size

    def encode_header(self, *values: int) -> bytes:
        """Encode the header with these fields."""
        return frame(self.magic, self.format, self.fields.pack(*values))

    def checked(self, data: bytes) -> bytes:
        """Return a file after checking its header and format. Raises Damaged, NewerFormat."""
        format_ = checked_format(data, self.magic)
        if format_ < self.format:
            raise Damaged(f"it is of format {format_}, which never was")
        if format_ > self.format:
            raise NewerFormat(f"it is of format {format_}; this program knows formats up to {self.format}")
        return data

    def decode_header(self, data: bytes) -> tuple[Any, ...]:
        """Return the header's fields of a file in the current format. Raises Damaged."""
        if PREFIX.unpack_from(data)[2] != self.header_bytes:
            raise Damaged("its header has another length than its format has")
        return self.fields.unpack_from(data, PREFIX.size)

    def body(self, data: bytes, body_bytes: int, checksum: int) -> bytes:
        """Return the bytes after the header. Raises Damaged unless they have this length and CRC-32."""
        body = data[self.header_bytes :]
        if len(body) != body_bytes:
            raise Damaged(f"its body has {len(body)} bytes and should have {body_bytes}")
        if zlib.crc32(body) != checksum:
            raise Damaged("its body does not fit its checksum")
        return body


def frame(magic: bytes, format_: int, fields: bytes) -> bytes:
    """Encode a header: the prefix, the fields, and the checksum of both."""
    header = PREFIX.pack(magic, format_, PREFIX.size + len(fields) + CHECKSUM.size) + fields
    return header + CHECKSUM.pack(zlib.crc32(header))


def checked_format(data: bytes, magic: bytes) -> int:
    """Return a file's format after checking its header. Raises Damaged.

    The prefix and the checksum have their places in every format, so damage is never mistaken for a newer
    format.
    """
    if len(data) < PREFIX.size:
        raise Damaged(f"it ends within its header, after {len(data)} bytes")
    begins, format_, header_bytes = PREFIX.unpack_from(data)
    if begins != magic:
        raise Damaged("it does not begin as such a file does")
    if header_bytes < PREFIX.size + CHECKSUM.size or header_bytes > len(data):
        raise Damaged(f"its header cannot have {header_bytes} bytes")
    end = header_bytes - CHECKSUM.size
    (checksum,) = CHECKSUM.unpack_from(data, end)
    if checksum != zlib.crc32(memoryview(data)[:end]):
        raise Damaged("its header does not fit its checksum")
    return int(format_)
