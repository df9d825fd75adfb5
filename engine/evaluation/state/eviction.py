"""The bounds on a detector's keys: past them the expired ones are dropped, then the longest unseen.

There is one bound on the number of keys and one on their memory. The next key to drop is found exactly, and
in constant time. Far from the bounds that costs nothing. From `NEAR_SHARE` of a bound on, each table logs the
slots that events touch, and the time is known until which each key lives.

What is evicted depends on what is remembered alone, not on how long it has been tracked. So a detector that
is loaded goes on as the one that was saved. Nothing here knows of rules: `KeyTable` has the slots, and
`expiry` tells how long what they remember lasts.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from engine.evaluation.state.columns import PAGE_BITS
from engine.evaluation.state.expiry import forget, page_until_us, until_us
from engine.evaluation.state.minima import Minima
from engine.evaluation.state.tables import KeyTable
from engine.evaluation.temporal import FOREVER

NEAR_SHARE: Final = (7, 8)
FAR_SHARE: Final = (3, 4)
"""From so much of a bound on keys are tracked, and up to so much again they are not."""

PAGES_AT_ONCE: Final = 2
"""So many pages of each table are taken in with each settling, until all its keys are tracked: of a million
keys they are before the bound is reached."""


class Evicted(NamedTuple):
    """How many keys were evicted that had not expired."""

    by_number: int
    """For the bound on the number of keys."""
    by_bytes: int
    """For the bound on their memory."""


NOTHING_EVICTED: Final = Evicted(0, 0)


_TOO_MANY, _TOO_LARGE = 1, 2


class Bounded(Protocol):
    """What keys are counted and weighed in, over all tables."""

    live: int
    live_max: int
    bytes: int
    bytes_max: int
    tracking: bool
    tables: dict[tuple[str, ...], KeyTable]


class _Tracked:
    """The keys of one table by what decides which is dropped next."""

    __slots__ = ("_pages", "_seen", "_table", "_until", "_until_us")

    def __init__(self, table: KeyTable) -> None:
        self._table = table
        self._until_us = array("q")
        """By slot, until when its key lives. Of those not taken in yet nothing is known."""
        self._until = Minima(self._until_us)
        self._seen = Minima(table.seen)
        self._pages = 0
        """How many pages have been taken in."""

    def take_in(self, pages: int) -> None:
        """Take in some more of the keys."""
        table = self._table
        for number in range(self._pages, min(self._pages + pages, len(table.room))):
            first = number << PAGE_BITS
            self._reach(first)
            lasting = array("q", page_until_us(table, number))
            self._until_us[first : first + len(lasting)] = lasting
            self._until.look(first, first + len(lasting))
            self._seen.look(first, first + len(lasting))
            self._pages = number + 1

    def update(self, slots: Iterable[int]) -> None:
        """Take note that events have touched some slots."""
        table, lasting = self._table, self._until_us
        known = [slot for slot in slots if slot >> PAGE_BITS < self._pages]
        for slot in known:
            self._reach(slot + 1)
            lasting[slot] = until_us(table, slot) if slot < len(table.keys) else FOREVER
        # Only now, so that a part is not looked through for each of many keys that were dropped together.
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
        """Give until when the key lives that expires first, and its slot."""
        return self._until.least()

    def longest_unseen(self) -> tuple[int, int]:
        """Give the event at which the key was last seen that is longest unseen, and its slot."""
        return self._seen.least()


class Eviction:
    """Holds the keys of a detector to its bounds."""

    __slots__ = ("_bounded", "_tracked")

    def __init__(self, bounded: Bounded) -> None:
        self._bounded = bounded
        self._tracked: dict[tuple[str, ...], _Tracked] = {}

    def hold(self, now_us: int) -> Evicted:
        """Hold the bounds, and give how many keys that had not expired were evicted for them."""
        bounded = self._bounded
        if not bounded.tracking:
            if not self._reached(NEAR_SHARE):
                return NOTHING_EVICTED
            bounded.tracking = True
        self._track(None if self._passed() else PAGES_AT_ONCE)
        by_number = by_bytes = 0
        while excess := self._passed():
            if self._drop_expired(now_us):
                continue
            self._drop_longest_unseen()
            by_number += excess == _TOO_MANY
            by_bytes += excess == _TOO_LARGE
        if not self._reached(FAR_SHARE):
            self._end()
        return Evicted(by_number, by_bytes)

    def renew(self) -> None:
        """Track all keys anew where they are tracked: they have changed otherwise than by events."""
        if self._bounded.tracking:
            self._end()
            self.resume()

    def resume(self) -> None:
        """Track all keys at once if a bound is near, as it may be for keys that are loaded."""
        if self._reached(NEAR_SHARE):
            self._bounded.tracking = True
            self._track(None)

    def _end(self) -> None:
        self._bounded.tracking = False
        self._tracked.clear()
        for table in self._bounded.tables.values():
            table.log.clear()

    def _passed(self) -> int:
        """Tell which bound is passed, 0 if none is. Where there are no keys, there is nothing to drop."""
        bounded = self._bounded
        if bounded.live > bounded.live_max:
            return _TOO_MANY
        return _TOO_LARGE if bounded.bytes > bounded.bytes_max and bounded.live else 0

    def _reached(self, share: tuple[int, int]) -> bool:
        """Tell whether so much of a bound is reached."""
        part, whole = share
        bounded = self._bounded
        return (
            whole * bounded.live > part * bounded.live_max or whole * bounded.bytes > part * bounded.bytes_max
        )

    def _track(self, pages: int | None) -> None:
        """Take note of what events have touched, and take in so many pages more, all where that is None."""
        for path, table in self._bounded.tables.items():
            tracked = self._tracked.get(path)
            if tracked is None:
                tracked = self._tracked[path] = _Tracked(table)
            if table.log:
                tracked.update(dict.fromkeys(table.log))
                table.log.clear()
            tracked.take_in(len(table.room) if pages is None else pages)

    def _drop_expired(self, now_us: int) -> bool:
        """Drop the key that expired first, if any has."""
        until_us, path, slot = min(self._firsts(_Tracked.first_to_expire))
        if until_us >= now_us:
            return False
        self._tracked[path].drop(slot)
        return True

    def _drop_longest_unseen(self) -> None:
        """Drop the key that was last seen at the earliest event; of several that of the least path."""
        tick, path, slot = min(self._firsts(_Tracked.longest_unseen))
        assert tick < FOREVER, "there are keys, and each has been seen"
        self._tracked[path].drop(slot)

    def _firsts(
        self, first: Callable[[_Tracked], tuple[int, int]]
    ) -> Iterator[tuple[int, tuple[str, ...], int]]:
        """Give the first key of each path by some number: that, the path, and the slot."""
        for path, tracked in self._tracked.items():
            number, slot = first(tracked)
            yield number, path, slot
