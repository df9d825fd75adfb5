"""Values by number: each different value in the rows of a node is kept once."""

from array import array
from collections.abc import Callable
from typing import Any, Final

from engine.evaluation.key_sizes import key_bytes
from engine.evaluation.state.storage.sizes import INTERNED_BYTES
from engine.evaluation.state.storage.slots.shards import SHARDS, shrink

_SHRUNK_EVERY: Final = 16


class Interned:
    """The values in rows, each with a number, and how many rows have it."""

    __slots__ = ("_free", "_gone", "_weigh", "shards", "uses", "values")

    def __init__(self, weigh: Callable[[int], None]) -> None:
        self._weigh = weigh
        self.shards: list[dict[Any, int]] = [{} for _ in range(SHARDS)]
        """The numbers by value; see `tables.py`."""
        self.values: list[Any] = []
        self.uses = array("i")
        """For each number, how many rows have it."""
        self._free = array("i")
        self._gone = 0

    def take(self, value: Any) -> int:
        """Return the number of a value, and count one more use."""
        shard = self.shards[hash((value,)) % SHARDS]
        number = shard.get(value)
        if number is None:
            number = shard[value] = self._new(value)
            self._weigh(INTERNED_BYTES + key_bytes(value))
        self.uses[number] += 1
        return number

    def _new(self, value: Any) -> int:
        if self._free:
            number = self._free.pop()
            self.values[number] = value
            return number
        self.values.append(value)
        self.uses.append(0)
        return len(self.values) - 1

    def give_back(self, number: int) -> None:
        """Undo `take`."""
        self.uses[number] -= 1
        if self.uses[number]:
            return
        value, self.values[number] = self.values[number], None
        shard = self.shards[hash((value,)) % SHARDS]
        del shard[value]
        self._free.append(number)
        self._weigh(-INTERNED_BYTES - key_bytes(value))
        self._gone += 1
        if not self._gone % _SHRUNK_EVERY:
            shrink(shard)

    def copied(self) -> "Interned":
        """Return a copy that only gives the values of numbers."""
        copy = Interned(self._weigh)
        copy.values = self.values[:]
        return copy
