"""Random orders of calls, deaths and restarts of detectors, against the executable specification."""

import json
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.language.limits import DEFAULT_LIMITS
from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from snapshots.files import OpenFile, RealFiles
from tests.crash.actors.actor_kills import START_US
from tests.crash.model.oracle import Oracle
from tests.faulty_files import Died, FaultyFiles

DETECTORS_MAX = 3
SEEDS = st.integers(0, 2**32)
NEVER = 10**9
CALLS = st.one_of(st.just(NEVER), st.integers(0, 30))
"""The call of a file at which a process dies."""


class ClosedOnce:
    """A file that may be closed again by the cleanup after a dead process."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._file.close()


class LeftOpen(RealFiles):
    """Real files, with all that were ever made."""

    def __init__(self) -> None:
        self.made: list[ClosedOnce] = []

    def create(self, path: Path) -> OpenFile:
        self.made.append(ClosedOnce(super().create(path)))
        return self.made[-1]


class DetectorMachine(RuleBasedStateMachine):
    """A data folder with its directory, and one actor, which activates one detector after another.

    A process dies at any call of a file, with nothing tidied up; what it had written stays.
    """

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory(prefix="machine-")
        self.data = Path(self.temporary.name)
        self.real = LeftOpen()
        self.oracles: dict[str, Oracle] = {}
        self.asleep_in_doubt: dict[str, Sequence[Any]] = {}
        """The request to a detector when its process died."""
        self.actor: OperationExecutor | None = None
        self.active_id = ""
        self.created = 0

    @initialize()
    def start(self) -> None:
        self.open()

    def open(self) -> None:
        self.files = FaultyFiles(dies=True, files=self.real)
        self.directory = Catalogue(
            RuntimeSettings(data=self.data, snapshots_kept=2, lock_wait_s=0), files=self.files
        )
        # A death during a write leaves a torn record, and nothing worse.
        assert all(".torn" in told for told in self.directory.open().damage)

    def survives(self, files: FaultyFiles, calls: int, work: Callable[[], object]) -> bool:
        """Do something in a process that dies at that file call, if it reaches it."""
        files.fails_at = len(files.calls) + calls
        try:
            work()
        except Died:
            return False
        files.fails_at = None
        return True

    # -- the directory ---------------------------------------------------------------------------------------

    def in_directory(self, calls: int, work: Callable[[], object]) -> None:
        """Do something in the directory; if it dies, open the next one."""
        if not self.survives(self.files, calls, work):
            self.reopen()

    def reopen(self) -> None:
        """Open another directory instead of the one that died and released its lock."""
        self.directory._lock.release()
        self.open()

    def catalogue(self) -> set[str]:
        return set(self.directory.changes(0, 0).detectors.whole or ())

    @precondition(lambda self: len(self.oracles) < DETECTORS_MAX)
    @rule(seed=SEEDS, calls=CALLS)
    def create(self, seed: int, calls: int) -> None:
        self.created += 1
        detector_id = f"{self.created:032x}"
        self.in_directory(calls, lambda: self.directory.create_detectors({detector_id: "one"}))
        if detector_id in self.catalogue():
            self.oracles[detector_id] = Oracle(random.Random(seed).choice, START_US)

    @precondition(lambda self: self.oracles)
    @rule(chosen=SEEDS, calls=CALLS)
    def delete(self, chosen: int, calls: int) -> None:
        detector_id = sorted(self.oracles)[chosen % len(self.oracles)]
        if detector_id == self.active_id:
            self.death()

        def delete() -> None:
            self.directory.delete_detector(detector_id)
            self.directory.purge_detector(detector_id)

        self.in_directory(calls, delete)
        if detector_id not in self.catalogue():
            del self.oracles[detector_id]
            self.asleep_in_doubt.pop(detector_id, None)

    @rule()
    def restart(self) -> None:
        """The whole service dies, and comes back."""
        self.death()
        self.reopen()

    # -- the actor -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.oracles and not self.active_id)
    @rule(chosen=SEEDS, calls=CALLS)
    def activate(self, chosen: int, calls: int) -> None:
        detector_id = sorted(self.oracles)[chosen % len(self.oracles)]
        # Not twice in a row at one record: that would be poison.
        if not self.activated(detector_id, calls):
            assert self.activated(detector_id, NEVER)
        self.active_id = detector_id
        in_doubt = self.asleep_in_doubt.pop(detector_id, ())
        self.oracles[detector_id].settle(in_doubt, self.listed(), self.position()[0])

    def activated(self, detector_id: str, calls: int) -> bool:
        self.actor_files = FaultyFiles(dies=True, files=self.real)
        settings = RuntimeSettings(data=self.data, snapshots_kept=2)
        actor = self.actor = OperationExecutor(settings, files=self.actor_files)
        epoch = self.directory.lease(detector_id)
        assert epoch is not None
        return self.survives(self.actor_files, calls, lambda: actor.activate(detector_id, epoch))

    @precondition(lambda self: self.active_id)
    @rule(calls=CALLS, batches=st.integers(1, 5))
    def ask(self, calls: int, batches: int) -> None:
        """Ask several times; the last may be too much."""
        oracle = self.oracles[self.active_id]
        for left in reversed(range(batches)):
            if not oracle.full and self.active_id:
                self.ask_once(oracle, NEVER if left else calls)

    def ask_once(self, oracle: Oracle, calls: int) -> None:
        asked = oracle.batch() if oracle.reference.rules else [oracle.add_rule(), oracle.add_rule()]
        answers: list[Any] = []

        def handle() -> None:
            assert self.actor is not None
            answers.extend(self.actor.handle([one.operation for one in asked]).answers)

        if self.survives(self.actor_files, calls, handle):
            oracle.acknowledged(asked, answers)
        else:
            self.asleep_in_doubt[self.active_id] = asked
            self.death()

    @precondition(lambda self: self.active_id)
    @rule(calls=CALLS)
    def snapshot(self, calls: int) -> None:
        def save() -> None:
            assert self.actor is not None
            if self.actor.begin_saving():
                self.actor.finish_saving()

        if not self.survives(self.actor_files, calls, save):
            self.death()

    @precondition(lambda self: self.active_id)
    @rule()
    def passivate(self) -> None:
        assert self.actor is not None
        self.actor.passivate()
        self.actor, self.active_id = None, ""

    @precondition(lambda self: self.active_id)
    @rule()
    def death(self) -> None:
        self.actor, self.active_id = None, ""

    # -- what must hold --------------------------------------------------------------------------------------

    def listed(self) -> list[dict[str, Any]]:
        assert self.actor is not None
        (answer,) = self.actor.handle([ops.rules()]).answers
        rules = json.loads(answer.result)["rules"]
        return [{name: value for name, value in one.items() if name != "detectorId"} for one in rules]

    def position(self) -> tuple[int | None, int]:
        assert self.actor is not None
        detector = self.actor._active.detector
        assert detector.limits == DEFAULT_LIMITS
        return detector.clock_us, detector.events_seen

    @invariant()
    def there_is_neither_a_ghost_nor_a_loss(self) -> None:
        if not hasattr(self, "directory"):
            return
        assert self.catalogue() == set(self.oracles)
        folders = self.data / "detectors"
        assert {path.name for path in folders.glob("*")} == set(self.oracles)
        if self.active_id:
            assert self.position() == self.oracles[self.active_id].position()

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.directory._lock.release()
        for file in self.real.made:
            file.close()
        self.temporary.cleanup()
