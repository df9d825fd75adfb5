"""Folders for what lasts no longer than a process: for this user alone, and cleared away after it."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from snapshots.data_folder.lock import FolderLock
from snapshots.errors import FolderInUse, StorageError

_CHARS_MAX: Final = 40
"""Of the folder above. Paths of sockets end at 107 bytes, and Ray puts its own some 60 characters below."""


class TemporaryFolder:
    """A folder of one process's own, for this user alone, locked for as long as that lives.

    Folders that processes left behind when they were killed are removed when the next one of the same prefix
    is made. `holds` are the names of what may be in them.
    """

    def __init__(self, prefix: str, holds: frozenset[str]) -> None:
        usual = tempfile.gettempdir()
        within = Path(usual if len(usual) <= _CHARS_MAX else "/tmp")  # noqa: S108 -- mkdtemp makes its own
        for left in within.glob(f"{prefix}*"):
            _remove_if_left(left, holds)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
            self._lock = FolderLock(self.path)
            try:
                self._lock.acquire()
            except FolderInUse:
                # Another start took it for one that was left behind, in the moment before it was locked.
                continue
            return

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def _remove_if_left(folder: Path, holds: frozenset[str]) -> None:
    """Remove a folder that is certainly one of these, and that no living process holds."""
    with contextlib.suppress(OSError, StorageError):
        within = {entry.name for entry in folder.iterdir()}
        if "lock" in within and within <= {"lock"} | holds and folder.stat().st_uid == os.getuid():
            with FolderLock(folder):
                shutil.rmtree(folder, ignore_errors=True)
