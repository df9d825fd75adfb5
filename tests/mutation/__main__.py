"""Breaks the product on purpose, one mutant after another, and shows that the tests notice each.

    python -m tests.mutation                        every mutant of every room; hours
    python -m tests.mutation --room evaluation      every mutant of a room
    python -m tests.mutation --changed [BASE]       those on lines changed since BASE (main), or not committed
    python -m tests.mutation --every 10             every tenth
    python -m tests.mutation --room kernel --only counting/count.py --tests tests/unit/evaluation/operators
                                                    those of a file, judged by these tests alone; a minute

Each mutant is a copy of the product in which one place differs. It is killed when a test of its room fails,
or when it answers otherwise than the executable specification, or not in time. survivors.toml says how many
of a file's mutants may survive. All that survive are printed: look at those on lines that you have changed.
The exit status is 1 if more of a file survive than may.
"""

import argparse
import compileall
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.mutation.judging import KILLED, PACKAGES, SURVIVED, TIMEOUT, Judge
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.recording import record
from tests.mutation.rooms import ROOMS, ROOT, Room


def accepted() -> dict[str, int]:
    """Return how many mutants of each file may survive, by its path in the repository."""
    counts: dict[str, int] = tomllib.loads((Path(__file__).parent / "survivors.toml").read_text("utf-8"))
    return counts


def mechanical(room: Room, product: Path) -> list[Mutant]:
    """Return all mechanical mutants, file by file."""
    found = []
    for file in room.sources(product):
        text = (product / room.folder / file).read_text(encoding="utf-8")
        found += mutants_of(file, text, templates=file in room.templates)
    return found


def changed_lines(base: str, folder: str, root: Path = ROOT) -> dict[str, set[int]]:
    """Return the lines, counted from 1, that differ from a commit, by file below the folder."""
    command = ["git", "diff", "--unified=0", "--no-color", "--relative=" + folder, base, "--", folder]
    diff = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    found = dict[str, set[int]]()
    file = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ ").removeprefix("b/").lstrip("/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            found.setdefault(file, set()).update(range(first, first + count))
    return found


def on_lines(mutants: list[Mutant], room: Room, product: Path, lines: dict[str, set[int]]) -> list[Mutant]:
    """Return the mutants on these lines."""
    found = []
    for mutant in mutants:
        text = (product / room.folder / mutant.file).read_text(encoding="utf-8")
        if text.count("\n", 0, mutant.start) + 1 in lines.get(mutant.file, ()):
            found.append(mutant)
    return found


def judge(room: Room, product: Path, options: argparse.Namespace) -> list[str]:
    """Judge the chosen mutants of a room, print the results, and return what is wrong."""
    started = time.monotonic()
    machine = mechanical(room, product)
    if options.changed is None:
        chosen = machine[min(1, options.every - 1) :: options.every]
    else:
        chosen = on_lines(machine, room, product, changed_lines(options.changed, room.folder))
    chosen = [mutant for mutant in chosen if any(part in str(mutant) for part in options.only)]
    counts, survived = Counter[str](), Counter[str]()
    if chosen:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            recording = (
                record(room.replayed, 0 if options.tests else options.effort) if room.replayed else None
            )
            tests = [path.resolve() for path in options.tests] or room.test_files()
            judging = Judge(room, product, recording, Path(folder), 600, tests)
            judging = judging._replace(cpu_s=1 + 1.5 * judging.sound())
            # Recording what each test enters takes as long as a few dozen mutants.
            if room.replayed and len(chosen) > 40 and not options.tests:
                judging = judging._replace(reach=judging.reached())
            for mutant, outcome in judging.judged(chosen, options.jobs):
                counts[outcome] += 1
                if outcome == SURVIVED:
                    survived[f"{room.folder}/{mutant.file}"] += 1
                    print(f"survived: {mutant}", flush=True)
    outcomes = ", ".join(f"{counts[outcome]} {outcome}" for outcome in (KILLED, TIMEOUT, SURVIVED))
    print(
        f"{room.name}: {len(machine)} mutants, {len(chosen)} judged: "
        f"{outcomes} in {time.monotonic() - started:.0f} s",
        flush=True,
    )
    allowed = accepted()
    if chosen == machine:
        for file in sorted({f"{room.folder}/{mutant.file}" for mutant in machine}):
            if survived[file] < allowed.get(file, 0):
                print(f"survivors.toml allows {allowed[file]} of {file}, {survived[file]} survive")
    return too_many(survived, allowed)


def too_many(survived: Mapping[str, int], allowed: Mapping[str, int]) -> list[str]:
    """Return the files of which more mutants survive than may."""
    return [
        f"{file}: {count} mutants survive, of which {allowed.get(file, 0)} may"
        for file, count in survived.items()
        if count > allowed.get(file, 0)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--room", action="append", choices=ROOMS, help="judge this room; may be repeated")
    parser.add_argument("--every", type=int, default=1, help="judge every nth mutant")
    parser.add_argument("--changed", nargs="?", const="main", metavar="BASE", help="judge changed lines only")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="judge only mutants whose description contains one of these"
    )
    parser.add_argument(
        "--tests",
        nargs="+",
        type=Path,
        default=[],
        help="judge by these test files alone, the likely killers",
    )
    parser.add_argument(
        "--effort", type=int, default=1, help="replay so many times as many scripts; 0 replays examples alone"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="judge so many at once")
    options = parser.parse_args()
    # As many examples of each property as the tests of the change itself use.
    os.environ.setdefault("RULE_DETECTOR_PROFILE", "ci")

    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        # A copy, so that the sources can be edited in the meantime.
        product = Path(folder)
        for package in PACKAGES:
            shutil.copytree(ROOT / package, product / package, ignore=shutil.ignore_patterns("__pycache__"))
            # So the copy of a mutant compiles one file only.
            compileall.compile_dir(product / package, quiet=1)
        for name in options.room or ROOMS:
            wrong += judge(ROOMS[name], product, options)
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
