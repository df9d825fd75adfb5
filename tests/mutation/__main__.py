"""Breaks the product on purpose, one mutant after another, and shows that each is noticed.

    python -m tests.mutation                        every mutant of every room; hours
    python -m tests.mutation --room evaluation      every mutant of a room
    python -m tests.mutation --changed [BASE]       those on lines changed since BASE (main), or not committed
    python -m tests.mutation --every 10             those by hand, and every tenth of the mechanical ones
    python -m tests.mutation --room kernel --only counting/count.py --tests tests/unit/evaluation/operators
                                                    those of a file, judged by these tests alone; a minute

Each mutant is a copy of the product in which one place differs. It is killed when a test of its room fails,
or when it answers otherwise than the executable specification, or not in time. A room has its tables in a
folder of its name: by_hand.toml has mutants; survivors.toml lists those that survive, with the reason why
nothing changes, and under `cost` the lines on which only cost depends, which are not judged. A survivor that
is not listed is an error, as is an entry that fits no mutant.
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
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.mutation.judging import KILLED, PACKAGES, SURVIVED, TIMEOUT, Judge
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.recording import record
from tests.mutation.rooms import ROOMS, ROOT, Room


def by_hand(room: Room, product: Path) -> list[Mutant]:
    """Give the mutants of by_hand.toml. Each must fit in exactly one place."""
    found = []
    for entry in room.listed("mutant"):
        text = (product / room.folder / entry["file"]).read_text(encoding="utf-8")
        if text.count(entry["find"]) != 1:
            places = text.count(entry["find"])
            sys.exit(f"{room.name}/by_hand.toml, `{entry['title']}`: fits in {places} places")
        start = text.index(entry["find"])
        found.append(Mutant(entry["file"], start, entry["find"], entry["put"], "by hand", entry["title"]))
    return found


def mechanical(room: Room, product: Path) -> list[Mutant]:
    """Give all mechanical mutants, file by file."""
    found = []
    for file in room.sources(product):
        text = (product / room.folder / file).read_text(encoding="utf-8")
        found += mutants_of(file, text, templates=file in room.templates)
    return found


def listed(room: Room, mutants: Iterable[Mutant]) -> tuple[set[Mutant], set[Mutant], list[str]]:
    """Give the mutants listed as survivors, all that remain to be killed, and entries that fit none."""
    by_place = dict[tuple[str, ...], set[Mutant]]()
    for mutant in mutants:
        for place in ((mutant.line,), (mutant.line, mutant.change)):
            by_place.setdefault((mutant.file, mutant.where, *place), set()).add(mutant)
    places = [
        (entry["file"], entry["where"], entry["line"], change)
        for entry in room.listed("survivor")
        for change in entry["changes"]
    ]
    costs = [
        (entry["file"], place["where"], line)
        for entry in room.listed("cost")
        for place in entry["places"]
        for line in place["lines"]
    ]
    idle = [", ".join(place) for place in {*places, *costs} - set(by_place)]
    cost = {mutant for place in costs for mutant in by_place.get(place, ())}
    survivors = {mutant for place in places for mutant in by_place.get(place, ())}
    idle += [f"{mutant}, and of no more than cost" for mutant in survivors & cost]
    return survivors, set(mutants) - survivors - cost, idle


def changed_lines(base: str, folder: str, root: Path = ROOT) -> dict[str, set[int]]:
    """Give the lines, counted from 1, that differ from a commit, by file below the folder."""
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
    """Give the mutants that stand on these lines."""
    found = []
    for mutant in mutants:
        text = (product / room.folder / mutant.file).read_text(encoding="utf-8")
        if text.count("\n", 0, mutant.start) + 1 in lines.get(mutant.file, ()):
            found.append(mutant)
    return found


def judge(room: Room, product: Path, options: argparse.Namespace) -> list[str]:
    """Judge the chosen mutants of a room, print what came of it, and give what is wrong."""
    started = time.monotonic()
    hand, machine = by_hand(room, product), mechanical(room, product)
    survivors, others, idle = listed(room, machine)
    wrong = [f"survivors.toml speaks of what is not there: {entry}" for entry in idle]
    if options.changed is None:
        # Counted over all of them: what is written about survivors does not change who else is chosen.
        sampled = machine[min(1, options.every - 1) :: options.every] if options.every else []
        chosen = hand[:: options.hand_every] + [mutant for mutant in sampled if mutant in others]
        if options.every == 1:
            chosen += survivors
    else:
        lines = changed_lines(options.changed, room.folder)
        chosen = [mutant for mutant in on_lines(machine, room, product, lines) if mutant in others]
    chosen = [mutant for mutant in chosen if options.only in str(mutant)]
    counts = Counter[str]()
    if chosen:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            recording = record(0 if options.tests else options.effort) if room.replayed else None
            tests = [path.resolve() for path in options.tests] or room.test_files()
            judging = Judge(room, product, recording, Path(folder), 600, tests)
            judging = judging._replace(cpu_s=1 + 1.5 * judging.sound())
            # To note what each test enters takes as long as some dozens of mutants.
            if room.replayed and len(chosen) > 100 and not options.tests:
                judging = judging._replace(reach=judging.reached())
            for mutant, outcome in judging.judged(chosen, options.jobs):
                counts[outcome] += 1
                if (outcome == SURVIVED) is not (mutant in survivors):
                    wrong.append(f"{outcome}: {mutant}")
                    print(wrong[-1], flush=True)
    outcomes = ", ".join(f"{counts[outcome]} {outcome}" for outcome in (KILLED, TIMEOUT, SURVIVED))
    print(
        f"{room.name}: {len(hand)} mutants by hand, {len(machine)} mechanical; {len(chosen)} judged: "
        f"{outcomes} in {time.monotonic() - started:.0f} s",
        flush=True,
    )
    return [f"{room.name}: {what}" for what in wrong]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--room", action="append", choices=ROOMS, help="judge this room; may be repeated")
    parser.add_argument(
        "--every", type=int, default=1, help="judge every nth mechanical mutant; 0 judges none"
    )
    parser.add_argument("--hand-every", type=int, default=1, help="judge every nth mutant by hand")
    parser.add_argument("--changed", nargs="?", const="main", metavar="BASE", help="judge changed lines only")
    parser.add_argument("--only", default="", help="judge only mutants whose description contains this")
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

    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        # A copy, so that the sources can be edited meanwhile.
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
