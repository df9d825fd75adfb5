"""Encodes and decodes page files, without I/O. README.md has the layout.

A page holds data that expires and that every snapshot would otherwise repeat.
"""

import struct
from dataclasses import astuple, dataclass
from typing import Final

from snapshots.format.framing import FileType

PAGE_FILE: Final = FileType(b"\x89RDP\r\n\x1a\n", 1, struct.Struct("<IQQqQI"))
HEADER_BYTES: Final = PAGE_FILE.header_bytes


@dataclass(frozen=True, slots=True)
class PageHeader:
    """The header of a page.

    `epoch` is its writer, `sequence` the last record that it covers. It is useless from `expires_us` on, in
    microseconds since 1970. `version` says how to read the body.
    """

    version: int
    epoch: int
    sequence: int
    expires_us: int
    body_bytes: int
    body_checksum: int


@dataclass(frozen=True, slots=True)
class Page:
    """The body of a page. `version` says how to read it, and is opaque here."""

    version: int
    body: bytes


def encode_header(header: PageHeader) -> bytes:
    """Encode the header of a page."""
    return PAGE_FILE.encode_header(*astuple(header))


def decode_header(data: bytes) -> PageHeader:
    """Decode the header of a page, from the file or its first bytes. Raises Damaged, NewerFormat."""
    return PageHeader(*PAGE_FILE.decode_header(PAGE_FILE.checked(data)))


def decode(data: bytes) -> Page:
    """Decode a whole file. Raises Damaged, NewerFormat."""
    data = PAGE_FILE.checked(data)
    header = PageHeader(*PAGE_FILE.decode_header(data))
    return Page(header.version, PAGE_FILE.body(data, header.body_bytes, header.body_checksum))
