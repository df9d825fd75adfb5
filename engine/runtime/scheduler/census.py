"""The figures of the cluster: the scheduler's placement, and the figures of workers and front ends."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from engine.runtime.concurrency.background import Kept
from engine.runtime.concurrency.beats import LoopLag
from engine.runtime.concurrency.threads import off_loop
from engine.runtime.contract.figures import (
    ClusterFigures,
    DetectorFigures,
    FolderFigures,
    FrontEndFigures,
    NodeFigures,
    ProcessFigures,
    WorkerAnswer,
    WorkerFigures,
)
from engine.runtime.contract.measures import Measured
from engine.runtime.process.processes import usage
from engine.runtime.scheduler.detectors.placed_detector import PlacedDetector
from engine.runtime.scheduler.workers.detector_worker import DetectorWorker

T = TypeVar("T")

_FREE_INODES_MAX: Final = 2**53 - 1
_ANSWER_S: Final = 1.0
"""The timeout of answers from workers, Ray and the file system."""
_FRESH_S: Final = 1.0
"""Figures are reused for this long, so that workers are asked at most once a second."""
_FRONT_END_S: Final = 5.0
"""A front end counts as gone after this long without figures, which it sends twice a second."""


class Census:
    """Collects the figures of the cluster: asks all workers at once, and waits a second at most.

    When a worker dies, its measurements since its last answer are lost.
    """

    def __init__(
        self,
        data: Path,
        workers: Callable[[], Iterable[DetectorWorker]],
        placed: Callable[[], Iterable[PlacedDetector]],
        nodes: Callable[[], Awaitable[Sequence[NodeFigures]]],
    ) -> None:
        self._data = data
        self._workers = workers
        self._placed = placed
        self._nodes = nodes
        self._loop = asyncio.get_running_loop()
        self._lag = LoopLag()
        self.answers: dict[str, WorkerAnswer] = {}
        """The last answer of each running worker."""
        self._known_nodes: list[NodeFigures] = []
        """Ray's last answer. It gives none while it is busy, or while its control store is away."""
        self._ended: dict[str, Measured] = {}
        """The measurements of ended workers, by the node's address."""
        self._front_ends: dict[tuple[str, int], tuple[float, FrontEndFigures]] = {}
        self._taken = Kept(self._take, _FRESH_S)

    def report_figures(self, figures: FrontEndFigures) -> None:
        """Record the figures of a front end."""
        self._front_ends[figures.process.host, figures.process.pid] = self._loop.time(), figures

    async def take(self) -> ClusterFigures:
        """Return the figures, at most a second old."""
        return await self._taken.get()

    async def _take(self) -> ClusterFigures:
        workers = list(self._workers())
        asked = {worker.port.name: asyncio.ensure_future(worker.port.figures()) for worker in workers}
        nodes = asyncio.ensure_future(self._nodes())
        folder = off_loop(self._folder, "disk room")
        futures: list[asyncio.Future[object]] = [*asked.values(), nodes, folder]  # type: ignore[list-item]
        await asyncio.wait(futures, timeout=_ANSWER_S)
        answered: set[str] = set()
        for name, question in asked.items():
            if (answer := _outcome(question)) is not None:
                answered.add(name)
                self.answers[name] = answer
        for name in self.answers.keys() - asked.keys():
            last = self.answers.pop(name)
            self._ended.setdefault(last.figures.address, Measured()).add(last.measured)
        if known := _outcome(nodes):
            self._known_nodes = list(known)
        now_s = self._loop.time()
        self._front_ends = {
            key: entry for key, entry in self._front_ends.items() if entry[0] >= now_s - _FRONT_END_S
        }
        return ClusterFigures(
            nodes=self._known_nodes,
            directory=ProcessFigures(*usage()),
            front_ends=[figures for _, figures in self._front_ends.values()],
            workers=self._figures(asked, answered),
            activating=[placed.detector_id for placed in self._placed() if placed.activating],
            folder=_outcome(folder),
            measured=self._measured(),
            scheduler_loop_lag_s=self._lag.longest_s,
        )

    def _figures(self, names: Iterable[str], answered: set[str]) -> list[WorkerFigures]:
        """Return the latest figures of each worker; for a silent one, the detectors placed in it."""
        placed: dict[str, list[DetectorFigures]] = {}
        for one in self._placed():
            if one.worker_name is not None:
                placed.setdefault(one.worker_name, []).append(DetectorFigures(one.detector_id, one.epoch))
        found = []
        for name in names:
            detectors = placed.get(name, [])
            if (answer := self.answers.get(name)) is None:
                found.append(WorkerFigures(name, answers=False, detectors=detectors))
                continue
            figures = msgspec.structs.replace(answer.figures, name=name)
            if name not in answered:
                known = {one.id: one for one in figures.detectors}
                detectors = [known.get(one.id, one) for one in detectors]
                figures = msgspec.structs.replace(figures, answers=False, detectors=detectors)
            found.append(figures)
        return found

    def _measured(self) -> dict[str, Measured]:
        """Return the measurements of all workers of each node, by its address."""
        measured: dict[str, Measured] = {}
        running = [(answer.figures.address, answer.measured) for answer in self.answers.values()]
        for address, one in [*self._ended.items(), *running]:
            measured.setdefault(address, Measured()).add(one)
        return measured

    def _folder(self) -> FolderFigures:
        return folder_figures(os.statvfs(self._data))


def folder_figures(found: os.statvfs_result) -> FolderFigures:
    """Return what the system says of a file system, whose number of files may have no limit."""
    free_inodes = found.f_favail if found.f_files else _FREE_INODES_MAX
    return FolderFigures(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, free_inodes)


def _outcome(future: asyncio.Future[T]) -> T | None:
    """Return the result of a future; None if it failed or is not done."""
    if not future.done():
        future.cancel()
        return None
    return None if future.cancelled() or future.exception() is not None else future.result()
