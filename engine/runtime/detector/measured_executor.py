"""Executes operations, and measures its calls."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from engine.evaluation.wire.events import Refused
from engine.runtime.contract.measurements.figures import DetectorFigures
from engine.runtime.contract.measurements.measures import (
    ACTIVATION_SECONDS,
    BATCH_OPERATIONS,
    BATCH_SECONDS,
    JOURNAL_SECONDS,
    JOURNAL_SYNC_SECONDS,
    SNAPSHOT_PAUSE_SECONDS,
    SNAPSHOT_SECONDS,
    Measures,
    Totals,
)
from engine.runtime.contract.requests.calls import Activated
from engine.runtime.contract.requests.operations import EVALUATIONS, Operation, Reply, Took
from engine.runtime.detector.active_detector import ActiveDetector
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.detector.turns import FREE, Turn
from snapshots.store import Store


class MeasuredExecutor(OperationExecutor):
    """Measures the calls that succeed, in `measures`."""

    def __init__(self, *arguments: Any, measures: Measures, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.measures = measures
        self._journal_s = 0.0
        """How long the last batch took to become durable."""

    def activate(self, detector_id: str, epoch: int) -> Activated:
        began_s = time.perf_counter()
        activated = super().activate(detector_id, epoch)
        self.measures.observe(ACTIVATION_SECONDS, time.perf_counter() - began_s)
        return activated

    def handle(self, batch: Sequence[Operation], turn: Turn = FREE) -> Reply:
        active = self._active
        before = (0, 0, 0) if active is None else _totals(active)
        shadows_before = None if active is None or not active.detector.shadows else _tally(active)
        self._journal_s = 0.0
        began_s = time.perf_counter()
        reply = super().handle(batch, turn)
        measures = self.measures
        took_s = time.perf_counter() - began_s
        reply.took = Took(0.0, took_s - self._journal_s, self._journal_s)
        measures.observe(BATCH_SECONDS, took_s)
        measures.observe(BATCH_OPERATIONS, len(batch))
        if active is not None:
            measures.count_totals(before, _totals(active))
            if active.detector.refused:
                measures.count_refused(active.detector.refused)
                active.detector.refused.clear()
            if shadows_before is not None:
                measures.count_shadows(shadows_before, _tally(active))
        return reply

    def begin_saving(self) -> bool:
        with self._timed(SNAPSHOT_PAUSE_SECONDS):
            return super().begin_saving()

    def begin_fork(self, fork_id: str) -> Callable[[], None]:
        with self._timed(SNAPSHOT_PAUSE_SECONDS):
            return super().begin_fork(fork_id)

    def finish_saving(self) -> None:
        with self._timed(SNAPSHOT_SECONDS):
            super().finish_saving()

    def figures(self) -> DetectorFigures | None:
        """Return what the active detector holds, without its epoch; None if there is none.

        Callable from any thread.
        """
        active = self._active
        if active is None:
            return None
        detector = active.detector
        return DetectorFigures(
            active.detector_id,
            0,
            rules=len(detector.live),
            keys=detector.histories.live,
            state_bytes=detector.histories.bytes,
            journal_bytes=active.store.journal_bytes,
            events=detector.events_seen,
        )

    def _make_durable(self, *arguments: Any) -> str | None:
        # These two run for every batch, and `activate` often: a context manager takes microseconds.
        began_s = time.perf_counter()
        missing = super()._make_durable(*arguments)
        self._journal_s = time.perf_counter() - began_s
        self.measures.observe(JOURNAL_SECONDS, self._journal_s)
        return missing

    def _note_refusal(self, operation: Operation, refused: Refused) -> None:
        if operation.kind in EVALUATIONS:
            self.measures.count_refused({refused.entries[0].code: 1})

    def _sync(self, store: Store) -> None:
        began_s = time.perf_counter()
        super()._sync(store)
        self.measures.observe(JOURNAL_SYNC_SECONDS, time.perf_counter() - began_s)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began_s = time.perf_counter()
        yield
        self.measures.observe(name, time.perf_counter() - began_s)


def _totals(active: ActiveDetector) -> Totals:
    detector = active.detector
    return detector.events_seen, detector.actions, detector.keys_evicted


def _tally(active: ActiveDetector) -> dict[str, int]:
    return active.detector.shadows.tally.copy()
