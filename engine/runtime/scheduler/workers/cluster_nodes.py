"""The nodes of the cluster, as Ray knows them."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from engine.runtime.contract.figures import NodeFigures
from engine.runtime.contract.settings import RuntimeSettings

_log = logging.getLogger(__name__)


AVOIDED_S: Final = 60.0
"""How long a silent node gets no workers. Afterwards one start is tried: the node may be back. If it is gone,
Ray, which waits much longer, may not have noticed yet."""


class NodesPort(Protocol):
    """The machines of the cluster."""

    @property
    def here(self) -> str:
        """The node of this process; empty if unknown."""

    async def look(self) -> Sequence[NodeFigures]:
        """Return all nodes, dead ones too."""

    async def drain(self, node: str, *, draining: bool) -> None:
        """Store whether a node is drained, for the lifetime of the cluster."""


class Nodes:
    """The nodes, according to Ray's last answer."""

    def __init__(self, port: NodesPort, settings: RuntimeSettings) -> None:
        self._port = port
        self._settings = settings
        self._figures: dict[str, NodeFigures] = {}
        """The living nodes, by id."""
        self._avoided_until_s: dict[str, float] = {}
        self._looking: asyncio.Task[Sequence[NodeFigures]] | None = None

    @property
    def here(self) -> str:
        """The node of this process; empty if unknown."""
        return self._port.here

    async def look(self) -> None:
        """Ask Ray for the nodes. While Ray does not answer, its last answer remains in use."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._port.look())
        try:
            found = await asyncio.shield(self._looking)
        except Exception as error:  # noqa: BLE001 -- Ray raises a dozen kinds; the next look follows soon
            _log.debug("the nodes are not known: %s", error)
        else:
            self._figures = {node.id: node for node in found if node.alive}

    async def drain(self, node: str, *, draining: bool) -> None:
        """Mark a node as drained, or as not drained."""
        await self._port.drain(node, draining=draining)
        await self.look()

    @property
    def known(self) -> Mapping[str, NodeFigures]:
        """The living nodes, by id; none if the nodes are unknown."""
        return self._figures

    @property
    def draining(self) -> frozenset[str]:
        """The nodes that get no more workers."""
        return frozenset(node.id for node in self._figures.values() if node.draining)

    def avoid(self, node: str) -> None:
        """Start no worker on a silent node for a while, if another node has room."""
        message = "no worker of the node %s answers; no worker is started on it for %g s"
        _log.warning(message, node, AVOIDED_S)
        self.doubt(node)

    def doubt(self, node: str) -> None:
        """Avoid a node that may be silent, too."""
        self._avoided_until_s[node] = asyncio.get_running_loop().time() + AVOIDED_S

    def trust(self, node: str) -> None:
        """Start workers on a node again."""
        self._avoided_until_s.pop(node, None)

    @property
    def avoided(self) -> frozenset[str]:
        """The nodes on which no worker is started for now."""
        now_s = asyncio.get_running_loop().time()
        return frozenset(node for node, until_s in self._avoided_until_s.items() if until_s > now_s)

    def accepts_workers(self, node: str | None) -> bool:
        """Whether a worker may be started on a node, or on any node for None."""
        takers = self._figures.keys() - self.draining
        return not self._figures or (bool(takers) if node is None else node in takers)

    def big_enough(self, node: str) -> bool:
        """Whether a living node would have room for a worker if it were empty."""
        figures = self._figures[node]
        return self._suffices(figures.cpus, figures.memory_bytes)

    def with_room(self, but: Collection[str] = ()) -> list[str]:
        """Return the nodes with room for another worker according to Ray, those with most free CPUs first.

        Nodes that are drained, or in `but`, are left out.
        """
        found = [
            node
            for node in self._figures.values()
            if self._suffices(node.cpus_free, node.memory_free_bytes) and not node.draining
        ]
        found.sort(key=lambda node: (-node.cpus_free, -node.memory_free_bytes))
        return [node.id for node in found if node.id not in but]

    def _suffices(self, cpus: float, memory_bytes: int) -> bool:
        return cpus >= self._settings.worker_cpus and memory_bytes >= self._settings.worker_memory_bytes

    @property
    def no_room(self) -> str:
        """The message that no node has room for another worker."""
        takers = [node for node in self._figures.values() if not node.draining]
        if not takers:
            nodes = len(self._figures)
            return f"no node has room for a worker: 0 of {nodes} nodes take workers, all are drained"
        asks = f"{self._settings.worker_cpus:g} CPUs and {self._settings.worker_memory_bytes / 1e6:.0f} MB"
        enough = sum(self._suffices(node.cpus, node.memory_bytes) for node in takers)
        return (
            f"no node has room for a worker, which asks for {asks} (--worker-cpus, --worker-memory-bytes); "
            f"{enough} of {len(self._figures)} nodes are large enough and not drained"
        )
