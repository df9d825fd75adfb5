"""The lock on a data folder: one process at a time, told apart from a dead one by the operating system."""

import contextlib
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from snapshots.errors import FolderInUse, StorageError
from snapshots.files import FILE_MODE, FOLDER_MODE


class FolderLock:
    """A hold on a data folder, until it is released or its process ends.

    The file `lock` in the folder bears a pid, for people: `pid`, that of the service for which the lock is
    held, or this process's own. What counts is the operating system's lock on it, which no dead process
    keeps.
    """

    def __init__(self, folder: Path, *, pid: int | None = None) -> None:
        self._folder = folder
        self._pid = pid or os.getpid()
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take hold of the folder, which is made where it is missing. Raises FolderInUse, StorageError."""
        assert self._descriptor is None, "a lock is acquired once"
        path = self._folder / "lock"
        try:
            self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise StorageError(f"the data folder {self._folder} cannot be used: {error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _pid(os.pread(descriptor, 32, 0))
            os.close(descriptor)
            raise FolderInUse(self._folder, pid) from None
        except OSError as error:
            os.close(descriptor)
            raise StorageError(f"the data folder {self._folder} cannot be locked: {error}") from error
        # The pid is a courtesy: a full disk must not keep the service from starting.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{self._pid}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go of the folder. The file stays, or two processes could lock two files of one name."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _pid(text: bytes) -> int | None:
    return int(text) if text.strip().isdigit() else None
