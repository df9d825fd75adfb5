"""The heartbeats of workers, and the nodes that are avoided because no worker there answers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

BEATS: Final = 4
"""A silent worker counts as dead after this many beats."""

_AVOIDED_S: Final = 60.0
"""How long a silent node gets no workers. By then Ray has noticed if it is gone."""
_DOUBTFUL_BEATS: Final = 2
_ACTIVATING_FACTOR: Final = 4
"""During an activation, a worker may be silent for so many times as long: reading a large snapshot may block
all of its threads."""


class Heartbeat:
    """Counts the beats in a row that were not answered.

    Beats are counted, not seconds, because this process may have been stopped itself. It then finds the
    answer later.
    """

    def __init__(self) -> None:
        self.missed = 0

    def beat(self, *, answered: bool) -> None:
        """Note whether the last beat has been answered when the next one is due."""
        self.missed = 0 if answered else self.missed + 1

    @property
    def doubtful(self) -> bool:
        """Whether the worker should get no detector for now."""
        return self.missed >= _DOUBTFUL_BEATS

    def dead(self, *, activating: bool) -> bool:
        """Whether the worker counts as dead."""
        return self.missed >= BEATS * (_ACTIVATING_FACTOR if activating else 1)

    async def count(
        self,
        send: Callable[[], Coroutine[Any, Any, None]],
        beat_s: float,
        lost: Callable[[], bool],
        doubted: Callable[[], object],
    ) -> None:
        """Send beats, one after another, until the worker counts as lost.

        `send` returns once there is an answer, and `doubted` is called when doubt begins or ends. Raises what
        `send` raises.
        """
        sent: asyncio.Task[None] | None = None
        try:
            while not lost():
                if sent is None or sent.done():
                    sent = asyncio.create_task(send())
                before = self.doubtful
                await asyncio.wait({sent}, timeout=beat_s)
                if sent.done():
                    sent.result()
                    await asyncio.sleep(beat_s)
                self.beat(answered=sent.done())
                if self.doubtful is not before:
                    doubted()
        finally:
            if sent is not None:
                sent.cancel()


class AvoidedNodes:
    """The nodes on which no worker is started for a while."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    def add(self, node: str) -> None:
        """Avoid a node from now on."""
        self._until_s[node] = asyncio.get_running_loop().time() + _AVOIDED_S

    def remove(self, node: str) -> None:
        """Avoid a node no longer."""
        self._until_s.pop(node, None)

    def now(self) -> frozenset[str]:
        """Return the nodes to avoid now."""
        now_s = asyncio.get_running_loop().time()
        self._until_s = {node: until_s for node, until_s in self._until_s.items() if until_s > now_s}
        return frozenset(self._until_s)
