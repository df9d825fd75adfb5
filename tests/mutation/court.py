"""Judges mutants, each in a process and a copy of the engine of its own."""

import contextlib
import gc
import os
import resource
import shutil
import signal
import sys
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.mutation.mechanical import Mutant
from tests.mutation.recording import Recording

TESTS: Final = Path(__file__).parents[1]
UNIT_TESTS: Final = [
    TESTS / "unit" / "evaluation" / name
    for name in ("test_detector.py", "test_slices.py", "test_eviction.py")
]
RELOADED: Final = (
    "engine.evaluation",
    "tests.conformance",
    "tests.differential",
    "tests.worlds.evictions",
    "tests.worlds.long_texts",
)
MEMORY_BYTES: Final = 2 << 30

SURVIVED, KILLED, TIMEOUT = "survived", "killed", "timeout"


class Judged(NamedTuple):
    """A mutant, and what became of it."""

    mutant: Mutant
    outcome: str


class Court(NamedTuple):
    """What mutants are judged by: the engine, a recording, a folder for copies, and a bound on time."""

    engine: Path
    recording: Recording
    folder: Path
    cpu_s: float

    def judge(self, mutant: Mutant | None) -> int:
        """Judge a mutant, or the engine as it is, in a process of its own; give the id of that process."""
        copy = self.folder / (f"{mutant.file}-{mutant.start}-{abs(hash(mutant))}" if mutant else "sound")
        shutil.copytree(self.engine, copy / "engine")
        if mutant:
            file = copy / "engine" / "evaluation" / mutant.file
            Path(cache_from_source(file)).unlink(missing_ok=True)
            file.write_text(mutant.applied(file.read_text(encoding="utf-8")), encoding="utf-8")
        process = os.fork()
        if process:
            return process
        # What the parent holds is no garbage, and need not be looked through for any.
        gc.freeze()
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        # Processor time, not the clock's: on a busy machine slowness is no sign. The signal ends the process.
        signal.setitimer(signal.ITIMER_PROF, self.cpu_s)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        code = 1
        with contextlib.suppress(BaseException):
            code = int(self.found_out(copy))
        os._exit(code)

    def found_out(self, copy: Path) -> bool:
        """Tell whether the engine in this folder answers otherwise than recorded."""
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
        process = self.judge(None)
        _, status = os.waitpid(process, 0)
        shutil.rmtree(self.folder / "sound")
        if status:
            sys.exit("the engine as it is fails: run the property tests and tests/unit/evaluation first")
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    def judged(self, mutants: list[Mutant], jobs: int) -> Iterator[Judged]:
        """Judge all mutants, so many at once, and give each with its outcome as it is known."""
        waiting, running = list(reversed(mutants)), dict[int, Mutant]()
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant = waiting.pop()
                running[self.judge(mutant)] = mutant
            process, status = os.wait()
            outcome = TIMEOUT if os.WIFSIGNALED(status) else KILLED if os.WEXITSTATUS(status) else SURVIVED
            yield Judged(running.pop(process), outcome)
