"""Temporary folders, private to the user and removed after their process has ended."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from snapshots.data_folder.lock import FolderLock
from snapshots.errors import FolderInUse, StorageError

_CHARS_MAX: Final = 40
"""The longest path of a parent folder. Ray's sockets are some 60 characters below it, and a socket's path
has at most 107 bytes."""


class TemporaryFolder:
    """A temporary folder of one process, private to the user, and locked while the process lives.

    Creating one removes the folders of the same prefix that killed processes have left. `holds` are the names
    that such a folder may contain.
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
                # Another process removed the folder as a leftover just before it was locked.
                continue
            return

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def _remove_if_left(folder: Path, holds: frozenset[str]) -> None:
    """Remove a folder if it is certainly a leftover: nothing unknown in it, and no process holds its lock."""
    with contextlib.suppress(OSError, StorageError):
        within = {entry.name for entry in folder.iterdir()}
        if "lock" in within and within <= {"lock"} | holds and folder.stat().st_uid == os.getuid():
            with FolderLock(folder):
                shutil.rmtree(folder, ignore_errors=True)
