"""What the operating system says of the processes of a service: their kinds, their time and their memory."""

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
    """Give the seconds of a processor that a process has taken so far, with all its threads."""
    # A command may have blanks and brackets in its name; nothing behind it has.
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_S


def cpu_by_kind_s(*roots: int) -> Counter[str]:
    """Give what these processes and all below them have taken so far, by their kinds."""
    taken_s: Counter[str] = Counter()
    for pid in set().union(*map(family, roots)):
        try:
            taken_s[kind(pid)] += cpu_s(pid)  # type: ignore[assignment]  # a Counter adds seconds as well
        except OSError:
            continue
    return taken_s


def held_bytes(pid: int, what: str = "VmRSS") -> int:
    """Give the memory that a process holds now, or, as `VmHWM`, the most that it has held."""
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)
