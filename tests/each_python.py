"""Runs the fast tests on each supported Python that this machine has, in an environment of its own.

python -m tests.each_python [VERSION…]    on these versions, or on all of them
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
VERSIONS: Final = ("3.11", "3.12", "3.13")


def find(version: str) -> str | None:
    """Give the first interpreter of this version that starts, on PATH or under pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    on_path = shutil.which(f"python{version}")
    for candidate in [*([on_path] if on_path else []), *map(str, pyenv.glob(f"{version}.*/bin/python3"))]:
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def run(interpreter: str) -> bool:
    """Install the project into a new environment, and tell whether its fast tests pass there."""
    with tempfile.TemporaryDirectory(prefix="each-python-") as folder:
        python = f"{folder}/bin/python"
        commands = (
            [interpreter, "-m", "venv", folder],
            [python, "-m", "pip", "install", "--quiet", "-c", "constraints.txt", "-e", ".[test]"],
            [python, "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider"],
        )
        return all(subprocess.run(command, cwd=ROOT, check=False).returncode == 0 for command in commands)


def main(*versions: str) -> int:
    """Run the tests on these versions; give 1 where one failed, or none was found."""
    passed = {}
    for version in versions or VERSIONS:
        interpreter = find(version)
        print(f"\n== Python {version}: {interpreter or 'not on this machine'}", flush=True)
        if interpreter:
            passed[version] = run(interpreter)
    for version, well in passed.items():
        print(f"Python {version}: {'passed' if well else 'FAILED'}")
    return 0 if passed and all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
