"""The processes of a service according to the operating system: their kinds, times and memory."""

import os
from collections import Counter
from pathlib import Path

from tests.process_table import command, family

_TICKS_A_S = os.sysconf("SC_CLK_TCK")


def kind(pid: int) -> str:
    """Tell what a process of the service is, from its command line."""
    line = command(pid)
    for part, name in (
        ("ray::Directory", "directory"),
        ("ray::RuntimeEnv", "Ray's runtime environment agent"),
        ("ray::Dashboard", "Ray's other agents"),
        ("ray::", "detector worker"),
        ("gcs_server", "Ray's control store"),
        ("raylet/raylet", "raylet"),
        ("runtime_env", "Ray's runtime environment agent"),
        ("dashboard", "Ray's other agents"),
        ("api.process.front_end", "front end"),
        ("rule-detector", "main process"),
    ):
        if part in line:
            return name
    return "other"


def cpu_s(pid: int) -> float:
    """Return the seconds of a processor that a process has taken so far, with all its threads."""
    # A command's name may have blanks and brackets; nothing after it has.
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_S


def cpu_by_kind_s(*roots: int) -> Counter[str]:
    """Return the processor seconds of these processes and all their descendants so far, by kind."""
    taken_s: Counter[str] = Counter()
    for pid in set().union(*map(family, roots)):
        try:
            taken_s[kind(pid)] += cpu_s(pid)  # type: ignore[assignment]  # a Counter adds seconds as well
        except OSError:
            continue
    return taken_s


def held_bytes(pid: int, what: str = "VmRSS") -> int:
    """Return the memory that a process holds now or, as `VmHWM`, its peak."""
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)
