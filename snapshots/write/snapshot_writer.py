"""Writes a snapshot or a page atomically: whole, under its name and on the disk, or not at all."""

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from snapshots.files import Files, OpenFile, write_all
from snapshots.format import pages, snapshot_file
from snapshots.format.file_names import page_name, snapshot_name, unfinished_name

_PIECE_BYTES: Final = 64 * 1024

Header = Callable[[int, int], bytes]
"""Encodes the header of a body with this length and CRC-32."""


class SnapshotWriter:
    """Writes the snapshots and pages of one epoch.

    Each file is written under a temporary name, synced, and renamed; `check_latest` is called before the
    rename. Both methods raise OSError and what `check_latest` raises; the folder is then as usable as before.
    """

    def __init__(
        self, folder: Path, epoch: int, files: Files, check_latest: Callable[[], None] = lambda: None
    ) -> None:
        self._folder = folder
        self._epoch = epoch
        self._files = files
        self._check_latest = check_latest

    def save_snapshot(self, chunks: Iterable[bytes], *, version: int, sequence: int) -> int:
        """Write the snapshot that includes records up to `sequence`; return its size in bytes."""

        def header(body_bytes: int, checksum: int) -> bytes:
            return snapshot_file.encode_header(self._epoch, sequence, version, body_bytes, checksum)

        return self._save(snapshot_name(sequence), chunks, header)

    def save_page(self, body: bytes, *, version: int, sequence: int, expires_us: int) -> None:
        """Write the page that covers records up to `sequence`."""

        def header(body_bytes: int, checksum: int) -> bytes:
            fields = pages.PageHeader(version, self._epoch, sequence, expires_us, body_bytes, checksum)
            return pages.encode_header(fields)

        self._save(page_name(sequence), [body], header)

    def _save(self, name: str, chunks: Iterable[bytes], header: Header) -> int:
        unfinished = self._folder / unfinished_name(name, self._epoch)
        file = self._create(unfinished)
        try:
            try:
                file_bytes = _write(file, chunks, header)
                file.sync()
            finally:
                file.close()
            self._check_latest()
            try:
                self._files.rename(unfinished, self._folder / name)
            except FileNotFoundError:
                # Only a later owner removes the unfinished file.
                self._check_latest()
                raise
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.remove(unfinished)
            raise
        self._files.sync_folder(self._folder)
        return file_bytes

    def _create(self, unfinished: Path) -> OpenFile:
        try:
            return self._files.create(unfinished)
        except FileExistsError:
            # An earlier attempt of this owner failed and could not remove the file.
            self._files.remove(unfinished)
            return self._files.create(unfinished)


def _write(file: OpenFile, chunks: Iterable[bytes], header: Header) -> int:
    # The header holds the body's length and checksum, which are known only at the end.
    blank = bytes(len(header(0, 0)))
    write_all(file, blank)
    body_bytes = checksum = 0
    for piece in _pieces(chunks):
        write_all(file, piece)
        body_bytes += len(piece)
        checksum = zlib.crc32(piece, checksum)
    file.write_start(header(body_bytes, checksum))
    return len(blank) + body_bytes


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Join chunks into pieces that are large enough for a write."""
    joined: list[bytes] = []
    size = 0
    for chunk in chunks:
        joined.append(chunk)
        size += len(chunk)
        if size >= _PIECE_BYTES:
            yield b"".join(joined)
            joined, size = [], 0
    if joined:
        yield b"".join(joined)
