"""Drops expired slices, a few at a time, so that no event waits long.

Above the bounds on number and size, it evicts the slices that were not seen for longest, once no expired ones
are left. The choice depends only on the state that can still matter, not on what was swept before. So a
detector that is restored, or replays its journal in another process, evicts the same slices.
"""

from collections.abc import Hashable, Iterable, Iterator
from operator import itemgetter
from sys import getsizeof
from typing import Final, NamedTuple

from engine.evaluation.paths import Path
from engine.evaluation.slices.bounds.tracked import Keyed, Tracked
from engine.evaluation.slices.slices import Slices

LOOKED_EVERY: Final = 8
"""After this many calls, this many slices are checked in a row. Checking one at each call takes twice as
long, because other code evicts this code from the processor's caches in between."""

LOOKED_AT: Final = 128
"""The number of slices checked in a row while many are expired.

There is a call for every 32 events. If every event adds a slice that expires, a quarter of the slices are
expired, because four are checked for each event.
"""

EXPIRED_SHARE: Final = 8
"""Many slices are expired if one in this many of the last row was, or had expired entries."""

_SHARD_STEP: Final = 97
"""Shards are visited in the order of the multiples of this prime, not in the order of new keys."""

_SPARSE_BYTES: Final = 250
"""A dict takes less than half of this for each entry, unless it once had many more: it never shrinks."""


class Expiry:
    """Cycles through the slices of one path."""

    def __init__(self, slices: Keyed) -> None:
        self._slices = slices
        self._keys: list[Hashable] = []
        self._place = self._calls = 0
        self._many = False
        """Whether many of the last row were expired."""

    def drop_some(self, now_us: int) -> None:
        """Check the next slices: drop expired ones, and expired entries of the others."""
        self._calls += 1
        if not self._many and self._calls % LOOKED_EVERY:
            return
        if not self._keys:
            self._shrink()
            self._place = (self._place + _SHARD_STEP) % len(self._slices.shards)
            # The oldest keys come last, and are checked first. Listing a shard reads all its keys.
            self._keys = list(self._slices.shards[self._place])[::-1]
        row = -LOOKED_AT if self._many else -LOOKED_EVERY
        keys = self._keys[row:]
        del self._keys[row:]
        expired = sum([self._drop_expired(key, now_us) for key in reversed(keys)])
        self._many = expired * EXPIRED_SHARE >= len(keys) > 0

    def _shrink(self) -> None:
        """Free the memory of the entries that the shard has lost."""
        shard = self._slices.shards[self._place]
        # While a snapshot is taken, the shard is a guard, which is small.
        if getsizeof(shard) > _SPARSE_BYTES * (len(shard) + 1):
            self._slices.shards[self._place] = dict(shard)

    def _drop_expired(self, key: Hashable, now_us: int) -> bool:
        """Drop what has expired in the slice of a key. Return whether anything had."""
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
"""Each `settle` starts to track about this many slices of each path, so all are tracked before the bound is
reached, even if events come one by one."""

DROPPED_AT_ONCE: Final = 256
"""Each `settle` evicts at most this many slices, in about a millisecond. An event rarely needs more than a
few, but a bound that was lowered may be exceeded by very many. It also drops at most this many expired
slices, or more while a bound is exceeded."""


SWEPT_FROM: Final = 1 << 14
"""Up to this many slices, expired ones stay, so a key that returns finds its slice."""

SETTLED_EVERY: Final = 32
"""The bounds are checked after every so many events, even if none is exceeded."""


class Evicted(NamedTuple):
    """The number of slices evicted before they expired."""

    by_number: int
    by_bytes: int


NONE_EVICTED: Final = Evicted(0, 0)


class Bounded:
    """Slices with keys, and the bounds on their number and on their size."""

    def __init__(self, live_max: int, bytes_max: int) -> None:
        self.live_max, self.bytes_max = live_max, bytes_max
        self.slices = dict[Path, Slices]()
        """All slices by path, including those without keys."""
        self.besides: list[Keyed] = []
        """Other entries that count towards the bounds."""
        self.live = self.keyed_bytes = 0
        """The number of slices with keys, and their estimated size."""
        self.tracking = False
        """Whether slices log the keys of events, because a bound is near."""
        self.due = False
        """Whether a bound is exceeded, so `settle` must be called after this event."""
        self._tracked: dict[Path, Tracked] = {}
        self._expiries: dict[Path, Expiry] = {}

    def bound(self, part: Keyed) -> None:
        """Count entries that are not slices towards the bounds, too."""
        self.besides.append(part)
        self._expiries[part.path] = Expiry(part)

    def weigh(self, more_bytes: int, more_slices: int = 0) -> None:
        """Add to the size, and to the number of slices with keys."""
        self.keyed_bytes += more_bytes
        self.live += more_slices
        if self.keyed_bytes > self.bytes_max or self.live > self.live_max:
            self.due = True

    def _reaches(self, share: tuple[int, int]) -> bool:
        """Return whether the state exceeds a share of a bound."""
        part, whole = share
        return whole * self.live > part * self.live_max or whole * self.keyed_bytes > part * self.bytes_max

    def settle(self, now_us: int, tick: int) -> Evicted:
        """Enforce the bounds after event `tick`. Return the numbers of slices evicted before they expired."""
        # While slices are tracked, eviction finds the expired ones.
        if not tick % SETTLED_EVERY and self.live > SWEPT_FROM and not self.tracking:
            for expiry in self._expiries.values():
                expiry.drop_some(now_us)
        self.due = False
        return self._hold(now_us) if self.tracking or self._reaches(NEAR_SHARE) else NONE_EVICTED

    def _hold(self, now_us: int) -> Evicted:
        """Drop expired slices, and evict others until the bounds hold, a limited number at once.

        Return the numbers of the latter. Called while a bound is near, or was.
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
        """Discard all tracking; it restarts near a bound. Call this after drops not caused by events."""
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
