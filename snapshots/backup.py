"""Copies a folder while its owner keeps writing to it, so that a recovery can use the copy."""

import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Final

from snapshots.errors import NothingUsable, StorageError
from snapshots.files import Files, RealFiles, open_regular, storage_errors, write_all
from snapshots.format.file_names import listing, mark_name

_TRIES: Final = 100
_PAUSE_S: Final = 0.01
_BLOCK_BYTES: Final = 1 << 20


def copy_folder(folder: Path, target: Path, files: Files | None = None) -> int:
    """Copy the files that a recovery needs into a new folder, durably; return the number of bytes.

    The copy has every record that was written before the call, and perhaps later ones; the last one may be
    torn. Unfinished files and copies of damaged ones are left out. Raises StorageError, and NothingUsable if
    the folder has no snapshot or is gone.
    """
    files = files or RealFiles()
    if folder.is_symlink():
        raise StorageError(f"{folder} is a symbolic link, and must not be")
    with storage_errors(f"{folder} cannot be copied to {target}"), ExitStack() as opened:
        sources = _open_all(folder, files, opened)
        files.make_folder(target)
        copied = sum(_copy(source, target / name, files) for name, source in sources.items())
        files.sync_folder(target)
    return copied


def _open_all(folder: Path, files: Files, opened: ExitStack) -> dict[str, IO[bytes]]:
    """Open all files of a folder as of one moment.

    An open file stays readable when its owner removes it. Of the segments that existed at that moment, only
    the last can still grow, so the copy has no hole.
    """
    for _ in range(_TRIES):
        found = listing(files.names(folder))
        if not found.snapshots:
            raise NothingUsable(f"{folder} holds no snapshot")
        # A segment records what its writer has read of earlier ones, so those must be copied after it.
        names = [*reversed(found.segments.values()), *found.snapshots.values()]
        names += [*found.claims.values(), *found.pages.values(), *found.dues.values()]
        names += [mark_name(*place, first) for place, first in found.marks.items()]
        sources: dict[str, IO[bytes]] = {}
        with ExitStack() as stack, suppress(FileNotFoundError):
            for name in names:
                sources[name] = stack.enter_context(os.fdopen(open_regular(folder / name), "rb"))
            # If a file was removed meanwhile, the snapshot that replaces it may be missing in this listing.
            now = files.names(folder)
            segments = listing(now).segments
            # A mark without its segment means a lost segment, unless both were created during the listing.
            whole = all(place in found.segments or place not in segments for place in found.marks)
            if whole and set(names) <= set(now):
                opened.push(stack.pop_all())
                return sources
        time.sleep(_PAUSE_S)
    raise StorageError(f"{folder} cannot be copied: its files were removed in each of {_TRIES} tries")


def _copy(source: IO[bytes], target: Path, files: Files) -> int:
    file, copied = files.create(target), 0
    try:
        while block := source.read(_BLOCK_BYTES):
            write_all(file, block)
            copied += len(block)
        file.sync()
    finally:
        file.close()
    return copied
