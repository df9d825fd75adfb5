"""Runs the fast tests on each supported Python that this machine has, in an environment of its own.

All versions run at once, and what each has said is printed when it is done. With `--parts`, each runs only
those tests that its version may change: `PARTS` has them.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from subprocess import PIPE, STDOUT
from threading import Lock
from typing import Final

ROOT: Final = Path(__file__).parents[1]
VERSIONS: Final = ("3.11", "3.12", "3.13")

# A version of Python brings compiled packages of its own (re2, msgspec, msgpack, httptools, uvloop). It
# changes how code is compiled and how numbers, texts and files are written and read: the first tests see that
# on each version. It also changes asyncio and ssl, when an object is let go of and what errors say. Later
# versions keep such a change, so the newest one alone runs the others of these tests, and the slow ones. What
# is in none (explanations, sharing and eviction, placement, pages, benchmarks) is plain code above what is in
# them.
_EACH: Final = (
    "tests/conformance",
    "tests/property/verdicts/test_engine_against_reference.py",
    "tests/property/wire",
    "tests/unit/evaluation/kernel",
    "tests/unit/evaluation/wire",
    "tests/unit/patterns",
    "tests/unit/snapshots",
)
_NEWEST: Final = (
    *_EACH,
    "tests/api/client",
    "tests/api/http/body",
    "tests/api/http/ndjson",
    "tests/api/http/wire",
    "tests/api/process",
    "tests/api/server",
    "tests/property/language",
    "tests/unit/cli/printing",
    "tests/unit/cli/recordings",
    "tests/unit/language/text",
    "tests/unit/language/validation",
    "tests/unit/runtime/activation",
    "tests/unit/runtime/process",
    "tests/unit/runtime/transport",
)
# In the order in which all tests run: those of the snapshots leave hundreds of open files, too many for the
# `select` of what comes before them.
PARTS: Final = dict.fromkeys(VERSIONS, sorted(_EACH)) | {VERSIONS[-1]: sorted(_NEWEST)}
FAST: Final = "not ray and not storm and not long"

PIP: Final = (sys.executable, "-m", "pip")
INSTALLING: Final = Lock()


def find(version: str) -> str | None:
    """Return the first interpreter of this version that starts, on PATH or under pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    on_path = shutil.which(f"python{version}")
    for candidate in [*([on_path] if on_path else []), *map(str, pyenv.glob(f"{version}.*/bin/python3"))]:
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


AGAIN_MAX: Final = 3
"""The maximum number of failed tests that are run again."""


def run(interpreter: str, install: Sequence[str], options: Sequence[str]) -> tuple[bool, str]:
    """Run the fast tests in a new environment. Return whether they pass, and the output."""
    said = ""
    with tempfile.TemporaryDirectory(prefix="each-python-") as folder:
        python = f"{folder}/bin/python"
        for command in (
            # A pip of its own would take the environment 3 s.
            [interpreter, "-m", "venv", "--without-pip", folder],
            [*PIP, "--python", python, "install", "--quiet", "-c", "constraints.txt", *install],
        ):
            # One at a time, because each installation of the sources writes into their folder.
            with INSTALLING if "install" in command else nullcontext():
                ended = subprocess.run(command, cwd=ROOT, stdout=PIPE, stderr=STDOUT, text=True, check=False)
            said += ended.stdout
            if ended.returncode:
                return False, said
        # As in .ci/run: beside others, tests take longer, and a few that fail are run again.
        tests = [python, "-m", "pytest", "-q", "-o", f"cache_dir={folder}/cache", "--timeout=300", *options]
        again = ["--last-failed", "--last-failed-no-failures=none", f"--junitxml={folder}/again.xml"]
        for command in (tests, [*tests, *again]):
            ended = subprocess.run(command, cwd=ROOT, stdout=PIPE, stderr=STDOUT, text=True, check=False)
            said += ended.stdout
            failed = Path(f"{folder}/cache/v/cache/lastfailed")
            if ended.returncode != 1 or len(json.loads(failed.read_bytes())) > AGAIN_MAX:
                break
    return ended.returncode == 0, said


def main(*arguments: str) -> int:
    """Run the tests on the requested versions. Return 1 if one fails, or is requested and absent."""
    parser = argparse.ArgumentParser(prog="python -m tests.each_python", description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="such as 3.13; all, if none is named")
    parser.add_argument("--others", action="store_true", help="leave out the version that runs this command")
    parser.add_argument("--parts", action="store_true", help="only what the version of Python may change")
    parser.add_argument("--wheel", help="what to install; the sources, if it is not named")
    parser.add_argument("--results", type=Path, help="the folder for the results, which tests/skips.py reads")
    chosen = parser.parse_args(arguments)
    # Tests of the benchmarks, which no part has, compare the peers' verdicts with the engine's.
    extras = "parts" if chosen.parts else "test,bench"
    install = [f"{chosen.wheel}[{extras}]"] if chosen.wheel else ["-e", f".[{extras}]"]
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    wanted = [one for one in chosen.versions or VERSIONS if not (chosen.others and one == own)]
    there = {version: interpreter for version in wanted if (interpreter := find(version))}
    for version in (missing := [one for one in wanted if one not in there]):
        print(f"Python {version} is not on this machine")
    failed = missing if chosen.versions else []
    with ThreadPoolExecutor() as threads:
        running = {}
        for version, interpreter in there.items():
            cores = (os.cpu_count() or 1) // len(there)
            # A second process would only take more time.
            options = ["-n", str(cores if cores > 1 else 0), *(PARTS[version] if chosen.parts else ())]
            is_brief = chosen.parts and version != VERSIONS[-1]
            options += ["-m", f"{FAST} and not slow" if is_brief else FAST]
            if chosen.results:
                options.append(f"--junitxml={chosen.results / f'python{version}.xml'}")
            running[threads.submit(run, interpreter, install, options)] = version
        for ended in as_completed(running):
            passed, said = ended.result()
            print(f"\n== Python {running[ended]}: {'passed' if passed else 'FAILED'}\n{said}", flush=True)
            failed += [] if passed else [running[ended]]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
