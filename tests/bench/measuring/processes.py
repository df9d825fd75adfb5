"""What the operating system says of processes: their time and their memory."""

import os
from pathlib import Path

_TICKS_A_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Give the seconds of a processor that a process has taken so far, with all its threads."""
    # A command may have blanks and brackets in its name; nothing behind it has.
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_S


def held_bytes(pid: int) -> int:
    """Give the memory that a process holds now."""
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)
