"""The starts of workers in progress, and whether a node has room."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from engine.runtime.concurrency.background import cancel
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.workers.cluster_nodes import Nodes
from engine.runtime.scheduler.workers.worker_port import WorkerPort, WorkerStarter

_log = logging.getLogger(__name__)

_START_S: Final = 60.0
"""How long a worker may take to start on a node with room."""
_ROOM_S: Final = 600.0
"""How long to wait for a node with room before the worker is requested again."""
_SLOW_START_S: Final = 10.0
"""A start that takes longer is slow, perhaps because its node is gone, and no longer delays others."""


@dataclass(eq=False)
class WorkerStarts:
    """The starts in progress. A failed one counts as in progress for `retry_s`."""

    _starter: WorkerStarter
    _settings: RuntimeSettings
    _nodes: Nodes
    started: Callable[[WorkerPort], None]
    """Receives each worker."""
    over: Callable[[], None]
    """Called after each start."""
    room_changed: Callable[[], None]
    """Called when `no_room` has changed."""
    no_room: str | None = None
    """The message that no node has room for a needed worker; None if one has."""
    _pending: dict[asyncio.Task[None], str | None] = field(default_factory=dict)
    """The starts that are not slow, each with its node; None for any."""
    _slow: set[asyncio.Task[None]] = field(default_factory=set)
    _closed: bool = False

    def pending(self, node: str | None) -> int:
        """Return how many starts on a node (None: on any) are in progress and not slow."""
        return sum(wanted == node for wanted in self._pending.values())

    def begin(self, node: str | None = None) -> None:
        """Begin to start a worker on a node, or on any for None."""
        start = asyncio.create_task(self._start(node))
        self._pending[start] = node
        start.add_done_callback(self._end)
        asyncio.get_running_loop().call_later(_SLOW_START_S, self._note_slow, start)

    def look_for_room(self) -> None:
        """Repeat the starts if there is room again, perhaps on a node that was avoided."""
        if not self._nodes.accepts_workers(None):
            self._note_room(self._nodes.no_room)
        elif self.no_room is not None and self._nodes.with_room():
            self._note_room(None)
            for start in self._pending.keys() | self._slow:
                start.cancel()

    async def close(self) -> None:
        self._closed = True
        await cancel(self._pending.keys() | self._slow)

    def _end(self, start: asyncio.Task[None]) -> None:
        self._pending.pop(start, None)
        self._slow.discard(start)
        self.over()

    def _note_slow(self, start: asyncio.Task[None]) -> None:
        slow = self.no_room is None and len(self._slow) < self._settings.starts_at_once
        if start in self._pending and slow:
            del self._pending[start]
            self._slow.add(start)
            self.over()

    async def _start(self, node: str | None) -> None:
        await self._nodes.look()
        if not self._nodes.accepts_workers(node):
            # Do not retry at once: a worker started there would be stopped immediately.
            await asyncio.sleep(self._settings.retry_s)
            return
        avoid = self._nodes.avoided
        if node is None and self._nodes.known:
            if not self._nodes.with_room(avoid):
                avoid = frozenset()
            self._note_room(None if self._nodes.with_room(avoid) else self._nodes.no_room)
        try:
            within_s = _START_S if self.no_room is None else _ROOM_S
            port = await self._starter.start(self._nodes.draining | avoid, node, within_s)
        except Exception as error:  # noqa: BLE001 -- takers wait for a worker: try again
            _log.warning("a detector worker did not start: %s", error)
            await asyncio.sleep(self._settings.retry_s)
            return
        self._note_room(None)
        if self._closed or port.node in self._nodes.draining:
            with contextlib.suppress(ActorDied):
                await port.end()
            return
        self.started(port)

    def _note_room(self, no_room: str | None) -> None:
        if (self.no_room is None) is not (no_room is None):
            _log.warning("%s", no_room or "a node has room for a worker again")
            self.no_room = no_room
            self.room_changed()
