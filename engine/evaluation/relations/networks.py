"""The networks among the tuples of a relation: those of one text that is an address or a network."""

from collections import Counter
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

    An address costs one look-up for each different length of their prefixes.
    """

    __slots__ = ("_counts", "_lengths", "_shifts")

    def __init__(self) -> None:
        self._counts = PartedDict()
        self._lengths: Counter[int] = Counter()
        self._shifts: list[int] = []

    def copy(self) -> "StoredNetworks":
        """Return a copy to write to. This one is not written to any more."""
        copied = StoredNetworks()
        copied._counts, copied._lengths = self._counts.copy(), self._lengths.copy()
        copied._shifts = self._shifts[:]
        return copied

    def __len__(self) -> int:
        return self._counts.count

    def add(self, row: Row) -> None:
        """Add a tuple, if it is a network."""
        network = _network(row)
        if network is not None:
            key = network_key(network.key)
            before = self._counts.get(key, 0)
            self._counts[key] = before + 1
            if not before:
                self._lengths[network.shift] += 1
                if self._lengths[network.shift] == 1:
                    self._shifts = sorted(self._lengths)

    def remove(self, row: Row) -> None:
        """Remove a tuple that was added."""
        network = _network(row)
        if network is not None:
            key = network_key(network.key)
            left = self._counts.get(key) - 1
            if left:
                self._counts[key] = left
                return
            del self._counts[key]
            self._lengths[network.shift] -= 1
            if not self._lengths[network.shift]:
                del self._lengths[network.shift]
                self._shifts = sorted(self._lengths)

    def have(self, address: int) -> bool:
        """Return whether an address lies in one of them."""
        counts = self._counts
        return any(network_key(address >> shift) in counts for shift in self._shifts)


def _network(row: Row) -> Network | None:
    if len(row) != 1 or type(row[0]) is not str:
        return None
    text = row[0]
    # Most texts are no networks. What they begin with tells faster.
    return network_of(text) if text[:1] in _DIGITS else None
