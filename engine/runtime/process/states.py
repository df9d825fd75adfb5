"""What the kernel says of other processes of this machine."""

from pathlib import Path
from typing import Final

STOPPED: Final = "T"
ENDED: Final = "Z"


def state_of(pid: int) -> str:
    """Return the kernel's letter for a process's state; empty if it has ended and was reaped."""
    try:
        # The second field is the program's name in parentheses, which may contain anything.
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
