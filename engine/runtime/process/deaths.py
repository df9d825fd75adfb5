"""Other processes of this machine: which state they are in, and how they ended."""

import fcntl
import os
import signal
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

_INFO_BYTES: Final = 64
_PIDFD_GET_INFO: Final = 3 << 30 | _INFO_BYTES << 16 | 0xFF << 8 | 11
_EXIT: Final = 1 << 3
_STATUS_OFFSET: Final = 60
STOPPED: Final = "T"
ENDED: Final = "Z"


class Process:
    """A process. If it is on this machine, the kernel tells how it ended; otherwise that is unknown.

    Linux tells so from 6.15 on, whoever the process's parent is.
    """

    def __init__(self, pid: int, host: str, *, here: bool) -> None:
        """`host` is the address of its machine; `here` says whether that is this one."""
        self.pid = pid
        self.host = host
        self._descriptor = _opened(pid) if here and pid else None

    def __del__(self) -> None:
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)

    def end(self) -> str:
        """Return how it ended, such as `killed by SIGKILL`; empty if it has not, or if that is unknown."""
        if self._descriptor is None:
            return ""
        info = bytearray(_INFO_BYTES)
        struct.pack_into("Q", info, 0, _EXIT)
        try:
            fcntl.ioctl(self._descriptor, _PIDFD_GET_INFO, info)
        except OSError:
            return ""
        (given,) = struct.unpack_from("Q", info)
        return in_words(*struct.unpack_from("i", info, _STATUS_OFFSET)) if given & _EXIT else ""

    def __str__(self) -> str:
        ended = self.end()
        return f"pid {self.pid or 'unknown'} on the node {self.host}" + (f", {ended}" if ended else "")


def in_words(status: int) -> str:
    """Return what a status of `waitpid` means."""
    if not os.WIFSIGNALED(status):
        return f"ended with status {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"


def _opened(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def state_of(pid: int) -> str:
    """Return the kernel's letter for a process's state; empty if it has ended and was reaped."""
    try:
        # The second field is the program's name in parentheses, which may contain anything.
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
