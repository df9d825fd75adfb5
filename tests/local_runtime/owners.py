"""A detector's folder and its successive owners, in this process."""

import errno
import json
from pathlib import Path
from typing import Any

from engine.evaluation.detector import Detector
from engine.evaluation.wire.events import Done, Refused
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.detector.persistence import journal_entries
from engine.runtime.detector.persistence.journal_entries import JournalEntry
from snapshots.inspection import read_only
from tests.faulty_files import FaultyFiles
from tests.local_runtime.catalogues import newborn

ONE = "1" * 32
TWO = "2" * 32
NOW_US = 10**12


def event(timestamp_ms: float = 1000, **fields: Any) -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": fields, "timestamp_ms": timestamp_ms}}).encode())


def codes(answer: Any) -> list[int]:
    assert isinstance(answer, Refused), answer
    return [entry.code for entry in answer.entries]


class Owners:
    """`actor` is the current owner, and `activated` the result of its activation."""

    def __init__(
        self,
        data: Path,
        detector_id: str = ONE,
        *,
        files: FaultyFiles | None = None,
        now_us: int = NOW_US,
        **settings: Any,
    ) -> None:
        self.data = data
        self.detector_id = detector_id
        self.folder = data / "detectors" / detector_id
        self.files = files or FaultyFiles()
        self.settings = settings
        self.now_us = now_us
        self.epoch = 0
        newborn(data, detector_id)
        self.activate()

    def activate(self) -> OperationExecutor:
        """Create the next owner. The previous one may have died."""
        self.epoch += 1
        settings = RuntimeSettings(data=self.data, **self.settings)
        actor = OperationExecutor(settings, files=self.files, now_us=lambda: self.now_us)
        self.activated = actor.activate(self.detector_id, self.epoch)
        self.actor = actor
        return actor

    def crash(self) -> None:
        self.actor.discard()
        self.activate()

    def rest(self) -> None:
        self.actor.passivate()
        self.activate()

    def save(self) -> bool:
        """Save a snapshot if there is anything to save."""
        begun = self.actor.begin_saving()
        if begun:
            self.actor.finish_saving()
        return begun

    def full(self, error: int = errno.ENOSPC) -> None:
        """Make writes to the disk fail."""
        self.files.error = error
        self.files.fail_next("create", "write", "reserve", "rename")
        self.files.for_good = True

    def ask(self, *operations: Operation) -> list[Any]:
        """Return the results of a batch, or the code of a refusal."""
        reply = self.actor.handle(operations)
        assert reply.crash is None, reply.crash
        return [
            json.loads(one.result) if isinstance(one, Done) else one.entries[0].code for one in reply.answers
        ]

    def __call__(self, operation: Operation) -> Any:
        [result] = self.ask(operation)
        return result

    def event(self, at_ms: float, **fields: Any) -> Any:
        """Evaluate an event, and return its actions."""
        return self(event(at_ms, **fields))["actions"]

    @property
    def detector(self) -> Detector:
        return self.actor._the_active().detector

    @property
    def position(self) -> tuple[int | None, int]:
        return self.detector.clock_us, self.detector.events_seen

    def entries(self) -> list[JournalEntry]:
        """Return the contents of the journal after the newest snapshot."""
        records = read_only(self.folder, self.files).records
        return [entry for one in records for entry in journal_entries.decode(one.payload).entries]
