"""A snapshot file, written in one step: whole, under its name, on the disk, or not at all."""

import contextlib
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from snapshots.files import Files, OpenFile, write_all
from snapshots.names import snapshot_name, unfinished_name
from snapshots.records import HEADER_BYTES, encode_header


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
    path = folder / snapshot_name(sequence)
    unfinished = path.with_name(unfinished_name(path.name, epoch))
    file = _create(unfinished, files)
    try:
        try:
            file_bytes = _write(file, chunks, epoch, sequence, version)
            file.sync()
        finally:
            file.close()
        check_latest()
        try:
            files.rename(unfinished, path)
        except FileNotFoundError:
            # Only a later owner takes it away.
            check_latest()
            raise
    except BaseException:
        with contextlib.suppress(OSError):
            files.remove(unfinished)
        raise
    files.sync_folder(folder)
    return file_bytes


def _create(unfinished: Path, files: Files) -> OpenFile:
    try:
        return files.create(unfinished)
    except FileExistsError:
        # An attempt of our own that could not clear away after itself.
        files.remove(unfinished)
        return files.create(unfinished)


def _write(file: OpenFile, chunks: Iterable[bytes], epoch: int, sequence: int, version: int) -> int:
    # The header tells the body's length and checksum, which are known at its end only.
    write_all(file, bytes(HEADER_BYTES))
    body_bytes = checksum = 0
    for chunk in chunks:
        write_all(file, chunk)
        body_bytes += len(chunk)
        checksum = zlib.crc32(chunk, checksum)
    file.write_start(encode_header(epoch, sequence, version, body_bytes, checksum))
    return HEADER_BYTES + body_bytes


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
