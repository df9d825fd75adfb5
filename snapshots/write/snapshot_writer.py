"""Writes a snapshot or a page atomically: whole, under its name and on the disk, or not at all."""

import contextlib
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from snapshots.files import Files, OpenFile, write_all
from snapshots.format import pages, snapshot_file
from snapshots.format.file_names import page_name, snapshot_name, unfinished_name


def save_snapshot(
    folder: Path,
    chunks: Iterable[bytes],
    *,
    epoch: int,
    sequence: int,
    version: int,
    files: Files,
    check_latest: Callable[[], None],
) -> int:
    """Write the snapshot that includes records up to `sequence`; return its size in bytes.

    Calls `check_latest` when all is written and the file is about to get its name. Raises OSError and what
    `check_latest` raises; the folder is then as usable as before.
    """

    def header(body_bytes: int, checksum: int) -> bytes:
        return snapshot_file.encode_header(epoch, sequence, version, body_bytes, checksum)

    return _AtomicFile(folder / snapshot_name(sequence), epoch, files).save(chunks, header, check_latest)


def save_page(
    folder: Path,
    body: bytes,
    *,
    epoch: int,
    sequence: int,
    version: int,
    expires_us: int,
    files: Files,
    check_latest: Callable[[], None],
) -> None:
    """Write the page that covers records up to `sequence`, as `save_snapshot` writes a snapshot."""

    def header(body_bytes: int, checksum: int) -> bytes:
        fields = pages.PageHeader(version, epoch, sequence, expires_us, body_bytes, checksum)
        return pages.encode_header(fields)

    _AtomicFile(folder / page_name(sequence), epoch, files).save([body], header, check_latest)


class _AtomicFile:
    """A file that is written under another name, synced, and then renamed."""

    def __init__(self, path: Path, epoch: int, files: Files) -> None:
        self._path = path
        self._unfinished = path.with_name(unfinished_name(path.name, epoch))
        self._files = files

    def save(
        self,
        chunks: Iterable[bytes],
        header: Callable[[int, int], bytes],
        check_latest: Callable[[], None],
    ) -> int:
        """Write it; return its size in bytes. `header` takes the body's length and CRC-32."""
        file = self._create()
        try:
            try:
                file_bytes = _write(file, chunks, header)
                file.sync()
            finally:
                file.close()
            check_latest()
            try:
                self._files.rename(self._unfinished, self._path)
            except FileNotFoundError:
                # Only a later owner removes it.
                check_latest()
                raise
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.remove(self._unfinished)
            raise
        self._files.sync_folder(self._path.parent)
        return file_bytes

    def _create(self) -> OpenFile:
        try:
            return self._files.create(self._unfinished)
        except FileExistsError:
            # An earlier attempt of this owner failed, and could not remove it.
            self._files.remove(self._unfinished)
            return self._files.create(self._unfinished)


def _write(file: OpenFile, chunks: Iterable[bytes], header: Callable[[int, int], bytes]) -> int:
    # The header holds the body's length and checksum, which are known only at the end.
    blank = bytes(len(header(0, 0)))
    write_all(file, blank)
    body_bytes = checksum = 0
    for chunk in chunks:
        write_all(file, chunk)
        body_bytes += len(chunk)
        checksum = zlib.crc32(chunk, checksum)
    file.write_start(header(body_bytes, checksum))
    return len(blank) + body_bytes
