"""Evicts keys past the bounds on their number and their memory: expired ones first, then the longest unseen.

Eviction is exact: it always finds the next key to drop, in constant time. Far from the bounds, it costs
nothing. From `NEAR_SHARE` of a bound on, keys are *tracked*: each table logs the slots that events touch, and
the expiry of each key is kept up to date.

Which keys are evicted depends only on the state, not on how long keys have been tracked. So a restored
detector continues exactly like the one that was saved.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from engine.evaluation.memory import FOREVER
from engine.evaluation.paths import Path
from engine.evaluation.state.removal.expiry import forget, page_until_us, until_us
from engine.evaluation.state.removal.minima import Minima
from engine.evaluation.state.storage.columns import ColumnTable
from engine.evaluation.state.storage.pages import PAGE_BITS
from engine.evaluation.state.storage.tables import Total

NEAR_SHARE: Final = (7, 8)
FAR_SHARE: Final = (3, 4)
"""Tracking starts above the first share of a bound, and ends at the second."""

PAGES_AT_ONCE: Final = 4
"""Each `hold` begins to track this many pages of each table. A million keys are all tracked before the bound
is reached."""


DROPPED_AT_ONCE: Final = 256
"""Each `hold` drops at most this many keys, in about a millisecond. An event seldom needs more than a few,
but a bound that was lowered may be passed by very many."""


class Evicted(NamedTuple):
    """The number of keys that were evicted before they expired."""

    by_number: int
    """The keys evicted by the bound on their number."""
    by_bytes: int
    """The keys evicted by the bound on their memory."""


NOTHING_EVICTED: Final = Evicted(0, 0)


_TOO_MANY, _TOO_LARGE = 1, 2


class Bounded(Total, Protocol):
    """The totals over all tables, and the tables."""

    tables: dict[Path, ColumnTable]

    @property
    def keyed_bytes(self) -> int:
        """The estimated size of the live keys and their memories."""


class _Tracked:
    """The tracked keys of one table, by expiry and by last event."""

    __slots__ = ("_pages", "_seen", "_table", "_until", "_until_us", "order")

    def __init__(self, table: ColumnTable) -> None:
        self._table = table
        self.order = table.order
        self._until_us = array("q")
        """The expiry of each slot's key, as far as pages are tracked."""
        self._until = Minima(self._until_us)
        self._seen = Minima(table.seen)
        self._pages = 0
        """The number of tracked pages."""

    def take_in(self, pages: int) -> None:
        """Track more pages."""
        table = self._table
        for number in range(self._pages, min(self._pages + pages, len(table.free_slots.room))):
            first = number << PAGE_BITS
            self._reach(first)
            lasting = array("q", page_until_us(table, number))
            self._until_us[first : first + len(lasting)] = lasting
            self._until.look(first, first + len(lasting))
            self._seen.look(first, first + len(lasting))
            self._pages = number + 1

    def update(self, slots: Iterable[int]) -> None:
        """Update slots that events have touched."""
        table, lasting = self._table, self._until_us
        known = [slot for slot in slots if slot >> PAGE_BITS < self._pages]
        for slot in known:
            self._reach(slot + 1)
            lasting[slot] = until_us(table, slot) if slot < len(table.keys) else FOREVER
        # This comes last: if many keys of one part are dropped together, one scan is then enough.
        for slot in known:
            self._until.changed(slot)
            self._seen.changed(slot)

    def _reach(self, slots: int) -> None:
        missing = slots - len(self._until_us)
        if missing > 0:
            self._until_us.extend([FOREVER] * missing)

    def drop(self, slot: int) -> None:
        """Drop a key."""
        forget(self._table, slot)
        self.update((slot,))

    def first_to_expire(self) -> tuple[int, int]:
        """Return the expiry and the slot of the key that expires first."""
        return self._until.least()

    def longest_unseen(self) -> tuple[int, int]:
        """Return the last event and the slot of the key that has not been seen for longest."""
        return self._seen.least()


