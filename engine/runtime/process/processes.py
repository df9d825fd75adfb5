"""Processes: what children inherit, what this one uses, and the states and ends of others on this machine."""

import fcntl
import os
import resource
import signal
import socket
import struct
import time
from collections.abc import Mapping, MutableMapping
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
    """A process. If it is on this machine, the kernel reports how it ended; otherwise that is unknown.

    Since 6.15, Linux reports this to any process, not only to the parent.
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
    """Describe a status of `waitpid`."""
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
    return _stat_of(pid)[0]


def parent_of(pid: int) -> int | None:
    """Return the pid of a process's parent; None if the process was reaped."""
    parent = _stat_of(pid)[1]
    return int(parent) if parent else None


def _stat_of(pid: int) -> list[str]:
    """Return the state, the parent and more of a process; two empty texts if it was reaped."""
    try:
        # The second field is the program's name in parentheses, which may contain anything.
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        stat = []
    return stat or ["", ""]


_STARTED_MS: Final = time.time_ns() // 1_000_000
"""When this module was imported, right at the start of every process."""

_LINE_BYTES: Final = 200


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Each passivation calls this, and a file object would be slower.
            pages = int(os.read(descriptor, _LINE_BYTES).split()[1])
        finally:
            os.close(descriptor)
    except (OSError, IndexError, ValueError):
        # Without /proc, the peak is the best estimate.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


def usage() -> tuple[int, str, int, int, float]:
    """Return pid, host name, start in milliseconds since 1970, resident bytes and seconds of CPU time."""
    return os.getpid(), socket.gethostname(), _STARTED_MS, resident_bytes(), time.process_time()


_NAMES: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONPYCACHEPREFIX"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONWARNINGS"),
        *("PYTHONHASHSEED", "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONFAULTHANDLER", "PYTHONTRACEMALLOC"),
        # These control how the main process writes to a terminal.
        *("TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"),
    }
)
_PREFIXES: Final = ("LC_", "MALLOC_", "RAY_")
_SECRET_PREFIXES: Final = ("RAY_REDIS_",)
"""The address and the password of a cluster's Redis, which only the cluster's head needs."""


_OF_TRACING: Final = "OTEL_"
"""The prefix of OpenTelemetry's own variables."""


def of_tracing(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return OpenTelemetry's variables. Only front ends need them, and some are secret."""
    return {name: value for name, value in environment.items() if name.startswith(_OF_TRACING)}


def keep_needed(environment: MutableMapping[str, str] = os.environ) -> None:
    """Remove all environment variables that neither the service nor Ray needs, because they may be secret.

    Workers and front ends serve strangers, and an attacker may get to read a process's environment. The
    settings of the service are removed too, because they have been read.
    """
    for name in list(environment):
        known = name in _NAMES or name.startswith(_PREFIXES)
        if not known or name.startswith(_SECRET_PREFIXES):
            del environment[name]
