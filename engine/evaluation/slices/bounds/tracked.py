"""Tracks the slices of one path near a bound: which loses an entry first, which was not seen for longest.

Tracked slices have numbers. Arrays hold the first expiry and the last event of each, and trees above them
their minima. Far from the bounds, nothing is tracked, at no cost.
"""

from array import array
from collections.abc import Hashable, Iterable, MutableMapping
from typing import Protocol

from engine.evaluation.paths import Path, order_of
from engine.evaluation.slices.bounds.minima import Minima
from engine.evaluation.slices.slices import NUMBER, Slice
from engine.evaluation.times import FOREVER


class Keyed(Protocol):
    """Slices by key, in shards."""

    @property
    def path(self) -> Path:
        """The path, which identifies these slices."""

    shards: list[MutableMapping[Hashable, Slice]]
    """A key is in the shard of its hash modulo their number."""
    touched: list[Hashable]
    """The keys of the latest events, while a bound is near."""

    def find(self, key: Hashable) -> Slice | None:
        """Return the slice of a key, if there is one."""

    def drop(self, key: Hashable) -> None:
        """Drop a slice. If its key returns, it starts anew."""

    def last_seen(self, slice_: Slice) -> int:
        """Return the rank of a slice's last event among all events."""

    def first_until_us(self, slice_: Slice) -> int:
        """Return the last time at which nothing is expired, neither a single entry nor the whole slice."""

    def drop_expired(self, slice_: Slice, now_us: int) -> tuple[bool, bool]:
        """Drop expired entries. Return whether there were any, and whether others remain."""


class Tracked:
    """The tracked slices of one path."""

    def __init__(self, slices: Keyed) -> None:
        self._slices = slices
        self.order = order_of(slices.path)
        self._keys: list[Hashable] = []
        self._free: list[int] = []
        self._until_us, self._seen = array("q"), array("q")
        self._first_to_expire, self._longest_unseen = Minima(self._until_us), Minima(self._seen)
        self._shards = 0
        """The number of tracked shards."""

    def take_in(self, count: int) -> None:
        """Track more shards, until about this many more slices are tracked, or all are."""
        while self._shards < len(self._slices.shards) and count > 0:
            shard = self._slices.shards[self._shards]
            self._shards += 1
            count -= len(shard)
            for key, slice_ in shard.items():
                slice_[NUMBER] = -1
                self._update(key)

    def update(self, keys: Iterable[Hashable]) -> None:
        """Update the slices of keys whose events changed them."""
        for key in keys:
            if hash(key) % len(self._slices.shards) < self._shards:
                self._update(key)

    def first_to_expire(self) -> tuple[int, int]:
        """Return the earliest expiry of any entry, and the number of its slice."""
        return self._first_to_expire.least()

    def longest_unseen(self) -> tuple[int, int]:
        """Return the rank of the last event of the slice not seen for longest, and the slice's number."""
        return self._longest_unseen.least()

    def drop_expired(self, number: int, now_us: int) -> None:
        """Drop the expired entries of a slice, and the slice if none remains."""
        key = self._keys[number]
        slice_ = self._slices.find(key)
        assert slice_ is not None, "a tracked slice exists"
        _, remains = self._slices.drop_expired(slice_, now_us)
        if not remains:
            self.drop(number)
        else:
            self._update(key)
            assert self._until_us[number] >= now_us, "what remains can still matter"

    def drop(self, number: int) -> None:
        """Drop a slice."""
        key = self._keys[number]
        self._slices.drop(key)
        self._keys[number] = None
        self._free.append(number)
        self._set(number, FOREVER, FOREVER)

    def _update(self, key: Hashable) -> None:
        slice_ = self._slices.find(key)
        if slice_ is None:
            return
        number = slice_[NUMBER]
        if number < 0 or number >= len(self._keys) or self._keys[number] != key:
            number = slice_[NUMBER] = self._free.pop() if self._free else len(self._keys)
            if number == len(self._keys):
                self._keys.append(key)
                self._until_us.append(FOREVER)
                self._seen.append(FOREVER)
            self._keys[number] = key
        self._set(number, self._slices.first_until_us(slice_), self._slices.last_seen(slice_))

    def _set(self, number: int, until_us: int, seen: int) -> None:
        self._until_us[number], self._seen[number] = until_us, seen
        self._first_to_expire.changed(number)
        self._longest_unseen.changed(number)
