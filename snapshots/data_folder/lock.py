"""The lock on a data folder: one process at a time. The operating system releases a dead process's lock."""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from snapshots.data_folder.permissions import unusable
from snapshots.errors import FolderInUse, StorageError
from snapshots.files import FILE_MODE, FOLDER_MODE

_LOOK_AGAIN_S: Final = 0.05
_PID_CHARS: Final = 10
"""The width of a pid, so that each text overwrites the previous one."""
_CLUSTER_CHARS: Final = 64
"""The width of a cluster's id, for the same reason."""
_HOST_CHARS: Final = 64
"""The width of a host name, for the same reason; Linux allows no more."""


class _Holder(NamedTuple):
    """The contents of the file about the process that has the lock."""

    pid: int | None
    cluster: str
    host: str


class FolderLock:
    """The lock on a data folder, held until it is released or its process ends.

    It is an `flock` on the file `lock`. For people, the file shows `pid` and `host`, the process id and the
    machine of the service for which the lock is held; by default, those of this process. `acquire` waits up
    to `wait_s` for a holder that is just ending.

    The lock keeps other services out, but not a successor in the same `cluster`. A predecessor that is cut
    off may hold the lock forever, and is fenced by epochs instead. So the successor begins without the lock,
    and takes it when it can.
    """

    def __init__(
        self,
        folder: Path,
        *,
        pid: int | None = None,
        host: str = "",
        wait_s: float = 0.0,
        cluster: str = "",
    ) -> None:
        self._folder = folder
        self._pid = pid or os.getpid()
        self._host = host or socket.gethostname()
        self._wait_s = wait_s
        self._cluster = cluster
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock, or find it held by a predecessor in the same cluster.

        Creates the folder if it is missing. Raises FolderInUse, StorageError.
        """
        assert self._descriptor is None, "a lock is acquired once"
        give_up_s = time.monotonic() + self._wait_s
        while True:
            try:
                self._descriptor = self._locked()
            except FolderInUse:
                if self._cluster and self._holder().cluster == self._cluster:
                    return
                if time.monotonic() >= give_up_s:
                    raise
                time.sleep(_LOOK_AGAIN_S)
            else:
                return

    def _locked(self) -> int:
        descriptor = self._opened()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            holder = self._holder()
            raise FolderInUse(self._folder, holder.pid, holder.host) from None
        except OSError as error:
            os.close(descriptor)
            raise StorageError(f"the data folder {self._folder} cannot be locked: {error}") from error
        # The pid is only informative: the service must start even on a full disk.
        with contextlib.suppress(OSError):
            host = self._host[:_HOST_CHARS]
            text = f"{self._pid:<{_PID_CHARS}}\n{self._cluster:<{_CLUSTER_CHARS}}\n{host:<{_HOST_CHARS}}\n"
            os.pwrite(descriptor, text.encode(), 0)
        return descriptor

    def _holder(self) -> _Holder:
        """Return the contents of the file, which is empty until the first lock."""
        descriptor = self._opened()
        try:
            lines = os.pread(descriptor, 256, 0).split(b"\n")
        finally:
            os.close(descriptor)
        pid, cluster, host, *_ = [*lines, b"", b""]
        return _Holder(_pid(pid), *(one.decode("ascii", "replace").strip() for one in (cluster, host)))

    def _opened(self) -> int:
        path = self._folder / "lock"
        # A symbolic link could lead to any file of this user, and opening a pipe would block.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            descriptor = os.open(path, flags, FILE_MODE)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise StorageError(f"{path} is a symbolic link, and must not be: remove it") from None
            raise unusable(self._folder, error) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise StorageError(f"{path} is no regular file: remove it")
        return descriptor

    def release(self) -> None:
        """Release the lock. The file stays: otherwise two processes could lock two files of the same name."""
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
