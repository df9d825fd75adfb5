"""The networks among the tuples of a relation: those of one text that is an address or a network."""

from typing import Final

from engine.evaluation.facts.relations import network_key
from engine.evaluation.relations.parts import PartedDict
from engine.evaluation.relations.rows import Row
from engine.language.validation.networks import Network, network_of

NETWORK_BYTES: Final = 128
"""The estimated memory that a network takes, in bytes."""

_DIGITS: Final = frozenset("0123456789abcdefABCDEF:")


class StoredNetworks:
    """Networks, each with the number of tuples that name it.

    An address costs one look-up for each different length that a prefix ever had.
    """

    __slots__ = ("_counts", "_shifts")

    def __init__(self) -> None:
        self._counts = PartedDict()
        self._shifts: set[int] = set()

    def copy(self) -> "StoredNetworks":
        """Return a copy to write to. This one is not written to any more."""
        copied = StoredNetworks()
        copied._counts, copied._shifts = self._counts.copy(), self._shifts.copy()
        return copied

    def __len__(self) -> int:
        return self._counts.count

    def add(self, row: Row) -> None:
        """Add a tuple, if it is a network."""
        network = _network(row)
        if network is not None:
            key = network_key(network.key)
            self._counts[key] = self._counts.get(key, 0) + 1
            self._shifts.add(network.shift)

    def remove(self, row: Row) -> None:
        """Remove a tuple that was added."""
        network = _network(row)
        if network is not None:
            key = network_key(network.key)
            left = self._counts.get(key) - 1
            if left:
                self._counts[key] = left
            else:
                del self._counts[key]

    def have(self, address: int) -> bool:
        """Return whether an address lies in one of them."""
        counts = self._counts
        return any(network_key(address >> shift) in counts for shift in self._shifts)


def _network(row: Row) -> Network | None:
    if len(row) != 1:
        return None
    (text,) = row
    # Most texts are no networks. What they begin with tells faster.
    return network_of(text) if type(text) is str and text[:1] in _DIGITS else None
