"""The scheduler in the directory's process: it places detectors in workers."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

import msgspec

from engine.language.diagnostics import Refusal
from engine.runtime.catalogue.catalogue_client import CatalogueClient
from engine.runtime.concurrency.background import Background, cancel, repeat
from engine.runtime.contract.catalogue_changes import Changes, Made
from engine.runtime.contract.errors import STARTING, ActorDied, DetectorUnavailable, shutting_down
from engine.runtime.contract.figures import ClusterFigures, FrontEndFigures, NodeFigures, Status
from engine.runtime.contract.measures import COUNTERS, DIRECTORIES_LOST
from engine.runtime.contract.requests.calls import Route
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.permits import Debts
from engine.runtime.scheduler.adoption import Adoption
from engine.runtime.scheduler.census import Census
from engine.runtime.scheduler.detectors.activation_slots import ActivationSlots
from engine.runtime.scheduler.detectors.placed_detector import PlacedDetector
from engine.runtime.scheduler.detectors.services import Services
from engine.runtime.scheduler.due_activations import DueActivations
from engine.runtime.scheduler.moves import Moves
from engine.runtime.scheduler.workers.cluster_nodes import Nodes, NodesPort
from engine.runtime.scheduler.workers.detector_worker import BEATS
from engine.runtime.scheduler.workers.worker_pool import WorkerPool
from engine.runtime.scheduler.workers.worker_port import WorkerStarter
from snapshots.errors import StorageError
from snapshots.files import wall_clock_us

_log = logging.getLogger(__name__)

_PURGE_WAIT_S = 1.0
_PURGE_AGAIN_S = 10.0
"""The interval at which leftovers of removed detectors are purged."""
_SAVED_TOGETHER = 4
"""How many passive detectors are activated and saved at a time at shutdown."""


class Scheduler:
    """Owns the catalogue and the workers, and activates detectors. For one event loop."""

    def __init__(
        self,
        settings: RuntimeSettings,
        workers: WorkerStarter,
        catalogue: CatalogueClient,
        *,
        nodes: NodesPort,
        leave: Callable[[], object] = lambda: None,
        lost: int = 0,
        now_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        """`leave` ends the process, so that a successor on another node takes over.

        `lost` is how many directories the service that started this one had lost.
        """
        self.catalogue = catalogue
        self._settings = settings
        # A worker that is reserved for small requests must not keep others from being started.
        self._slots = ActivationSlots(settings.max_resident, lambda: self._workers.fill(besides=1))
        self._nodes = Nodes(nodes, settings)
        self._workers = WorkerPool(workers, settings, self._nodes, self._started)
        self._started(0)
        self._services = Services(settings, self._workers, self._slots, self.catalogue)
        self._services.counts[DIRECTORIES_LOST] = lost
        self._problems = self._services.problems
        self._placed: dict[str, PlacedDetector] = {}
        self._census = Census(settings.data, lambda: self._workers.all, self._placed.values, nodes.look)
        self._leave_process = leave
        self._moves = Moves(self._services, self._nodes, self._placed.values, self._leave)
        self._due_activations = DueActivations(self._services, self._place, now_us)
        self._adoption = Adoption(
            workers, self._workers, self._nodes, self.catalogue, self._placed, self._place
        )
        self._background = Background()
        self._looks = Background()
        """The periodic tasks."""
        self._purges: dict[str, asyncio.Task[None]] = {}
        """The purges in progress, by the ids of the detectors."""
        self._front_end_counts: dict[tuple[str, ...], float] = {}
        self._debts = Debts()
        self._closing = False

    def _started(self, workers: int) -> None:
        """Open as many slots as the workers have room for, plus one for the next worker if none is spare."""
        settings, no_room = self._settings, self._workers.no_room is not None
        # If no worker is started ahead, one extra slot lets the next one start.
        ahead = 0 if settings.spares or no_room else 1
        self._slots.open(workers * settings.detectors_per_worker + ahead, more_to_come=not no_room)

    # -- start and end -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the data folder, and take over existing workers. Raises StorageError, and FolderInUse."""
        opened = await self.catalogue.start()
        for damage in opened.damage:
            self._problems.note(f"tokens and catalogue: set aside: {damage}")
        # The nodes must be known, because workers may be started during the adoption.
        await self._nodes.look()
        await self._adoption.begin()
        self._workers.fill()
        begin, settings = self._looks.begin, self._settings
        begin(repeat(self._moves.look, settings.nodes_s, "looking at the nodes"))
        again_s = _PURGE_AGAIN_S
        begin(repeat(self._purge_left, again_s, "purging removed detectors", after_s=again_s))
        if settings.tick_s:
            begin(repeat(self._due_activations.look, settings.tick_s, "looking for what is due"))

    async def close(self) -> list[str]:
        """Save all detectors and stop; return a sentence for each one that could not be saved."""
        self._closing = True
        await cancel(self._looks)
        await cancel([*self._moves.under_way.values(), *self._due_activations.under_way])
        # Wait for late adoptions, so that their detectors are saved too.
        await self._adoption.end()
        all_placed = list(self._placed.values())
        reasons = await asyncio.gather(*(placed.close() for placed in all_placed))
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._save_passive()
        await self._workers.close()
        await self.catalogue.close()
        return [
            f"the detector {placed.detector_id} was not saved: {reason}"
            for placed, reason in zip(all_placed, reasons, strict=True)
            if reason is not None
        ]

    async def _save_passive(self) -> None:
        """Empty the journals of passive detectors, because a later version might replay them differently.

        Detectors that are not reached in time are replayed at their next activation.
        """
        left = list(self._services.journals)

        async def save_next() -> None:
            while left:
                detector_id = left.pop()
                placed = self._place(detector_id)
                reason: object = None
                try:
                    await placed.route(0)
                except Refusal:
                    # It was deleted.
                    pass
                except DetectorUnavailable as error:
                    reason = error.message
                finally:
                    reason = await placed.close() or reason
                if reason is not None:
                    _log.warning("the journal of the detector %s is not emptied: %s", detector_id, reason)

        together = min(len(left), self._settings.max_resident, _SAVED_TOGETHER)
        tasks = [asyncio.create_task(save_next()) for _ in range(together)]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._settings.save_passive_s)
            await cancel(late)
        if left:
            message = "%d passive detectors keep events in their journals, which the next activation replays"
            _log.warning(message, len(left))

    # -- tokens and catalogue --------------------------------------------------------------------------------

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        changes = await self.catalogue.changes(tokens_seen, detectors_seen)
        for warning in changes.warnings:
            if (problem := f"tokens and catalogue: {warning}") not in self._problems.lasting:
                self._problems.note(problem)
        return msgspec.structs.replace(changes, waiting_for_slots=self._slots.wanted)

    async def fork_detector(
        self, source_id: str, detector_id: str, name: str, owner: str = "", made: Made | None = None
    ) -> int:
        try:
            await self._make_fork(source_id, detector_id)
            version = await self.catalogue.enter_fork(detector_id, name, owner, made, source_id)
            self._services.dues.note(detector_id, 0)
        except Exception as error:
            await self._purge(detector_id)
            if isinstance(error, ActorDied | StorageError):
                message = f"nothing was created: {error}"
                raise DetectorUnavailable(STARTING, message, self._settings.retry_s) from error
            raise
        return version

    async def _make_fork(self, source_id: str, detector_id: str) -> None:
        """Let the worker of the source make the folder of the new detector."""
        left_epoch = 0
        while True:
            route = await self.route(source_id, left_epoch)
            for worker in self._workers.all:
                if worker.port.name == route.worker and await worker.port.fork(route.epoch, detector_id):
                    return
            # The source was passivated meanwhile, or lost.
            left_epoch = route.epoch

    async def delete_detector(self, detector_id: str, made: Made | None = None) -> int:
        version = await self.catalogue.delete_detector(detector_id, made)
        # The detector is removed at once, and its files usually are before the caller is answered.
        await asyncio.wait({self._begin_purge(detector_id)}, timeout=_PURGE_WAIT_S)
        return version

    def _begin_purge(self, detector_id: str) -> asyncio.Task[None]:
        """Begin to end a removed detector and delete its files, unless that has begun already."""
        purge = self._purges.get(detector_id)
        if purge is None:
            purge = self._purges[detector_id] = self._background.begin(self._purge(detector_id))
            purge.add_done_callback(partial(self._purged, detector_id))
        return purge

    def _purged(self, detector_id: str, purge: asyncio.Task[None]) -> None:
        del self._purges[detector_id]
        if not purge.cancelled() and (error := purge.exception()) is not None:
            _log.error("the detector %s is not purged yet", detector_id, exc_info=error)

    async def _purge_left(self) -> None:
        """Purge the removed detectors whose purge has failed or was never begun.

        A removal has two steps. If the outcome was unknown, the first one may have been completed.
        """
        for detector_id in await self.catalogue.removed_detectors():
            await asyncio.wait({self._begin_purge(detector_id)})

    async def _purge(self, detector_id: str) -> None:
        placed = self._placed.get(detector_id)
        if placed is not None:
            await placed.delete()
            self._placed.pop(detector_id, None)
        self._problems.end(detector_id)
        self._services.dues.forget(detector_id)
        self._services.newest_firings.pop(detector_id, None)
        try:
            await self.catalogue.purge_detector(detector_id)
        except DetectorUnavailable as error:
            # They are deleted later, or at the next opening of the directory.
            _log.warning("the files of the detector %s are still there: %s", detector_id, error.message)

    # -- places ----------------------------------------------------------------------------------------------

    async def route(self, detector_id: str, left_epoch: int, large: bool = False) -> Route:
        if self._closing:
            raise shutting_down()
        return await self._place(detector_id).route(left_epoch, large)

    async def move(self, detector_id: str, node: str) -> Route:
        if self._closing:
            raise shutting_down()
        return await self._moves.move(self._place(detector_id), node)

    async def drain(self, node: str, draining: bool) -> NodeFigures:
        return await self._moves.drain(node, draining=draining)

    def _place(self, detector_id: str) -> PlacedDetector:
        """Return the placed detector; if it is unknown, a new, passive one."""
        placed = self._placed.get(detector_id)
        if placed is None:
            placed = self._placed[detector_id] = PlacedDetector(detector_id, self._services, self._forget)
        return placed

    async def _leave(self) -> None:
        """End this process. Workers and their detectors continue, and a successor adopts them."""
        await self.catalogue.close()
        self._leave_process()

    def _forget(self, placed: PlacedDetector) -> None:
        """Forget a passivated detector: there may be many more detectors than slots."""
        if self._placed.get(placed.detector_id) is placed:
            del self._placed[placed.detector_id]

    # -- status ----------------------------------------------------------------------------------------------

    @property
    def active_detectors(self) -> int:
        return sum(placed.worker_name is not None for placed in self._placed.values())

    @property
    def counts(self) -> dict[str, int]:
        """Counts since the start, for each name in `COUNTERS`."""
        return {name: self._services.counts[name] for name in COUNTERS}

    async def add_counts(self, counted: list[tuple[list[str], float]]) -> None:
        for parts, value in counted:
            name = tuple(parts)
            self._front_end_counts[name] = self._front_end_counts.get(name, 0) + value

    async def events_spent(self, spent_s: dict[str, float]) -> dict[str, tuple[float, float]]:
        """Add what tokens have spent at a front end; return the totals that each has spent and owes.

        All are in seconds of the tokens' rates.
        """
        return self._debts.add(spent_s, time.monotonic())

    async def status(self) -> Status:
        reasons = ["the server is shutting down"] if self._closing else []
        # Without spares, a worker starts when a detector needs it.
        if self._settings.spares and not self._workers.all:
            reasons.append("no detector worker is running")
        if self.catalogue.problem is not None:
            problem = self.catalogue.problem
            reasons.append(f"the directory of tokens and detectors cannot be asked: {problem}")
        hung_s = self._settings.hung_s
        stalled = [
            *(one.stalled(self._settings) for one in self._workers.all),
            *(one.stalled(hung_s / BEATS) for one in self._placed.values()),
        ]
        no_room = [] if self._workers.no_room is None else [self._workers.no_room]
        return Status(
            reasons=reasons,
            problems=[
                *no_room,
                *filter(None, stalled),
                *self._moves.problems.values(),
                *self._problems.current.values(),
                *self._problems.lasting,
                *self.catalogue.removed,
            ],
            active_detectors=self.active_detectors,
            detectors_with_problems=len(self._problems.current),
            counts=self.counts,
            front_end_counts=dict(self._front_end_counts),
        )

    async def report_figures(self, figures: object) -> None:
        self._census.report_figures(msgspec.convert(figures, FrontEndFigures))

    async def newest_firings(self, detector_ids: list[str]) -> dict[str, int]:
        newest = self._services.newest_firings
        return {each: newest[each] for each in detector_ids if each in newest}

    async def cluster(self) -> ClusterFigures:
        figures = await self._census.take()
        return msgspec.structs.replace(
            figures,
            no_room=self._workers.no_room or "",
            overdue_s=self._due_activations.overdue_s,
            waiting_for_slots=self._slots.wanted,
        )
