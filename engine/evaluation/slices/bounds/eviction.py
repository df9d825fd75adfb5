"""Drops what has expired, a few slices at a time, so that no event waits long.

Past the bounds on number and size, it evicts the longest unseen slices, once nothing expired is left. Which
ones depends only on what can still matter, not on what has been swept already. So a detector that was
restored, or that replays its journal in another process, evicts the same.
"""

from collections.abc import Hashable, Iterable, Iterator
from operator import itemgetter
from sys import getsizeof
from typing import Final, NamedTuple

from engine.evaluation.paths import Path
from engine.evaluation.slices.bounds.tracked import Keyed, Tracked
from engine.evaluation.slices.slices import Slices

LOOKED_EVERY: Final = 8
"""After so many calls, so many slices are looked at in a row. To look at one at each call takes twice as
long, because other code has evicted this code from the processor's caches meanwhile."""

LOOKED_AT: Final = 128
"""How many slices are looked at in a row while many have expired.

There is a call for 32 events. Where every event adds a slice that expires, a quarter of the slices have
expired: then four are looked at for each event.
"""

EXPIRED_SHARE: Final = 8
"""Many have expired if one in so many of the last row had, or entries in it."""

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
        self._many = False
        """Whether many of the last row had expired."""

    def drop_some(self, now_us: int) -> None:
        """Drop those of the next slices that have expired, and expired entries of the others."""
        self._calls += 1
        if not self._many and self._calls % LOOKED_EVERY:
            return
        if not self._keys:
            self._shrink()
            self._place = (self._place + _SHARD_STEP) % len(self._slices.shards)
            # The oldest come last, and are looked at first. To list a shard reads all its keys from memory.
            self._keys = list(self._slices.shards[self._place])[::-1]
        row = -LOOKED_AT if self._many else -LOOKED_EVERY
        keys = self._keys[row:]
        del self._keys[row:]
        expired = sum([self._drop_expired(key, now_us) for key in reversed(keys)])
        self._many = expired * EXPIRED_SHARE >= len(keys) > 0

    def _shrink(self) -> None:
        """Give back the room of the entries that the shard has lost."""
        shard = self._slices.shards[self._place]
        # While a snapshot is taken, a guard stands in its place, which is small.
        if getsizeof(shard) > _SPARSE_BYTES * (len(shard) + 1):
            self._slices.shards[self._place] = dict(shard)

    def _drop_expired(self, key: Hashable, now_us: int) -> bool:
        """Drop what has expired in the slice of a key, and tell whether anything has."""
        slice_ = self._slices.find(key)
        if slice_ is None:
            return False
        drops, remains = self._slices.drop_expired(slice_, now_us)
        if not remains:
            self._slices.drop(key)
        return drops or not remains


NEAR_SHARE: Final = (7, 8)
FAR_SHARE: Final = (3, 4)
"""Tracking starts above the first share of a bound, and ends at the second."""

TRACKED_AT_ONCE: Final = 256
"""Each `settle` begins to track about this many slices of each path: with one event in a row, all are tracked
before the bound is reached."""

DROPPED_AT_ONCE: Final = 256
"""Each `settle` evicts at most this many slices, in about a millisecond. An event seldom needs more than a
few, but a bound that was lowered may be passed by very many. It looks at as many that have expired, or more
if the bound is still passed."""


SWEPT_FROM: Final = 1 << 14
"""Up to this many slices, those that have expired stay: a key that comes again then finds its slice."""

SETTLED_EVERY: Final = 32
"""After each so many events, the bounds are looked after even if none is passed."""


class Evicted(NamedTuple):
    """How many slices were evicted before they expired."""

    by_number: int
    by_bytes: int


NONE_EVICTED: Final = Evicted(0, 0)


