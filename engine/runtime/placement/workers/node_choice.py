"""Which node gets the next worker, and which one should give a detector away: decided by their loads."""

from collections.abc import Iterable
from typing import Final, NamedTuple

STEP: Final = 0.1
"""Shares that differ by less count as equal: that much they vary from one measurement to the next."""


class Demand(NamedTuple):
    """The resources that each worker reserves on its node."""

    cpus: float
    memory_bytes: int


class NodeLoad(NamedTuple):
    """What a node has, and how much of it is in use.

    The rate of events shows in the CPU that workers use: what an event costs differs from rule to rule.
    """

    id: str
    cpus: float
    memory_bytes: int
    cpus_free: float
    """What Ray has not reserved. It may not count workers yet that are just starting."""
    memory_free_bytes: int
    cpus_used: float
    """The CPUs that workers use, as measured."""
    resident_bytes: int
    """The memory that workers use, as measured."""
    workers: int
    """The number of workers, with those that are starting."""
    detectors: int
    """The number of detectors, with those that are being activated."""


def fullness(node: NodeLoad, demand: Demand) -> tuple[int, float]:
    """Return how full a node is: the largest share in use, in steps, and its detectors per CPU."""
    cpus, memory_bytes = max(node.cpus, STEP), max(node.memory_bytes, 1)
    share = max(
        node.cpus_used / cpus,
        (node.cpus - node.cpus_free) / cpus,
        node.workers * demand.cpus / cpus,
        node.resident_bytes / memory_bytes,
        (node.memory_bytes - node.memory_free_bytes) / memory_bytes,
        node.workers * demand.memory_bytes / memory_bytes,
    )
    return int(share / STEP), node.detectors / cpus


def has_room(node: NodeLoad, demand: Demand) -> bool:
    """Whether another worker can be started on a node."""
    # The margin is for rounding errors in sums.
    cpus_free = min(node.cpus_free, node.cpus - node.workers * demand.cpus) + 1e-6
    memory_free_bytes = min(node.memory_free_bytes, node.memory_bytes - node.workers * demand.memory_bytes)
    return cpus_free >= demand.cpus and memory_free_bytes >= demand.memory_bytes


def node_for_worker(nodes: Iterable[NodeLoad], demand: Demand) -> str | None:
    """Return the least full node that has room for a worker; None if none has."""
    with_room = [node for node in nodes if has_room(node, demand)]
    if not with_room:
        return None
    return min(with_room, key=lambda node: (*fullness(node, demand), node.workers, node.id)).id


def ranks(nodes: Iterable[NodeLoad], demand: Demand) -> dict[str, int]:
    """Return the rank of each node by fullness, 0 for the least full; equally full nodes have the same."""
    full = {node.id: fullness(node, demand) for node in nodes}
    order = {each: rank for rank, each in enumerate(sorted(set(full.values())))}
    return {node_id: order[each] for node_id, each in full.items()}


def giver(nodes: Iterable[NodeLoad], demand: Demand) -> str | None:
    """Return the node that should give a detector to the least full one; None if none should.

    It gives one only if it still has no fewer detectors per CPU afterwards, so none is moved back and forth.
    """
    ordered = sorted(nodes, key=lambda node: (*fullness(node, demand), node.id))
    if not ordered:
        return None
    least, most = ordered[0], ordered[-1]
    after = (most.detectors - 1) / max(most.cpus, STEP)
    return most.id if after >= (least.detectors + 1) / max(least.cpus, STEP) else None
