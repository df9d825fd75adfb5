"""Which busy detector leaves a node whose CPUs are all in use: decided by measurements that agree."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from engine.runtime.placement.workers.node_choice import Demand, NodeLoad, fullness, has_room

_AGREE: Final = 3
"""This many measurements in a row must find the same node full before a detector is moved."""
_FULL: Final = 0.9
"""A node is full if workers use this share of its CPUs."""
_AFTERWARDS: Final = 0.7
"""A detector only goes where workers then use at most this share: that node is not full next, so nothing is
moved back and forth. A detector that needs a node for itself stays where it is."""
_WORTH: Final = 0.02
"""A detector that uses less than this share of its node relieves nothing."""


class Move(NamedTuple):
    """A detector, its node, and the node that it should go to."""

    detector_id: str
    node: str
    to: str


def relief(
    nodes: Sequence[NodeLoad], demand: Demand, cpus_used: Mapping[str, Mapping[str, float]]
) -> Move | None:
    """Return the move of the busiest detector that can leave a full node; None if none can.

    `cpus_used` are the CPUs that each detector uses, by its id, for each node.
    """
    for node in sorted((node for node in nodes if _share(node) >= _FULL), key=_share, reverse=True):
        busiest_first = sorted(cpus_used.get(node.id, {}).items(), key=lambda one: (-one[1], one[0]))
        for detector_id, used in busiest_first:
            takers = [
                to
                for to in nodes
                if to.cpus_used + used <= _AFTERWARDS * to.cpus
                and has_room(to, demand)
                and fullness(to, demand) < fullness(node, demand)
            ]
            if takers and used >= _WORTH * node.cpus:
                return Move(detector_id, node.id, min(takers, key=lambda to: (_share(to), to.id)).id)
    return None


class Relief:
    """Counts how many measurements in a row have found the same node full."""

    def __init__(self) -> None:
        self._node = ""
        self._times = 0

    def count(self, move: Move | None) -> bool:
        """Count the newest measurement. Return whether the move that follows from it is to be made."""
        node = "" if move is None else move.node
        self._times = self._times + 1 if node == self._node else 1
        self._node = node
        if not node or self._times < _AGREE:
            return False
        # The next measurements must show what this move has changed.
        self._times = 0
        return True


def _share(node: NodeLoad) -> float:
    return node.cpus_used / node.cpus if node.cpus else 0.0
