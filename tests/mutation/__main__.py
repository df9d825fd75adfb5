"""Breaks the engine on purpose, one mutant after another, and shows that each is found out.

    python -m tests.mutation              every mutant, some minutes
    python -m tests.mutation --every 10   those by hand, and every tenth of the mechanical ones

Each mutant is a copy of the engine in which one place differs. It is killed when it answers otherwise than
the executable specification, or not in time. One that survives must stand in survivors.toml, with the reason
why it changes no verdict. An entry that no mutant needs is an error, as is a mutant by hand that fits not.
Lines on which nothing but cost depends are named there once, under `cost`, and no mutants are made of them.
"""

import argparse
import compileall
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.mutation.court import KILLED, SURVIVED, TIMEOUT, Court
from tests.mutation.mechanical import Mutant, mutants_of
from tests.mutation.recording import record

HERE: Final = Path(__file__).parent
ENGINE: Final = HERE.parents[1] / "engine"
FILES: Final = (
    "triggers.py",
    "requirements.py",
    "buckets.py",
    "persistence/capturing.py",
    "state/columns.py",
    "compiler.py",
    "detector.py",
    "state/eviction.py",
    "state/expiry.py",
    "values.py",
    "index.py",
    "state/minima.py",
    "persistence/packing.py",
    "rule_set.py",
    "persistence/saved.py",
    "ir.py",
    "state/slices.py",
    "state/tables.py",
    "state/tidying.py",
    "temporal.py",
    "codegen.py",
)
WITH_TEMPLATES: Final = ("compiler.py", "ir.py", "temporal.py", "codegen.py")


def by_hand(engine: Path) -> list[Mutant]:
    """Give the mutants of by_hand.toml. Each must fit in exactly one place."""
    found = []
    for entry in tomllib.loads((HERE / "by_hand.toml").read_text(encoding="utf-8"))["mutant"]:
        text = (engine / "evaluation" / entry["file"]).read_text(encoding="utf-8")
        if text.count(entry["find"]) != 1:
            sys.exit(f"by_hand.toml, `{entry['title']}`: fits in {text.count(entry['find'])} places")
        start = text.index(entry["find"])
        found.append(Mutant(entry["file"], start, entry["find"], entry["put"], "by hand", entry["title"]))
    return found


def mechanical(engine: Path) -> list[Mutant]:
    """Give all mechanical mutants, file by file."""
    found = []
    for file in FILES:
        text = (engine / "evaluation" / file).read_text(encoding="utf-8")
        found += mutants_of(file, text, templates=file in WITH_TEMPLATES)
    return found


def listed(mutants: Iterable[Mutant]) -> tuple[set[Mutant], set[Mutant], list[str]]:
    """Give the mutants that survivors.toml says survive, all that remain to be killed, and idle entries."""
    entries = tomllib.loads((HERE / "survivors.toml").read_text(encoding="utf-8"))
    by_place = dict[tuple[str, ...], set[Mutant]]()
    for mutant in mutants:
        for place in ((mutant.line,), (mutant.line, mutant.change)):
            by_place.setdefault((mutant.file, mutant.where, *place), set()).add(mutant)
    places = [
        (entry["file"], entry["where"], entry["line"], change)
        for entry in entries["survivor"]
        for change in entry["changes"]
    ]
    costs = [
        (entry["file"], place["where"], line)
        for entry in entries["cost"]
        for place in entry["places"]
        for line in place["lines"]
    ]
    idle = [", ".join(place) for place in {*places, *costs} - set(by_place)]
    cost = {mutant for place in costs for mutant in by_place.get(place, ())}
    survivors = {mutant for place in places for mutant in by_place.get(place, ())}
    idle += [f"{mutant}, and of no more than cost" for mutant in survivors & cost]
    return survivors, set(mutants) - survivors - cost, idle


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="judge only every so-manieth mechanical mutant")
    parser.add_argument("--only", default="", help="judge only mutants in whose description this stands")
    parser.add_argument("--effort", type=int, default=1, help="judge by so many times as many scripts")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="so many at once")
    options = parser.parse_args()

    started = time.monotonic()
    counts = dict.fromkeys((KILLED, TIMEOUT, SURVIVED), 0)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        # Whoever edits the engine meanwhile does not disturb: this copy of it is judged.
        engine = Path(folder) / "engine"
        shutil.copytree(ENGINE, engine, ignore=shutil.ignore_patterns("__pycache__", "runtime"))
        # So a copy of a copy has to compile the file that is broken, and no other.
        compileall.compile_dir(engine, quiet=1)
        hand, machine = by_hand(engine), mechanical(engine)
        survivors, others, idle = listed(machine)
        wrong = [f"survivors.toml speaks of what is not there: {entry}" for entry in idle]
        # Counted over all of them: what is written about survivors does not change who else is chosen.
        sampled = [
            mutant for mutant in machine[min(1, options.every - 1) :: options.every] if mutant in others
        ]
        chosen = [mutant for mutant in hand + sampled if options.only in str(mutant)]
        if options.every == 1:
            chosen += [mutant for mutant in survivors if options.only in str(mutant)]

        court = Court(engine, record(options.effort), Path(folder), cpu_s=600)
        court = court._replace(cpu_s=1 + 1.5 * court.sound())
        for number, (mutant, outcome) in enumerate(court.judged(chosen, options.jobs), start=1):
            counts[outcome] += 1
            if (outcome == SURVIVED) is not (mutant in survivors):
                wrong.append(f"{outcome}: {mutant}")
            if sys.stderr.isatty():
                print(f"\r{number} of {len(chosen)}", end="", file=sys.stderr)
        if options.every == 1:
            # That took a while: were the tests changed meanwhile, what they found would mean nothing.
            court.sound()
    print(f"{len(hand)} mutants by hand, {len(machine)} mechanical; {len(chosen)} judged:", end=" ")
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), end=" ")
    print(f"in {time.monotonic() - started:.0f} s")
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
