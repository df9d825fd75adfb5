"""Moves detectors: one to a node, or all away from drained nodes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from engine.language.diagnostics import Refusal
from engine.runtime.contract.errors import STARTING, DetectorUnavailable, no_other_node, no_such_node
from engine.runtime.contract.figures import NodeFigures
from engine.runtime.contract.requests.calls import Route
from engine.runtime.scheduler.detectors.placed_detector import PlacedDetector
from engine.runtime.scheduler.detectors.services import Services
from engine.runtime.scheduler.workers.cluster_nodes import Nodes

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Moves:
    """Moves detectors and drains nodes. `look` is called every `nodes_s`."""

    _services: Services
    _nodes: Nodes
    _placed: Callable[[], Collection[PlacedDetector]]
    leave: Callable[[], Awaitable[None]]
    """Ends this process once its own node is drained; a successor continues on another node."""
    problems: dict[str, str] = field(default_factory=dict)
    """Why a drained node still has detectors, by the node's id."""
    under_way: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """The moves under way, by the ids of the detectors."""

    def __post_init__(self) -> None:
        self._settings, self._workers = self._services.settings, self._services.workers
        self._loop = asyncio.get_running_loop()

    async def move(self, placed: PlacedDetector, node: str) -> Route:
        """Move a detector to a node, or for an empty one to any but its own; return its route.

        Raises Refusal 1200 and 1204; DetectorUnavailable 1501 and 1503.
        """
        nodes = self._nodes
        await nodes.look()
        if node and (node not in nodes.known or node in nodes.draining or not nodes.big_enough(node)):
            raise no_such_node(node)
        if not node and placed.node is not None:
            others = nodes.known.keys() - nodes.draining - {placed.node}
            if nodes.known and not any(map(nodes.big_enough, others)):
                # Waiting would not help, and callers would retry after a temporary refusal.
                raise no_other_node()
            if not (found := nodes.with_room(but=[placed.node])):
                message = "the detector is not moved: no other node has room for a worker"
                raise DetectorUnavailable(STARTING, message, self._settings.retry_s)
            node = found[0]
        return await self._move(placed, node or None)

    async def _move(self, placed: PlacedDetector, node: str | None) -> Route:
        """Move a detector to another worker on a node, or on any node for None; return its route.

        It is passivated after its turn, once a worker is reserved for it. Waiting requests follow in order.
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
        """Start or stop draining a node, which moves its detectors elsewhere. Raises Refusal 1204."""
        await self._nodes.look()
        if node not in self._nodes.known:
            raise no_such_node(node)
        await self._nodes.drain(node, draining=draining)
        return self._nodes.known[node]

    async def look(self) -> None:
        """Poll the nodes, and begin to move the detectors of drained ones."""
        await self._nodes.look()
        self._workers.starts.look_for_room()
        if (why := self._workers.no_room) is not None:
            # Detectors that have waited too long for a worker give up.
            give_up_s, shared = self._loop.time() - self._settings.room_wait_s, bool(self._workers.all)
            for placed in list(self._placed()):
                placed.no_room(why, give_up_s=give_up_s, shared=shared)
        draining = self._nodes.draining
        self.problems = {node: why for node, why in self.problems.items() if node in draining}
        for node in draining:
            others = any(not one.draining for one in self._nodes.known.values())
            if self._workers.clear(node) and node == self._nodes.here and others:
                _log.warning("node drained: the directory moves to another node")
                await self.leave()
        self._begin_moves([one for one in self._placed() if one.node in draining])

    def _begin_moves(self, detectors: Collection[PlacedDetector]) -> None:
        """Begin to move detectors to wherever there is room, a few at a time."""
        for placed in detectors:
            if len(self.under_way) >= self._settings.starts_at_once:
                return
            if placed.detector_id not in self.under_way:
                self.under_way[placed.detector_id] = self._loop.create_task(self._move_away(placed))

    async def _move_away(self, placed: PlacedDetector) -> None:
        node = placed.node
        try:
            await self._move(placed, None)
        except Refusal:
            # It was deleted meanwhile.
            pass
        except DetectorUnavailable as error:
            _log.warning("detector %s: %s", placed.detector_id, error.message)
            if node in self._nodes.draining:
                self.problems[node] = f"the node {node[:12]} is not drained yet: {error.message}"
        finally:
            del self.under_way[placed.detector_id]
