"""Breaks the engine on purpose, one mutant after another, and shows that each is found out.

    python -m tests.mutation              every mutant, some minutes
    python -m tests.mutation --every 10   those by hand, and every tenth of the mechanical ones

Each mutant is a copy of the engine in which one place differs. It is killed when it answers otherwise than
the executable specification, or not in time. One that survives must stand in survivors.toml, with the reason
why it changes no verdict. An entry that no mutant needs is an error, as is a mutant by hand that fits not.
"""

import argparse
import contextlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.mutation.mechanical import Mutant, mutants_of
from tests.mutation.recording import Recording, record

HERE: Final = Path(__file__).parent
ENGINE: Final = HERE.parents[1] / "engine"
FILES: Final = ("temporal.py", "slices.py", "compiler.py", "facts.py", "detector.py", "saved.py")
WITH_TEMPLATES: Final = ("temporal.py", "compiler.py")
UNIT_TESTS: Final = [
    HERE.parent / "unit" / "evaluation" / name for name in ("test_detector.py", "test_slices.py")
]
RELOADED: Final = ("engine.evaluation", "tests.bounded", "tests.conformance", "tests.differential")
MEMORY_BYTES: Final = 2 << 30

SURVIVED, KILLED, TIMEOUT = "survived", "killed", "timeout"


class Judged(NamedTuple):
    mutant: Mutant
    outcome: str


def by_hand() -> list[Mutant]:
    """Give the mutants of by_hand.toml. Each must fit in exactly one place."""
    found = []
    for entry in tomllib.loads((HERE / "by_hand.toml").read_text())["mutant"]:
        text = (ENGINE / "evaluation" / entry["file"]).read_text()
        if text.count(entry["find"]) != 1:
            sys.exit(f"by_hand.toml, `{entry['title']}`: fits in {text.count(entry['find'])} places")
        start = text.index(entry["find"])
        found.append(Mutant(entry["file"], start, entry["find"], entry["put"], "by hand", entry["title"]))
    return found


def mechanical() -> list[Mutant]:
    """Give all mechanical mutants, file by file."""
    found = []
    for file in FILES:
        text = (ENGINE / "evaluation" / file).read_text(encoding="utf-8")
        found += mutants_of(file, text, templates=file in WITH_TEMPLATES)
    return found


def listed(mutants: Iterable[Mutant]) -> tuple[set[Mutant], list[str]]:
    """Give the mutants that survivors.toml speaks of, and the entries that speak of none."""
    entries = tomllib.loads((HERE / "survivors.toml").read_text())["survivor"]
    spoken, idle = set[Mutant](), []
    for entry in entries:
        wanted = (entry["file"], entry["where"], entry["line"])
        meant = {
            mutant
            for mutant in mutants
            if (mutant.file, mutant.where, mutant.line) == wanted and mutant.change in entry["changes"]
        }
        missing = set(entry["changes"]) - {mutant.change for mutant in meant}
        idle += [
            f"{entry['file']}, {entry['where']}: `{entry['line']}`: {change}" for change in sorted(missing)
        ]
        spoken |= meant
    return spoken, idle


class Court(NamedTuple):
    """What a mutant is judged by: a recording, a folder for copies of the engine, and a bound on time."""

    recording: Recording
    folder: Path
    cpu_s: float

    def judge(self, mutant: Mutant | None) -> int:
        """Judge a mutant, or the engine as it is, in a process of its own; give the id of that process."""
        process = os.fork()
        if process:
            return process
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        # Processor time, not the clock's: on a busy machine slowness is no sign. The signal ends the process.
        signal.setitimer(signal.ITIMER_PROF, self.cpu_s)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        code = 1
        with contextlib.suppress(BaseException):
            code = int(self.found_out(mutant))
        os._exit(code)

    def found_out(self, mutant: Mutant | None) -> bool:
        """Tell whether a copy of the engine with this mutant in it answers otherwise than recorded."""
        copy = self.folder / str(os.getpid())
        shutil.copytree(ENGINE, copy / "engine", ignore=shutil.ignore_patterns("__pycache__", "runtime"))
        if mutant:
            file = copy / "engine" / "evaluation" / mutant.file
            file.write_text(mutant.applied(file.read_text(encoding="utf-8")), encoding="utf-8")
        for name in [name for name in sys.modules if name == "engine" or name.startswith(RELOADED)]:
            del sys.modules[name]
        sys.path.insert(0, str(copy))
        sys.dont_write_bytecode = True
        from tests.mutation.replay import Detector, differences  # noqa: PLC0415 -- finds the copy's engine

        assert str(sys.modules[Detector.__module__].__file__).startswith(str(copy))
        if next(differences(self.recording), None) is not None:
            return True
        # What no script shows (messages, limits, batches) is left to the tests of these parts.
        quietly = ("-q", "-x", "-p", "no:cacheprovider", "--assert=plain")
        return pytest.main([*quietly, *map(str, UNIT_TESTS)]) != pytest.ExitCode.OK

    def sound(self) -> float:
        """Give the processor seconds that the engine needs as it is. If it fails, nothing can be judged."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        _, status = os.waitpid(self.judge(None), 0)
        if status:
            sys.exit(
                "the engine as it is does not agree with the specification: run the property tests first"
            )
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def judged(mutants: list[Mutant], court: Court, jobs: int) -> Iterator[Judged]:
    """Judge all mutants, so many at once, and give each with its outcome as it is known."""
    waiting, running = list(reversed(mutants)), dict[int, Mutant]()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            running[court.judge(mutant)] = mutant
        process, status = os.wait()
        outcome = TIMEOUT if os.WIFSIGNALED(status) else KILLED if os.WEXITSTATUS(status) else SURVIVED
        yield Judged(running.pop(process), outcome)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="judge only every so-manieth mechanical mutant")
    parser.add_argument("--only", default="", help="judge only mutants in whose description this stands")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="so many at once")
    options = parser.parse_args()

    started = time.monotonic()
    hand, machine = by_hand(), mechanical()
    survivors, idle = listed(machine)
    whole = options.every == 1
    chosen = hand + (machine if whole else [m for m in machine if m not in survivors][:: options.every])
    chosen = [mutant for mutant in chosen if options.only in str(mutant)]
    counts = dict.fromkeys((KILLED, TIMEOUT, SURVIVED), 0)
    wrong = [f"survivors.toml speaks of what is not there: {entry}" for entry in idle]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        court = Court(record(), Path(folder), cpu_s=600)
        court = court._replace(cpu_s=2 + 4 * court.sound())
        for number, (mutant, outcome) in enumerate(judged(chosen, court, options.jobs), start=1):
            counts[outcome] += 1
            if (outcome == SURVIVED) is not (mutant in survivors):
                wrong.append(f"{outcome}: {mutant}")
            if sys.stderr.isatty():
                print(f"\r{number} of {len(chosen)}", end="", file=sys.stderr)
    print(f"{len(hand)} mutants by hand, {len(machine)} mechanical; {len(chosen)} judged:", end=" ")
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), end=" ")
    print(f"in {time.monotonic() - started:.0f} s")
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
