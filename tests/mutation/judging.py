"""Judges mutants, each in its own process and its own copy of the product."""

import contextlib
import gc
import os
import pickle
import resource
import shutil
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from engine.evaluation.operators import table as operators
from engine.language.forms.table import FORM_OF
from tests.mutation.mutants import Mutant
from tests.mutation.reaching import Reach, Recorder, Selection
from tests.mutation.recording import Recording
from tests.mutation.rooms import ROOT, Room

PACKAGES: Final = ("engine", "snapshots", "api")
IMPORTED: Final = (*PACKAGES, "rule_detector_client")
RELOADED_FOR_REPLAY: Final = (
    "engine.evaluation",
    "tests.conformance",
    "tests.differential",
    "tests.worlds.evictions",
    "tests.worlds.long_texts",
)
"""The modules imported again from the mutant's copy. The classes of conditions stay those of the
recording."""
MEMORY_BYTES: Final = 2 << 30

SURVIVED, KILLED, TIMEOUT = "survived", "killed", "timeout"


class Judged(NamedTuple):
    """A mutant, and its outcome."""

    mutant: Mutant
    outcome: str


class Judge(NamedTuple):
    """Judges the mutants of a room, from a copy of the product, within this many processor seconds each."""

    room: Room
    product: Path
    recording: Recording | None
    folder: Path
    cpu_s: float
    test_files: list[Path]
    """Those that killed most recently come first, because the next mutant is near the last one."""
    reach: Reach | None = None
    """What each test enters. If None, all tests judge each mutant."""

    def judge(self, mutant: Mutant | None) -> int:
        """Judge a mutant, or the product as it is, in a new process; give the id of that process."""
        copy = self.folder / (f"{mutant.start}-{abs(hash(mutant))}" if mutant else "sound")
        copy.mkdir()
        for package in PACKAGES:
            if package == self.room.package:
                shutil.copytree(self.product / package, copy / package, copy_function=os.link)
            else:
                (copy / package).symlink_to(self.product / package)
        if mutant:
            file = copy / self.room.folder / mutant.file
            applied = mutant.applied(file.read_text(encoding="utf-8"))
            # All copies share the file, so this copy gets its own.
            file.unlink()
            file.write_text(applied, encoding="utf-8")
            Path(cache_from_source(file)).unlink(missing_ok=True)
        process = os.fork()
        if process:
            return process
        # The parent's objects are no garbage, so the collector need not scan them.
        gc.freeze()
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        # Processor time, so that a busy machine does not matter. The signal ends the process.
        signal.setitimer(signal.ITIMER_PROF, self.cpu_s)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        code = 1
        with contextlib.suppress(BaseException):
            code = self.noticed(copy, mutant)
        os._exit(code)

    def noticed(self, copy: Path, mutant: Mutant | None) -> int:
        """Return what shows that the product in this folder is broken, as the exit status of a process.

        0 is nothing, 1 is the recording or an error, and from 2 on it is a test file, by its place among the
        sorted ones.
        """
        sys.path[:0] = [str(copy), str(copy / "api/client")]
        sys.dont_write_bytecode = True
        if self.recording is None:
            _forget(*IMPORTED, "tests")
            for package in IMPORTED:
                assert str(import_module(package).__file__).startswith(str(copy))
        else:
            _forget_what_is_replayed()
            from tests.mutation.replay import differences  # noqa: PLC0415 -- finds the copy's engine

            if next(differences(self.recording), None) is not None:
                return 1
        assert str(sys.modules[self.room.package].__file__).startswith(str(copy))
        tests = self.reach.tests(mutant) if self.reach and mutant else None
        # One file after another, so that no file is collected after the one that kills.
        for path in self.test_files:
            file = f"{path.relative_to(ROOT)}::"
            if tests is not None and not any(test.startswith(file) for test in tests):
                continue
            code = self._run(path, [Selection(tests)] if tests is not None else [])
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                return 2 + sorted(self.test_files).index(path)
        return 0

    def _run(self, path: Path, plugins: list[object]) -> int:
        options = ("-q", "-x", "-p", "no:cacheprovider", "--assert=plain", "--rootdir", str(ROOT))
        return pytest.main([*options, "-m", self.room.marks, str(path)], plugins)

    def sound(self) -> float:
        """Return the processor seconds that the unchanged product needs. Fails if the product fails."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        process = self.judge(None)
        _, status = os.waitpid(process, 0)
        shutil.rmtree(self.folder / "sound")
        if status:
            sys.exit(f"{self.room.name} fails without any mutation; its tests: {', '.join(self.room.tests)}")
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    def reached(self) -> Reach:
        """Run all tests once, in a new process, and return what each of them enters."""
        file = self.folder / "reach"
        process = os.fork()
        if not process:
            code = 1
            with contextlib.suppress(BaseException):
                recorder = Recorder(self.product / self.room.folder)
                _forget(*PACKAGES, exactly=True)
                _forget_what_is_replayed()
                sys.path.insert(0, str(self.product))
                import_module(self.room.folder.replace("/", "."))
                code = max(self._run(path, [recorder]) for path in self.test_files)
                file.write_bytes(pickle.dumps(recorder.reach))
            os._exit(code)
        assert os.waitpid(process, 0)[1] == 0, "the tests fail while what they enter is noted"
        reach = pickle.loads(file.read_bytes())
        assert isinstance(reach, Reach)
        return reach

    def judged(self, mutants: list[Mutant], jobs: int) -> Iterator[Judged]:
        """Judge all mutants, this many at once, and yield each with its outcome when known."""
        waiting, running = list(reversed(mutants)), dict[int, Mutant]()
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant = waiting.pop()
                running[self.judge(mutant)] = mutant
            process, status = os.wait()
            code = 0 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if code >= 2:
                killer = sorted(self.test_files)[code - 2]
                self.test_files.remove(killer)
                self.test_files.insert(0, killer)
            outcome = TIMEOUT if os.WIFSIGNALED(status) else KILLED if code else SURVIVED
            yield Judged(running.pop(process), outcome)


def _forget_what_is_replayed() -> None:
    # The language stays, and the copy's operators register their forms in it again.
    operators.remove([FORM_OF[node] for node in operators.OPERATORS])
    _forget("engine", exactly=True)
    _forget(*RELOADED_FOR_REPLAY)


def _forget(*names: str, exactly: bool = False) -> None:
    """Have these modules, and those below them, imported again. Those that judge stay."""
    below = () if exactly else tuple(f"{name}." for name in names)
    for name in list(sys.modules):
        if (name in names or name.startswith(below)) and not name.startswith("tests.mutation"):
            del sys.modules[name]
