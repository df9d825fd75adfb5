"""The nodes of the cluster: what Ray knows of them, and what workers use of them."""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from engine.runtime.contract.measurements.figures import NodeFigures, WorkerAnswer
from engine.runtime.contract.ports import NodesPort
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.placement.workers import node_choice
from engine.runtime.placement.workers.node_choice import Demand, NodeLoad

_log = logging.getLogger(__name__)


class Occupancy(NamedTuple):
    """How many workers, starting ones included, and how many detectors are on each node, by its id."""

    workers: Counter[str]
    detectors: Counter[str]


class NoNodes(NodesPort):
    """A cluster whose nodes are unknown: workers start anywhere."""

    here = ""

    async def look(self) -> Sequence[NodeFigures]:
        return []

    async def drain(self, node: str, *, draining: bool) -> None:
        """Nothing is drained."""


class Nodes:
    """The nodes as Ray last described them, with the last measurements of their workers."""

    def __init__(self, port: NodesPort, settings: RuntimeSettings) -> None:
        self._port = port
        self.demand = Demand(settings.worker_cpus, settings.worker_memory_bytes)
        """What each worker reserves."""
        self._figures: dict[str, NodeFigures] = {}
        """The living nodes, by id."""
        self._looking: asyncio.Task[Sequence[NodeFigures]] | None = None
        self._cpus_used: dict[str, float] = {}
        self._resident_bytes: Counter[str] = Counter()
        self._cpu_s: dict[str, float] = {}
        """The processor time of each worker at the last measurement."""
        self.worker_cpus: dict[str, float] = {}
        """The CPUs that each worker used between the last two measurements, by its name."""
        self._measured_at_s = 0.0

    @property
    def here(self) -> str:
        """The node of this process; empty if that is not known."""
        return self._port.here

    async def look(self) -> None:
        """Ask Ray for the nodes. While Ray does not answer, its last answer is used."""
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

    def measure(self, now_s: float, answers: Mapping[str, WorkerAnswer]) -> None:
        """Update the measurements with the last answers of the workers, by name."""
        seconds = max(now_s - self._measured_at_s, 0.1)
        self._measured_at_s = now_s
        self._cpus_used, self._resident_bytes, self.worker_cpus = {}, Counter(), {}
        for name, answer in answers.items():
            cpu_s = answer.process.cpu_s
            used = self.worker_cpus[name] = (cpu_s - self._cpu_s.get(name, cpu_s)) / seconds
            self._cpus_used[answer.node] = self._cpus_used.get(answer.node, 0.0) + used
            self._resident_bytes[answer.node] += answer.process.resident_bytes
        self._cpu_s = {name: answer.process.cpu_s for name, answer in answers.items()}

    @property
    def known(self) -> Mapping[str, NodeFigures]:
        """The living nodes, by id; none if the nodes are unknown."""
        return self._figures

    @property
    def several(self) -> bool:
        """Whether there is more than one node."""
        return len(self._figures) > 1

    @property
    def draining(self) -> frozenset[str]:
        """The nodes that take no more workers."""
        return frozenset(node.id for node in self._figures.values() if node.draining)

    def accepts_workers(self, node: str | None) -> bool:
        """Whether a worker may be started on a node, or with None on any."""
        takers = self._figures.keys() - self.draining
        return not self._figures or (bool(takers) if node is None else node in takers)

    def big_enough(self, node: str) -> bool:
        """Whether a living node, if nothing else ran there, would have room for a worker."""
        figures = self._figures[node]
        return figures.cpus >= self.demand.cpus and figures.memory_bytes >= self.demand.memory_bytes

    def for_worker(self, occupancy: Occupancy, but: Collection[str] = ()) -> str | None:
        """Return the node for the next worker, other than those in `but`; None if no node has room."""
        loads = [load for load in self.loads(occupancy) if load.id not in but]
        return node_choice.node_for_worker(loads, self.demand)

    def ranks(self, occupancy: Occupancy) -> dict[str, int]:
        """Return the rank of each node by fullness, the least full first."""
        return node_choice.ranks(self.loads(occupancy), self.demand)

    def loads(self, occupancy: Occupancy) -> list[NodeLoad]:
        """Return the loads of the nodes that take workers."""
        return [
            NodeLoad(
                node.id,
                node.cpus,
                node.memory_bytes,
                node.cpus_free,
                node.memory_free_bytes,
                self._cpus_used.get(node.id, 0.0),
                self._resident_bytes[node.id],
                occupancy.workers[node.id],
                occupancy.detectors[node.id],
            )
            for node in self._figures.values()
            if not node.draining
        ]

    @property
    def no_room(self) -> str:
        """The message that no node has room for another worker."""
        takers = [node for node in self._figures.values() if not node.draining]
        if not takers:
            nodes = len(self._figures)
            return f"no node has room for a worker: 0 of {nodes} nodes take workers, all are drained"
        asks = f"{self.demand.cpus:g} CPUs and {self.demand.memory_bytes / 1e6:.0f} MB"
        return (
            f"no node has room for a worker, which asks for {asks} (--worker-cpus, --worker-memory-bytes); "
            f"{len(takers)} of {len(self._figures)} nodes take workers"
        )