class Bounded:
    """Slices with keys, and the bounds on their number and on their size."""

    def __init__(self, live_max: int, bytes_max: int) -> None:
        self.live_max, self.bytes_max = live_max, bytes_max
        self.slices = dict[Path, Slices]()
        """Those by path, and those without keys."""
        self.besides: list[Keyed] = []
        """What counts towards the bounds besides slices."""
        self.live = self.keyed_bytes = 0
        """How many slices with keys there are, and their estimated size."""
        self.tracking = False
        """Whether slices log the keys of events, because a bound is near."""
        self.due = False
        """Whether a bound is passed, so that `settle` must be called after this event."""
        self._tracked: dict[Path, Tracked] = {}
        self._expiries: dict[Path, Expiry] = {}

    def bound(self, part: Keyed) -> None:
        """Have entries that are no slices count towards the bounds, too."""
        self.besides.append(part)
        self._expiries[part.path] = Expiry(part)

    def weigh(self, more_bytes: int, more_slices: int = 0) -> None:
        """Count more bytes, and more slices with keys."""
        self.keyed_bytes += more_bytes
        self.live += more_slices
        if self.keyed_bytes > self.bytes_max or self.live > self.live_max:
            self.due = True

    def _reaches(self, share: tuple[int, int]) -> bool:
        """Return whether there is more than a share of a bound."""
        part, whole = share
        return whole * self.live > part * self.live_max or whole * self.keyed_bytes > part * self.bytes_max

    def settle(self, now_us: int, tick: int) -> Evicted:
        """Hold the bounds after event `tick`, and count what was evicted before it had expired."""
        # While slices are tracked, eviction finds those that have expired.
        if not tick % SETTLED_EVERY and self.live > SWEPT_FROM and not self.tracking:
            for expiry in self._expiries.values():
                expiry.drop_some(now_us)
        self.due = False
        return self._hold(now_us) if self.tracking or self._reaches(NEAR_SHARE) else NONE_EVICTED

    def _hold(self, now_us: int) -> Evicted:
        """Drop what has expired and, until the bounds hold, more; not too much at once.

        Count the slices that had not expired. A bound is near, or was.
        """
        self.tracking = True
        self._track(self.live if self._passed() else TRACKED_AT_ONCE)
        self._drop_expired(now_us)
        by_number = by_bytes = 0
        for _ in range(DROPPED_AT_ONCE):
            passed = self._passed()
            if not passed:
                break
            _, _, number, tracked = min(self._firsts(expiring=False), key=_in_order)
            tracked.drop(number)
            by_number += passed == "number"
            by_bytes += passed == "bytes"
        self.due = bool(self._passed())
        if not self._reaches(FAR_SHARE):
            self.renew()
        return Evicted(by_number, by_bytes)

    def renew(self) -> None:
        """Track all anew, if a bound is near: call this where something is dropped that no event dropped."""
        self._tracked.clear()
        self.tracking = False
        for slices in self._keyed():
            slices.touched.clear()

    def _drop_expired(self, now_us: int) -> None:
        looked_at = 0
        while looked_at < DROPPED_AT_ONCE or self._passed():
            until_us, _, number, tracked = min(self._firsts(expiring=True), key=_in_order)
            if until_us >= now_us:
                return
            tracked.drop_expired(number, now_us)
            looked_at += 1

    def _passed(self) -> str:
        if self.live > self.live_max:
            return "number"
        return "bytes" if self.keyed_bytes > self.bytes_max and self.live else ""

    def _track(self, count: int) -> None:
        for slices in self._keyed():
            path = slices.path
            if path not in self._tracked:
                self._tracked[path] = Tracked(slices)
            if slices.touched:
                self._tracked[path].update(dict.fromkeys(slices.touched))
                slices.touched.clear()
            self._tracked[path].take_in(count)

    def _keyed(self) -> Iterator[Keyed]:
        yield from (slices for path, slices in self.slices.items() if path)
        yield from self.besides

    def _firsts(self, *, expiring: bool) -> Iterable[tuple[int, tuple[str, ...], int, Tracked]]:
        for tracked in self._tracked.values():
            first, number = tracked.first_to_expire() if expiring else tracked.longest_unseen()
            yield first, tracked.order, number, tracked


_in_order: Final = itemgetter(slice(3))
