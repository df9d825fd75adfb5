"""A scheduler's takeover of the workers of its predecessor."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import dataclass, field

from engine.runtime.catalogue.catalogue_client import CatalogueClient
from engine.runtime.concurrency.background import Background
from engine.runtime.concurrency.beats import answer_within
from engine.runtime.contract.errors import ActorDied, DetectorUnavailable
from engine.runtime.contract.requests.calls import Held
from engine.runtime.scheduler.detectors.placed_detector import PlacedDetector
from engine.runtime.scheduler.workers.cluster_nodes import Nodes
from engine.runtime.scheduler.workers.detector_worker import DetectorWorker
from engine.runtime.scheduler.workers.worker_pool import WorkerPool
from engine.runtime.scheduler.workers.worker_port import WorkerPort, WorkerStarter

_log = logging.getLogger(__name__)

_ANSWER_S = 5.0
"""The timeout for the list of a worker's detectors."""
_AGAIN_S = 0.05
"""The interval at which a worker is asked again while it is activating a detector."""
_FIRST_S = 1.0
"""How long the start waits for workers that may have detectors."""
_FIRST_OF_LOST_S = 0.25
"""The same for workers on the predecessor's node, which may be lost with it and then never answer."""

_Adopted = Sequence[tuple[DetectorWorker, Held]]
"""Activations, each with its worker."""


@dataclass(eq=False)
class Adoption:
    """Takes over workers and their active detectors. `_place` adds a missing detector to `_placed`.

    Workers that answer late are taken over later. A detector that was activated elsewhere meanwhile is
    dropped, because its first worker can no longer write to its folder.
    """

    _starter: WorkerStarter
    _workers: WorkerPool
    _nodes: Nodes
    _catalogue: CatalogueClient
    _placed: Container[str]
    _place: Callable[[str], PlacedDetector]
    _late: Background = field(default_factory=Background)

    async def begin(self) -> None:
        """Take over the workers that answer soon."""
        survivors = await self._starter.survivors()
        adopting = {asyncio.create_task(self._adopt(one.found)): one.node for one in survivors}
        if not adopting:
            return
        lost_on = self._starter.lost_on
        if doubtful := lost_on != "" and lost_on in adopting.values():
            # Ray may still consider a lost node alive, and a worker started there would never answer.
            self._nodes.doubt(lost_on)
        await asyncio.wait(adopting, timeout=_FIRST_OF_LOST_S)
        if others := [one for one, node in adopting.items() if node not in ("", lost_on)]:
            await asyncio.wait(others, timeout=_FIRST_S - _FIRST_OF_LOST_S)
        if doubtful and any(worker.port.node == lost_on for worker in self._workers.all):
            self._nodes.trust(lost_on)
        elif doubtful:
            self._nodes.avoid(lost_on)
        soon = [one for one in adopting if one.done()]
        await self._take_over([held for one in soon for held in one.result()])
        for one in adopting.keys() - set(soon):
            self._late.begin(self._take_over_late(one))

    async def end(self) -> None:
        """Wait for the workers that answer late."""
        await asyncio.gather(*self._late, return_exceptions=True)

    async def _take_over_late(self, adopting: asyncio.Task[_Adopted]) -> None:
        adopted = await adopting
        try:
            await self._take_over(adopted)
        except DetectorUnavailable:
            for worker, _ in adopted:
                self._workers.lose(worker)

    async def _take_over(self, adopted: _Adopted) -> None:
        """Take over activations and their workers."""
        if not adopted:
            return
        known = (await self._catalogue.changes(0, 0)).detectors.whole or {}
        # Only the latest activation of a detector may write.
        for worker, held in sorted(adopted, key=lambda one: -one[1].epoch):
            if held.detector_id in known and held.detector_id not in self._placed and not worker.dead:
                self._place(held.detector_id).adopt(worker, held)
            else:
                await self._workers.drop_taken(worker, held.epoch)

    async def _adopt(self, finding: Awaitable[WorkerPort | None]) -> _Adopted:
        """Take over a worker and return its activations; end it if that is impossible."""
        port = await finding
        if port is None:
            return []
        worker = DetectorWorker(port, taken=1)
        port.reported = worker.reported
        try:
            held = await answer_within(_held(port), _ANSWER_S)
        except (ActorDied, TimeoutError) as error:
            _log.warning("the worker %s cannot be adopted, and is ended: %r", port.name, error)
            await port.end()
            return []
        worker.taken = worker.activations = len(held)
        worker.pending.update(one.epoch for one in held)
        self._workers.adopt(worker)
        return [(worker, one) for one in held]


async def _held(port: WorkerPort) -> Sequence[Held]:
    """Return the activations of a worker, once all are complete."""
    while True:
        held = await port.held()
        if not any(one.activating for one in held):
            return held
        await asyncio.sleep(_AGAIN_S)
