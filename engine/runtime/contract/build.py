"""Which build of the service this is, and which protocols between processes it speaks."""

import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

_PACKAGE: Final = "rule-detector"
_ENGINE: Final = Path(__file__).parents[2]
COMMIT_FILE: Final = "commit.txt"
"""The file of the package `engine` that holds the commit in a wheel built from a git checkout."""
_GIT_S: Final = 5.0


class Protocols(NamedTuple):
    """The range of protocols that a process speaks."""

    oldest: int
    current: int

    def meet(self, others: "Protocols") -> bool:
        """Whether both speak a common protocol."""
        return self.oldest <= others.current and others.oldest <= self.current

    def __str__(self) -> str:
        """Describe the range: `protocol 3` or `protocols 2 to 3`."""
        one = self.oldest == self.current
        return f"protocol {self.current}" if one else f"protocols {self.oldest} to {self.current}"


SPOKEN: Final = Protocols(oldest=4, current=4)
"""The protocols between front ends, directory and workers of a data folder, including the files they share.

Raise `current` whenever a message, a call, a forwarded setting, or a file that the previous release must read
changes in a way that the previous release does not understand. Keep `oldest` low enough to serve the previous
release, so that a cluster can be upgraded node by node.
"""


@cache
def build_version() -> str:
    """Return the version of the package and, if known, the commit: `0.2.0+g0123456789ab`."""
    commit = _built_from() or _checked_out()
    return version(_PACKAGE) + (f"+g{commit}" if commit else "")


def _built_from() -> str:
    try:
        return (_ENGINE / COMMIT_FILE).read_text("ascii").strip()
    except OSError:
        return ""


def _checked_out() -> str:
    """Return the commit of the git checkout that contains this file; empty without a checkout."""
    root = _ENGINE.parent
    if not (root / ".git").exists():
        return ""
    try:
        asked = subprocess.run(  # noqa: S603 -- all ours
            ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"],  # noqa: S607 -- wherever it is
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout.strip()
