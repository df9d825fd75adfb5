"""Drops what has expired, a few slices at a time, so that no event waits long."""

from collections.abc import Hashable
from sys import getsizeof
from typing import Final

from engine.evaluation.slices.bounds.tracked import Keyed

LOOKED_AT: Final = 128
"""How many slices are looked at in a row, if the first of them has expired, or at every LOOKED_EVERY-th call.

There is a call for 32 events, and others look at one slice. Where every event adds a slice that expires, half
of the slices have expired: then two are looked at for each event.
"""

LOOKED_EVERY: Final = 64
_SHARD_STEP: Final = 97
"""Shards are visited in the order of the multiples of this prime, not in that in which keys were added."""

_SPARSE_BYTES: Final = 250
"""A dict takes less than half of this for each entry, unless it has had many more: it never shrinks."""


class Expiry:
    """Goes round the slices of one path."""

    def __init__(self, slices: Keyed) -> None:
        self._slices = slices
        self._keys: list[Hashable] = []
        self._place = self._calls = 0

    def drop_some(self, now_us: int) -> None:
        """Drop those of the next slices that have expired, and expired entries of the others."""
        self._calls += 1
        if not self._keys:
            self._shrink()
            self._place = (self._place + _SHARD_STEP) % len(self._slices.shards)
            # The oldest come last, and are looked at first. To list a shard reads all its keys from memory.
            self._keys = list(self._slices.shards[self._place])[::-1]
        if not self._keys:
            return
        if not self._drop_expired(self._keys.pop(), now_us) and self._calls % LOOKED_EVERY:
            return
        keys = self._keys[1 - LOOKED_AT :]
        del self._keys[1 - LOOKED_AT :]
        for key in reversed(keys):
            self._drop_expired(key, now_us)

    def _shrink(self) -> None:
        """Give back the room of the entries that the shard has lost."""
        shard = self._slices.shards[self._place]
        # While a snapshot is taken, a guard stands in its place, which is small.
        if getsizeof(shard) > _SPARSE_BYTES * (len(shard) + 1):
            self._slices.shards[self._place] = dict(shard)

    def _drop_expired(self, key: Hashable, now_us: int) -> bool:
        """Drop the slice of a key if it has expired, and tell whether it has."""
        slice_ = self._slices.find(key)
        if slice_ is None:
            return False
        if self._slices.drop_expired(slice_, now_us):
            self._slices.drop(key)
            return True
        return False
