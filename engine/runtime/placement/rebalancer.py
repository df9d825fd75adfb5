"""Moves detectors away from drained nodes, and from fuller nodes to emptier ones."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from engine.language.diagnostics import Refusal
from engine.runtime.contract.errors import STARTING, DetectorUnavailable, no_other_node, no_such_node
from engine.runtime.contract.measurements.figures import NodeFigures
from engine.runtime.contract.requests.routes import Route
from engine.runtime.placement.census import Census
from engine.runtime.placement.detectors.placed_detector import PlacedDetector
from engine.runtime.placement.detectors.services import Services
from engine.runtime.placement.workers.cluster_nodes import Nodes
from engine.runtime.placement.workers.node_choice import giver
from engine.runtime.placement.workers.relief import Relief, relief

_log = logging.getLogger(__name__)

_MEASURE_S: Final = 5.0
"""The interval of measurements, where there are several nodes."""
_IDLE_S: Final = 30.0
"""Only detectors that have been idle for this long are moved to even the nodes out."""


class Rebalancer:
    """Looks at the nodes every `nodes_s`, and moves detectors.

    `leave` ends this process once its own node is drained; a successor continues on another node.
    """

    def __init__(
        self,
        services: Services,
        nodes: Nodes,
        placed: Callable[[], Collection[PlacedDetector]],
        *,
        census: Census,
        leave: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._services = services
        self._settings = services.settings
        self._nodes = nodes
        self._workers = services.workers
        self._placed = placed
        self._census = census
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._moves: dict[str, asyncio.Task[None]] = {}
        """The moves under way, by the ids of the detectors."""
        self._measured_at_s = -float("inf")
        self._relief = Relief()
        self._running: asyncio.Task[None] | None = None
        self.problems: dict[str, str] = {}
        """Why a drained node still has detectors, by the node's id."""

    def start(self) -> None:
        """Begin to look at the nodes."""
        self._running = self._loop.create_task(self._run(), name="rebalancer")

    async def end(self) -> None:
        """Stop, and cancel the moves in progress."""
        tasks = [*self._moves.values(), *([self._running] if self._running else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def move(self, placed: PlacedDetector, node: str) -> Route:
        """Move a detector to a node, or with an empty one to any but its own; return its route.

        Raises Refusal 1200 and 1204; DetectorUnavailable 1501 and 1503.
        """
        await self._nodes.look()
        nodes = self._nodes
        if node and (node not in nodes.known or node in nodes.draining or not nodes.big_enough(node)):
            raise no_such_node(node)
        if not node and placed.node is not None:
            others = nodes.known.keys() - nodes.draining - {placed.node}
            if nodes.known and not any(map(nodes.big_enough, others)):
                # Waiting would not help, and callers repeat what is refused for now.
                raise no_other_node()
            node = self._workers.node_for_worker(but=[placed.node]) or ""
            if not node:
                message = "the detector is not moved: no other node has room for a worker"
                raise DetectorUnavailable(STARTING, message, self._settings.retry_s)
        return await self._move(placed, node or None)

    async def _move(self, placed: PlacedDetector, node: str | None) -> Route:
        """Move a detector to another worker on a node, or with None on the emptiest one; return its route.

        It is passivated after its turn, once there is a worker for it. Requests that wait for it follow in
        order.
        """
        retry_s = self._settings.retry_s
        if placed.moving:
            raise DetectorUnavailable(STARTING, "the detector is being moved already", retry_s)
        placed.moving = True
        with placed.needed():
            try:
                async with asyncio.timeout(self._settings.deadline_s):
                    if node is not None and node == placed.node:
                        return await placed.route(0)
                    alone = placed.detector_id in self._services.alone
                    placed.reserved = await self._workers.take(alone=alone, node=node)
                    epoch = placed.epoch
                    await placed.vacate()
                    return await placed.route(epoch)
            except TimeoutError:
                why = self._workers.no_room or "there is no worker for it, or it cannot be passivated"
                raise DetectorUnavailable(STARTING, f"the detector is not moved: {why}", retry_s) from None
            finally:
                placed.moving = False
                if placed.reserved is not None:
                    self._workers.give_back(placed.reserved)
                    placed.reserved = None

    async def drain(self, node: str, *, draining: bool) -> NodeFigures:
        """Start draining a node, which moves its detectors elsewhere, or stop. Raises Refusal 1204."""
        await self._nodes.look()
        if node not in self._nodes.known:
            raise no_such_node(node)
        await self._nodes.drain(node, draining=draining)
        return self._nodes.known[node]

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001 -- the next look follows
                _log.exception("looking at the nodes failed")
            await asyncio.sleep(self._settings.nodes_s)

    async def look(self) -> None:
        """Do what is due."""
        await self._nodes.look()
        now_s = self._loop.time()
        self._workers.look_for_room()
        self._give_up_without_room(now_s)
        draining = self._nodes.draining
        self.problems = {node: why for node, why in self.problems.items() if node in draining}
        for node in draining:
            if self._workers.clear(node) and node == self._nodes.here:
                await self._go_elsewhere()
        if draining:
            self._begin_moves([one for one in self._placed() if one.node in draining], to=None)
        if self._nodes.several and now_s >= self._measured_at_s + _MEASURE_S:
            self._measured_at_s = now_s
            await self._census.take()
            self._nodes.measure(now_s, self._census.answers)
            if not draining and not self._moves and not self._relieve():
                self._even_out()

    def _give_up_without_room(self, now_s: float) -> None:
        """Tell the detectors that wait for a worker if no node has room for one."""
        if (why := self._workers.no_room) is not None:
            shared = bool(self._workers.all)
            for placed in list(self._placed()):
                placed.no_room(why, give_up_s=now_s - self._settings.room_wait_s, shared=shared)

    async def _go_elsewhere(self) -> None:
        if self._leave is not None and any(not node.draining for node in self._nodes.known.values()):
            _log.warning("the directory ends here because its node is drained, and continues on another one")
            await self._leave()

    def _relieve(self) -> bool:
        """Move the busiest detector that can leave a full node, once it has been full for a while."""
        placed = {one.detector_id: one for one in self._placed()}
        sharing = Counter(one.worker_name for one in placed.values())
        cpus_used: dict[str, dict[str, float]] = defaultdict(dict)
        for one in placed.values():
            if one.worker_name is not None and one.node is not None and not one.moving:
                # What each of several detectors in a worker uses is not known here.
                used = self._nodes.worker_cpus.get(one.worker_name, 0.0) / sharing[one.worker_name]
                cpus_used[one.node][one.detector_id] = used
        move = relief(self._workers.loads(), self._nodes.demand, cpus_used)
        if not self._relief.count(move) or move is None:
            return False
        _log.warning("detector %s moves away from a node whose CPUs are all in use", move.detector_id)
        self._begin_moves([placed[move.detector_id]], move.to)
        return True

    def _even_out(self) -> None:
        """Move one idle detector from the fullest node to the least full one."""
        full = giver(self._workers.loads(), self._nodes.demand)
        to = None if full is None else self._workers.node_for_worker(but=[full])
        if to is None:
            return
        idle_since_s = self._loop.time() - _IDLE_S
        idle = [one for one in self._placed() if one.node == full and one.used_at_s <= idle_since_s]
        self._begin_moves(sorted(idle, key=lambda one: one.used_at_s)[:1], to)

    def _begin_moves(self, detectors: Collection[PlacedDetector], to: str | None) -> None:
        """Move detectors to a node, or wherever there is room, a few at a time."""
        for placed in detectors:
            if len(self._moves) >= self._settings.starts_at_once:
                return
            if placed.detector_id not in self._moves:
                self._moves[placed.detector_id] = self._loop.create_task(self._move_away(placed, to))

    async def _move_away(self, placed: PlacedDetector, to: str | None) -> None:
        node = placed.node
        try:
            await self._move(placed, to)
        except Refusal:
            # It was deleted meanwhile.
            pass
        except DetectorUnavailable as error:
            _log.warning("detector %s: %s", placed.detector_id, error.message)
            if node in self._nodes.draining:
                self.problems[node] = f"the node {node[:12]} is not drained yet: {error.message}"
        finally:
            del self._moves[placed.detector_id]
