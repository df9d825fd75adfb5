"""Runs the fast tests on each supported Python that this machine has, in an environment of its own.

python -m tests.each_python [VERSION…]    on these versions, or on all of them; --help lists the options
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
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


def passes(interpreter: str, install: Sequence[str], *options: str) -> bool:
    """Install the project into a new environment, and tell whether its fast tests pass there."""
    with tempfile.TemporaryDirectory(prefix="each-python-") as folder:
        python = f"{folder}/bin/python"
        commands = (
            [interpreter, "-m", "venv", folder],
            [python, "-m", "pip", "install", "--quiet", "-c", "constraints.txt", *install],
            [python, "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider", *options],
        )
        return all(subprocess.run(command, cwd=ROOT, check=False).returncode == 0 for command in commands)


def main(*arguments: str) -> int:
    """Run the tests on the versions wanted; give 1 if one failed, or was named and is not there."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.each_python", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="such as 3.13; all, if none is named")
    parser.add_argument("--others", action="store_true", help="leave out the version that runs this command")
    parser.add_argument("--wheel", help="what to install; the sources, if it is not named")
    parser.add_argument(
        "--results", type=Path, help="the folder for pythonVERSION.xml, which tests/skips.py reads"
    )
    chosen = parser.parse_args(arguments)
    # With the benchmarks' peers, because tests compare their verdicts with the engine's.
    install = [f"{chosen.wheel}[test,bench]"] if chosen.wheel else ["-e", ".[test,bench]"]
    passed = {}
    for version in chosen.versions or VERSIONS:
        if chosen.others and version == f"{sys.version_info.major}.{sys.version_info.minor}":
            continue
        interpreter = find(version)
        print(f"\n== Python {version}: {interpreter or 'not on this machine'}", flush=True)
        if interpreter:
            results = chosen.results and f"--junitxml={chosen.results / f'python{version}.xml'}"
            options = ["-o", "junit_family=xunit1", results] if results else []
            passed[version] = passes(interpreter, install, *options)
        elif chosen.versions:
            passed[version] = False
    for version, well in passed.items():
        print(f"Python {version}: {'passed' if well else 'FAILED'}")
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