class Eviction:
    """Holds the keys of a detector to its bounds."""

    __slots__ = ("_bounded", "_tracked")

    def __init__(self, bounded: Bounded) -> None:
        self._bounded = bounded
        self._tracked: dict[Path, _Tracked] = {}

    def hold(self, now_us: int) -> Evicted:
        """Drop keys until the bounds hold, but not too many at once, and count those that had not expired."""
        bounded = self._bounded
        if not bounded.tracking:
            if not self._reached(NEAR_SHARE):
                return NOTHING_EVICTED
            bounded.tracking = True
        self._track(None if self._passed() else PAGES_AT_ONCE)
        by_number = by_bytes = 0
        for _ in range(DROPPED_AT_ONCE):
            excess = self._passed()
            if not excess:
                break
            if self._drop_expired(now_us):
                continue
            self._drop_longest_unseen()
            by_number += excess == _TOO_MANY
            by_bytes += excess == _TOO_LARGE
        bounded.due = bool(self._passed())
        if not self._reached(FAR_SHARE):
            self._end()
        return Evicted(by_number, by_bytes)

    def renew(self) -> None:
        """Track all keys anew, if keys are tracked: call this after changes that no event made."""
        if self._bounded.tracking:
            self._end()
            self.resume()

    def renew_later(self, path: Path) -> None:
        """Track the keys of a path anew, a few pages at a time until a bound is passed."""
        self._tracked.pop(path, None)

    def resume(self) -> None:
        """Track all keys at once if a bound is near, as it may be after a restore."""
        if self._reached(NEAR_SHARE):
            self._bounded.tracking = True
            self._track(None)

    def _end(self) -> None:
        self._bounded.tracking = False
        self._tracked.clear()
        for table in self._bounded.tables.values():
            table.log.clear()

    def _passed(self) -> int:
        """Return the bound that is passed, or 0. Without keys, no bound counts as passed."""
        bounded = self._bounded
        if bounded.live > bounded.live_max:
            return _TOO_MANY
        return _TOO_LARGE if bounded.keyed_bytes > bounded.bytes_max and bounded.live else 0

    def _reached(self, share: tuple[int, int]) -> bool:
        """Return whether this share of a bound is passed."""
        part, whole = share
        bounded = self._bounded
        return (
            whole * bounded.live > part * bounded.live_max
            or whole * bounded.keyed_bytes > part * bounded.bytes_max
        )

    def _track(self, pages: int | None) -> None:
        """Update the slots that events have touched, and track more pages; all of them if `pages` is None."""
        for path, table in self._bounded.tables.items():
            tracked = self._tracked.get(path)
            if tracked is None:
                tracked = self._tracked[path] = _Tracked(table)
            if table.log:
                tracked.update(dict.fromkeys(table.log))
                table.log.clear()
            tracked.take_in(len(table.free_slots.room) if pages is None else pages)

    def _drop_expired(self, now_us: int) -> bool:
        """Drop the key that expired first. Tell whether there was one."""
        until_us, _, slot, tracked = min(self._firsts(_Tracked.first_to_expire), key=_in_order)
        if until_us >= now_us:
            return False
        tracked.drop(slot)
        return True

    def _drop_longest_unseen(self) -> None:
        """Drop the key whose last event is the earliest; among several, that of the least path."""
        tick, _, slot, tracked = min(self._firsts(_Tracked.longest_unseen), key=_in_order)
        assert tick < FOREVER, "a bound is passed only if there are keys"
        tracked.drop(slot)

    def _firsts(
        self, first: Callable[[_Tracked], tuple[int, int]]
    ) -> Iterator[tuple[int, tuple[str, ...], int, _Tracked]]:
        """For each path, give what `first` gives of its first key, with the order of the path in between."""
        for tracked in self._tracked.values():
            number, slot = first(tracked)
            yield number, tracked.order, slot, tracked


_in_order: Final = itemgetter(slice(3))
