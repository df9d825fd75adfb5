"""A snapshot or a page, written in one step: whole, under its name, on the disk, or not at all."""

import contextlib
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from snapshots.files import Files, OpenFile, write_all
from snapshots.format import pages
from snapshots.format import snapshot_file as records
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
    """Make the snapshot of a record, durably, and give its size in bytes.

    `check_latest` is called when all is written and before the file gets its name. Raises OSError, and what
    `check_latest` raises; what was there before is then as usable as it was.
    """

    def header(body_bytes: int, checksum: int) -> bytes:
        return records.encode_header(epoch, sequence, version, body_bytes, checksum)

    unfinished = _Unfinished(folder / snapshot_name(sequence), epoch, files)
    return unfinished.save(chunks, header, check_latest)


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
    """Make the page of a record, durably, as `save_snapshot` makes a snapshot."""

    def header(body_bytes: int, checksum: int) -> bytes:
        told = pages.PageHeader(version, epoch, sequence, expires_us, body_bytes, checksum)
        return pages.encode_header(told)

    _Unfinished(folder / page_name(sequence), epoch, files).save([body], header, check_latest)


class _Unfinished:
    """A file on its way to its name."""

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
        """Write it, and give its size in bytes. `header` takes the length and the checksum of the body."""
        file = _create(self._unfinished, self._files)
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
                # Only a later owner takes it away.
                check_latest()
                raise
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.remove(self._unfinished)
            raise
        self._files.sync_folder(self._path.parent)
        return file_bytes


def _create(unfinished: Path, files: Files) -> OpenFile:
    try:
        return files.create(unfinished)
    except FileExistsError:
        # An attempt of our own that could not clear away after itself.
        files.remove(unfinished)
        return files.create(unfinished)


def _write(file: OpenFile, chunks: Iterable[bytes], header: Callable[[int, int], bytes]) -> int:
    # The header tells the body's length and checksum, which are known at its end only.
    blank = bytes(len(header(0, 0)))
    write_all(file, blank)
    body_bytes = checksum = 0
    for chunk in chunks:
        write_all(file, chunk)
        body_bytes += len(chunk)
        checksum = zlib.crc32(chunk, checksum)
    file.write_start(header(body_bytes, checksum))
    return len(blank) + body_bytes


def set_aside(path: Path, data: bytes, names: Iterable[Path], *, epoch: int, files: Files) -> Path:
    """Keep a copy of bytes under the first of `names` that is free or has them, and give that.

    Raises OSError. The folder is not synced: the caller does that once for all.
    """
    taken = set(files.names(path.parent))
    for aside in names:
        if aside.name not in taken:
            break
        if files.read(aside) == data:
            return aside
    unfinished = aside.with_name(unfinished_name(aside.name, epoch))
    file = files.create(unfinished)
    try:
        write_all(file, data)
        file.sync()
    finally:
        file.close()
    files.rename(unfinished, aside)
    return aside
