"""The heartbeats of workers, and the nodes that are avoided because no worker there answers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from engine.runtime.concurrency.beats import Beats

BEATS: Final = 4
"""A silent worker counts as dead after this many beats."""

_AVOIDED_S: Final = 60.0
"""How long a silent node gets no workers. Afterwards one is tried there: it may be back. If it is gone, Ray,
which is rightly patient, may not have noticed yet."""
_DOUBTFUL_BEATS: Final = 2
_ACTIVATING_FACTOR: Final = 4
"""During an activation, a worker may be silent for so many times as long: reading a large snapshot may block
all of its threads."""


class Heartbeat(Beats):
    """The heartbeat of a worker."""

    @property
    def doubtful(self) -> bool:
        """Whether the worker should get no detector for now."""
        return self.missed >= _DOUBTFUL_BEATS

    def dead(self, *, activating: bool) -> bool:
        """Whether the worker counts as dead."""
        return self.missed >= BEATS * (_ACTIVATING_FACTOR if activating else 1)

    async def watch(
        self,
        send: Callable[[], Coroutine[Any, Any, None]],
        beat_s: float,
        lost: Callable[[], bool],
        doubted: Callable[[], object],
    ) -> None:
        """Count beats as `count` does; `doubted` is called when doubt begins or ends."""
        before = self.doubtful

        def counted() -> None:
            nonlocal before
            if self.doubtful is not before:
                before = self.doubtful
                doubted()

        await self.count(send, beat_s, lost, counted)


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
