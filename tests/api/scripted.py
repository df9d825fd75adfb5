"""A backend that answers as a test tells it to, for what the real one does only when the world breaks."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

from engine.evaluation.wire.events import Answer, Done
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.figures import ClusterFigures, Counts, ProcessFigures, Status
from engine.runtime.contract.measures import COUNTERS
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.tokens import KnownToken
from engine.runtime.front_end.memory_budget import MemoryBudget
from engine.runtime.front_end.permits import Permit

TOKEN = "a-token-that-is-known"
DETECTOR = "a" * 32
Answering = Callable[[str, Operation], Awaitable[Answer]]

NO_ACTIONS = Done(b'{"actions":[]}')


class ScriptedBackend:
    """Knows one token and one detector. `answers` is called for each operation; what it raises is raised."""

    def __init__(self) -> None:
        self.answers: Answering = self._nothing
        self.memory = MemoryBudget(1024 * 1024 * 1024)
        self.operations: list[Operation] = []
        self.under_way = 0
        self.cancelled = 0
        self.stale: Exception | None = None
        self.lookups = 0
        self.reasons: list[str] = []
        self.problems: list[str] = []
        self.front_end_counts: dict[tuple[str, ...], float] = {}

    async def _nothing(self, detector_id: str, operation: Operation) -> Answer:
        return NO_ACTIONS

    def permit(self, digest: bytes) -> Permit | None:
        if self.stale is not None:
            raise self.stale
        known = digest == hashlib.sha256(TOKEN.encode()).digest()
        return Permit(KnownToken("1" * 32, "scripted")) if known else None

    async def permit_asked(self, digest: bytes) -> Permit | None:
        self.lookups += 1
        return None

    def exists(self, detector_id: str) -> bool:
        return detector_id == DETECTOR

    async def detector(self, detector_id: str) -> SimpleNamespace:
        if detector_id != DETECTOR:
            raise Refusal(Entry(1200, "there is no such detector"))
        return SimpleNamespace(id=detector_id, name="scripted")

    async def confirm(self, detector_id: str, by: Permit) -> None:
        await self.detector(detector_id)

    async def detectors(self) -> list[tuple[str, str]]:
        return [(DETECTOR, "scripted")]

    async def detectors_page(self, after: str | None, most: int) -> list[tuple[str, str]] | None:
        return (await self.detectors())[:most] if after is None else None

    async def call(self, detector_id: str, operation: Operation) -> Answer:
        self.operations.append(operation)
        self.under_way += 1
        try:
            return await self.answers(detector_id, operation)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1

    async def change(self, detector_id: str, operation: Operation) -> Answer:
        return await self.call(detector_id, operation)

    async def add_counts(self, counted: Counts) -> None:
        self.front_end_counts = dict(counted)

    async def status(self) -> Status:
        return Status(self.reasons, self.problems, 0, 0, dict.fromkeys(COUNTERS, 0), self.front_end_counts)

    async def report_figures(self) -> None:
        return None

    async def cluster(self) -> ClusterFigures:
        return ClusterFigures([], ProcessFigures(1, "a", 0, 0, 0.0), [], [], [], None, {})
