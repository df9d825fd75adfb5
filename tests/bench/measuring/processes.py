"""What the operating system says of processes: whose children they are, their time and their memory."""

import os
from pathlib import Path

_TICKS_A_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Give the seconds of a processor that a process has taken so far, with all its threads."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_S


def waited_s(pid: int) -> float:
    """Give the seconds that the busiest thread of a process has been ready to run and had no processor."""
    told = [path.read_text("ascii").split() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    _, waited_ns, _ = max(told, key=lambda one: int(one[0]))
    return int(waited_ns) / 1e9


def peak_bytes(pid: int) -> int:
    """Give the most memory that a process has held so far."""
    return _status_bytes(pid, "VmHWM:")


def held_bytes(pid: int) -> int:
    """Give the memory that a process holds now."""
    return _status_bytes(pid, "VmRSS:")


def descriptors(pid: int) -> int:
    """Give how many files and connections a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _status_bytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def _stat(pid: int) -> list[str]:
    """Give what the kernel says of a process, from its state on."""
    # A command may have blanks and brackets in its name; nothing behind it has.
    return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
