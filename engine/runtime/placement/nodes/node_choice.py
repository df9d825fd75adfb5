"""Which node gets the next worker, and which one should give a detector away: decided by their loads."""

from collections.abc import Iterable
from typing import Final, NamedTuple

STEP: Final = 0.1
"""Shares that differ by less count as equal: they vary by as much from one look to the next."""


class Ask(NamedTuple):
    """What a worker asks of its node."""

    cpus: float = 0.0
    memory_bytes: int = 0


class NodeLoad(NamedTuple):
    """What a node has, and what is taken of it.

    Events a second are in the CPU that workers use: what an event costs differs from rule to rule.
    """

    id: str
    cpus: float
    memory_bytes: int
    cpus_free: float
    """What Ray has not given away; it may not know yet of workers that are just being started."""
    memory_free_bytes: int
    cpus_used: float = 0.0
    """By workers, as measured."""
    resident_bytes: int = 0
    """Of workers, as measured."""
    workers: int = 0
    """Those that are being started, too."""
    detectors: int = 0
    """Those that are being activated, too."""


def fullness(node: NodeLoad, ask: Ask) -> tuple[int, float]:
    """Return how full a node is: the largest of its shares, in steps, and its detectors for each CPU."""
    cpus, memory_bytes = max(node.cpus, STEP), max(node.memory_bytes, 1)
    share = max(
        node.cpus_used / cpus,
        (node.cpus - node.cpus_free) / cpus,
        node.workers * ask.cpus / cpus,
        node.resident_bytes / memory_bytes,
        (node.memory_bytes - node.memory_free_bytes) / memory_bytes,
        node.workers * ask.memory_bytes / memory_bytes,
    )
    return int(share / STEP), node.detectors / cpus


def has_room(node: NodeLoad, ask: Ask) -> bool:
    """Whether a worker more can be started on a node."""
    # Less by what floating point loses in a sum.
    cpus_free = min(node.cpus_free, node.cpus - node.workers * ask.cpus) + 1e-6
    memory_free_bytes = min(node.memory_free_bytes, node.memory_bytes - node.workers * ask.memory_bytes)
    return cpus_free >= ask.cpus and memory_free_bytes >= ask.memory_bytes


def node_for_worker(nodes: Iterable[NodeLoad], ask: Ask) -> str | None:
    """Return the least full node that has room for a worker; None if none has."""
    with_room = [node for node in nodes if has_room(node, ask)]
    if not with_room:
        return None
    return min(with_room, key=lambda node: (*fullness(node, ask), node.workers, node.id)).id


def ranks(nodes: Iterable[NodeLoad], ask: Ask) -> dict[str, int]:
    """Return the place of each node in the order of fullness; equally full ones have the same."""
    full = {node.id: fullness(node, ask) for node in nodes}
    order = {each: rank for rank, each in enumerate(sorted(set(full.values())))}
    return {node_id: order[each] for node_id, each in full.items()}


def giver(nodes: Iterable[NodeLoad], ask: Ask) -> str | None:
    """Return the node that should give a detector to the least full one; None if they are even.

    It gives only as long as it has more detectors for each CPU afterwards, so none is moved to and fro.
    """
    ordered = sorted(nodes, key=lambda node: (*fullness(node, ask), node.id))
    if not ordered:
        return None
    least, most = ordered[0], ordered[-1]
    after = (most.detectors - 1) / max(most.cpus, STEP)
    return most.id if after >= (least.detectors + 1) / max(least.cpus, STEP) else None
