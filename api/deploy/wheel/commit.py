# ruff: noqa: INP001 -- setuptools loads it by its path
"""A build step: wheels built from a git checkout, or with COMMIT set, contain the commit."""

import os
import subprocess
from pathlib import Path

from setuptools.command.build_py import build_py  # type: ignore[import-untyped]


class BuildWithCommit(build_py):  # type: ignore[misc]
    """Copies the packages, and writes the commit beside them."""

    def run(self) -> None:
        """Build as usual. An editable install reads the commit from its checkout."""
        super().run()
        commit = os.environ.get("COMMIT", "")[:12] or _checked_out()
        if commit and not self.editable_mode:
            (Path(self.build_lib) / "engine" / "commit.txt").write_text(commit + "\n", "ascii")


def _checked_out() -> str:
    if not Path(".git").exists():
        return ""
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],  # noqa: S607 -- wherever it is
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout.strip()
