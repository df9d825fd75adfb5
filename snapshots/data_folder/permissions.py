"""The permissions of a data folder: only its own user may write to it."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

from snapshots.errors import StorageError
from snapshots.files import FULL

_SUBFOLDERS: Final = ("directory", "detectors")
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def refuse_unsafe(folder: Path) -> None:
    """Raise StorageError if anyone but this user can write to the folder."""
    for place in (folder, *(folder / name for name in _SUBFOLDERS)):
        try:
            status = place.stat()
        except FileNotFoundError:
            continue
        if status.st_uid != os.geteuid():
            raise StorageError(
                f"{place} belongs to the user with id {status.st_uid}, and this process runs as user "
                f"{os.geteuid()}: run it as the owner, or name a folder that does not exist yet"
            )
        if status.st_mode & _WRITABLE_BY_OTHERS:
            raise StorageError(
                f"other users can write to {place} (mode {stat.S_IMODE(status.st_mode):o}): run "
                f"`chmod go-w {place}`, or name a folder that does not exist yet"
            )


def unusable(folder: Path, error: OSError) -> StorageError:
    """Return the error for a data folder that this process may not create or write to."""
    reason = error.strerror or str(error)
    place = str(error.filename or folder)
    if error.errno == errno.EEXIST:
        reason = f"{place} is a file"
    elif place != str(folder):
        reason = f"{reason} ({place})"
    mend = (
        "make room on its disk"
        if error.errno in FULL
        else "name a folder that this user can create and write to"
    )
    return StorageError(f"the data folder {folder} cannot be used: {reason}; {mend}")
