"""The live keys of one path of keys: a slot for each, tidied up a little at a time."""

import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from engine.evaluation.columns import IN_PAGE, NO_SLOT, PAGE_BITS, PAGE_SLOTS, Column
from engine.evaluation.facts import KEY_CHARS_MAX, dig, slice_key_of, split_name
from engine.evaluation.temporal import NEVER

if TYPE_CHECKING:
    from engine.evaluation.buckets import Bucket

Key = Any
"""The value of a path's keys: of one key its `key_of`, of several the tuple of them."""

SHARDS: Final = 256
"""A dict that grows in one piece pauses 21 ms at a million keys. Nothing else depends on the shards."""

BLOCK_SLOTS: Final = 1 << 11
"""How many slots are looked over in one go for those that are longest unseen: some 1 ms."""

_SWEPT_AT_LEAST: Final = 1024
"""How many entries each tidying looks at, at the least: some 50 µs, 1 ms if all of them have expired."""
SHRUNK_FROM: Final = 1 << 15
"""So much room for keys is kept in any case."""

_PAGES_SHRUNK: Final = 16
_SHARDS_SHRUNK: Final = 32
_SHARD_BYTES_MIN: Final = 4096
_ENTRY_BYTES_MAX: Final = 150
"""How many shards each tidying looks at, and what an entry takes at the most before its shard is made anew:
deleting from a dict gives no room back."""

_TIDY_AFTER: Final = 256
"""So many new entries in one table bring the next tidying forward."""


class Total(Protocol):
    """What is counted over all tables of a detector."""

    live: int
    keys_max: int
    swept_from: int
    due: bool


class KeyTable:
    """The live keys of one path: a slot for each, and the columns that remember something by slot.

    `turn_to` turns it to an event; then `key`, `slot` and what is told of the slice's previous event are that
    event's.
    """

    __slots__ = (
        "_total",
        "awake",
        "begun",
        "begun_at",
        "clocks",
        "columns",
        "first_ticks",
        "first_times",
        "held",
        "idle",
        "key",
        "keys",
        "live",
        "names",
        "opened",
        "path",
        "previous_tick",
        "previous_us",
        "room",
        "roomy",
        "scanned",
        "seen",
        "shards",
        "shrunk",
        "slot",
        "stamped",
        "taken",
        "ticked",
        "times",
        "turn",
        "watched",
    )

    def __init__(self, path: tuple[str, ...], total: Total) -> None:
        self.path = path
        self.names = [split_name(name) for name in path]
        self._total = total
        self.shards: list[dict[Key, int]] = [{} for _ in range(SHARDS)]
        self.keys: list[Key | None] = []
        self.seen = array("q")
        """For each slot, the event at which its key was last seen."""
        self.held = array("q")
        """For each slot, how many columns hold something."""
        self.taken = bytearray()
        """For each slot, whether it has a key. A list of those without would keep memory from being given
        back, over which its numbers lie scattered."""
        self.room = array("q")
        """For each page of slots, how many of them have no key."""
        self.roomy = bytearray()
        """For each page, whether there are any."""
        self.idle: list[int] = []
        """Slots that may have come to hold nothing, until the next tidying."""
        self.live = 0
        self.columns: list[Column] = []
        self.awake: dict[int, list[Column]] = {}
        """For each slot, the columns that have rules to wake there; of columns with many entries only
        `watched`."""
        self.watched: list[Column] = []
        """The columns with many entries that have rules to wake: each event looks into each of them."""
        self.opened = self.turn = self.scanned = self.ticked = self.shrunk = 0
        """Where tidying and evicting stand."""
        self.stamped: list[Column] = []
        """The columns that are read from the slice's clock; with any, each key that comes is live."""
        self.clocks: Counter[int | None] = Counter()
        """For how long their clocks must be kept, None for ever."""
        self.times = array("q")
        """For each slot, the time at which its key was last seen, as far as there are stamped columns."""
        self.begun: list[Column] = []
        """Those of the stamped columns whose regime is BEGUN."""
        self.begun_at = 0
        """The event after which the youngest of them was born."""
        self.first_ticks, self.first_times = array("q"), array("q")
        """For each slot, the first event of its slice and its time, as far as there are such columns; 0 where
        the slice is older than they."""
        self.key: Key | None = None
        self.slot = NO_SLOT
        self.previous_tick = self.previous_us = 0

    # -- events ---------------------------------------------------------------------------------------------

    def turn_to(self, fields: Mapping[str, Any], sent: Mapping[str, Any], now_us: int, tick: int) -> None:
        """Find the slot of an event and have its key seen."""
        key = self.key = self._key_at(fields, sent)
        self.slot = NO_SLOT
        if key is None:
            return
        slot = self.shards[hash(key) % SHARDS].get(key, NO_SLOT)
        if slot >= 0:
            self.slot = slot
            self.previous_tick = self.seen[slot]
            self.seen[slot] = tick
            if self.stamped:
                self.previous_us = self.times[slot]
                self.times[slot] = now_us
        elif self.stamped:
            self.previous_tick = self.previous_us = 0
            self.slot = self.admit(key, tick, now_us)

    def _key_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Key | None:
        """Give the key of this path at an event, None where it belongs to no slice."""
        parts = []
        for of_vars, whole, steps in self.names:
            values = sent if of_vars else fields
            value = dig(values, whole, steps) if steps else values.get(whole)
            key = value if type(value) is str and len(value) <= KEY_CHARS_MAX else slice_key_of(value)
            if key is None:
                return None
            parts.append(key)
        return parts[0] if len(parts) == 1 else tuple(parts)

    def woken(self) -> "list[Bucket]":
        """Give the rules that must see this event for what is held in its slice."""
        slot = self.slot
        if slot < 0:
            return []
        columns = self.awake.get(slot, []) + [column for column in self.watched if column.at(slot) != NEVER]
        if self.begun and self.previous_tick <= self.begun_at:
            # These nodes are younger than the slice, and this is the first event of it that they see.
            oldest = max(self.previous_tick, self.first_ticks[slot])
            columns += [column for column in self.begun if column.whole_at >= oldest]
        return [column.bucket for column in columns if column.bucket is not None]

    def admit(self, key: Key, tick: int, now_us: int) -> int:
        """Give the slot of a key, a new one where it is not live."""
        shard = self.shards[hash(key) % SHARDS]
        slot = shard.get(key)
        if slot is not None:
            return slot
        slot = self._free_slot()
        if slot is None:
            slot = self._new_slot(key, tick)
        else:
            self.keys[slot] = key
            self.seen[slot] = tick
        shard[key] = slot
        if self.stamped:
            self.times[slot] = now_us
        if self.begun:
            self.first_ticks[slot], self.first_times[slot] = tick, now_us
        self.live += 1
        total = self._total
        total.live += 1
        if total.live > total.keys_max:
            total.due = True
        return slot

    def _free_slot(self) -> int | None:
        """Give a free slot of the lowest page, so that upper pages come to be free and can be given back."""
        page = self.roomy.find(1)
        if page < 0:
            return None
        self.room[page] -= 1
        if not self.room[page]:
            self.roomy[page] = 0
        slot = self.taken.index(0, page << PAGE_BITS)
        self.taken[slot] = 1
        return slot

    def restore(self, keys: list[Key | None]) -> None:
        """Give its slots to keys that had them before."""
        assert not self.keys, "a table is restored before it is used"
        for slot, key in enumerate(keys):
            if key is not None:
                self.shards[hash(key) % SHARDS][key] = slot
                self.live += 1
        self._total.live += self.live
        self.keys = keys
        self.taken = bytearray(key is not None for key in keys)
        pages = range(0, len(keys), PAGE_SLOTS)
        self.room = array("q", (self.taken.count(0, first, first + PAGE_SLOTS) for first in pages))
        self.roomy = bytearray(map(bool, self.room))
        self.seen = array("q", bytes(8 * len(keys)))
        self.held = self.seen[:]

    def _new_slot(self, key: Key, tick: int) -> int:
        slot = len(self.keys)
        self.keys.append(key)
        self.taken.append(1)
        self.seen.append(tick)
        self.held.append(0)
        if self.stamped:
            self.times.append(0)
        if self.begun:
            self.first_ticks.append(0)
            self.first_times.append(0)
        if not slot & IN_PAGE:
            self.room.append(0)
            self.roomy.append(0)
            for column in self.columns:
                column.grow((slot >> PAGE_BITS) + 1)
        return slot

    # -- what columns tell ----------------------------------------------------------------------------------

    def let_go(self, slots: Iterable[int]) -> None:
        """Take note that a column has come to hold nothing for some slots."""
        held, idle = self.held, self.idle
        for slot in slots:
            held[slot] -= 1
            if not held[slot]:
                idle.append(slot)

    def note_opened(self) -> None:
        """Take note of a new entry: what is added is what pays for sweeping."""
        if self._total.live > self._total.swept_from:
            self.opened += 1
            if self.opened > _TIDY_AFTER:
                self._total.due = True

    def wake(self, slot: int, column: Column) -> None:
        """Have a column's rules see the next events of a slice."""
        self.awake.setdefault(slot, []).append(column)

    def rest(self, slot: int, column: Column) -> None:
        """Undo `wake`."""
        columns = self.awake[slot]
        columns.remove(column)
        if not columns:
            del self.awake[slot]

    def add_clock(self, column: Column) -> None:
        """Keep the clock of every slice: a column is read from it. Its entries say all up to now."""
        if not self.stamped:
            self.times = array("q", bytes(8 * len(self.keys)))
        self.stamped.append(column)
        self.clocks[column.expires_after_us] += 1
        if column.begun:
            if not self.begun:
                self.first_ticks = array("q", bytes(8 * len(self.keys)))
                self.first_times = self.first_ticks[:]
            self.begun.append(column)
            self.begun_at = max(self.begun_at, column.whole_at)

    def remove_clock(self, column: Column) -> None:
        """Undo `add_clock`."""
        self.stamped.remove(column)
        self.clocks[column.expires_after_us] -= 1
        self.clocks = +self.clocks
        if column.begun:
            self.begun.remove(column)
            if not self.begun:
                self.first_ticks, self.first_times = array("q"), array("q")
        if not self.stamped:
            self.times = array("q")
            self.idle += [slot for slot, held in enumerate(self.held) if not held]

    # -- tidying --------------------------------------------------------------------------------------------

    def unseen_since(self, slot: int, tick: int) -> bool:
        """Tell whether a slot has a key still, and that was last seen at an event."""
        return slot < len(self.keys) and self.keys[slot] is not None and self.seen[slot] == tick

    def forget(self, slot: int) -> None:
        """Drop all that is remembered for a slot; its slice begins anew."""
        for column in self.columns:
            if not self.held[slot]:
                break
            if column.at(slot) != NEVER:
                column.close(slot)
        self._free(slot)

    def tidy(self, now_us: int) -> bool:
        """Drop some of what has expired, more than was added since, and the keys that hold nothing.

        Tells whether there was so much of it that there will be more.
        """
        live = self.live
        credit = 2 * self.opened + _SWEPT_AT_LEAST
        self.opened = 0
        idle_rounds = len(self.columns)
        while credit > 0 and idle_rounds:
            self.turn = self.turn + 1 if self.turn + 1 < len(self.columns) else 0
            cost = self.columns[self.turn].sweep(now_us)
            idle_rounds = idle_rounds - 1 if cost == 1 else len(self.columns)
            credit -= cost
        if self.stamped:
            self._tidy_clocks()
        self.free_idle(now_us)
        shrunk = self._shrink()
        return shrunk or live - self.live > _SWEPT_AT_LEAST // 2

    @property
    def bloated(self) -> bool:
        """Whether there is much more room than keys."""
        return len(self.keys) > SHRUNK_FROM and len(self.keys) > 2 * self.live

    def _shrink(self) -> bool:
        """Give back some of the room that is not needed any more, and tell whether there was that much."""
        for _ in range(_SHARDS_SHRUNK):
            self.shrunk = (self.shrunk + 1) % SHARDS
            shard = self.shards[self.shrunk]
            if sys.getsizeof(shard) > _SHARD_BYTES_MIN + _ENTRY_BYTES_MAX * len(shard):
                # The dict itself stays: a new one would lie in memory that is about to be given back.
                entries = list(shard.items())
                shard.clear()
                shard.update(entries)
        for _ in range(_PAGES_SHRUNK):
            page = (len(self.keys) - 1) >> PAGE_BITS
            first = page << PAGE_BITS
            if page < 0 or self.room[page] < len(self.keys) - first:
                return False
            del self.room[page], self.roomy[page], self.taken[first:]
            del self.keys[first:], self.seen[first:], self.held[first:]
            del self.times[first:], self.first_ticks[first:], self.first_times[first:]
        return True

    def _tidy_clocks(self) -> None:
        """Look over the next slots for those that only a clock has kept."""
        if self.ticked >= len(self.keys):
            self.ticked = 0
        until = min(self.ticked + _SWEPT_AT_LEAST, len(self.keys))
        held = self.held
        self.idle += [slot for slot in range(self.ticked, until) if not held[slot]]
        self.ticked = until

    def free_idle(self, now_us: int) -> None:
        """Give back the slots that hold nothing any more."""
        edge_us = NEVER
        if self.stamped and None not in self.clocks:
            edge_us = now_us - max(window_us for window_us in self.clocks if window_us is not None)
        for slot in self.idle:
            if self.keys[slot] is None or self.held[slot]:
                continue
            if not self.stamped or self.times[slot] < edge_us:
                self._free(slot)
        self.idle.clear()
        if not self.live and 0 < len(self.keys) <= BLOCK_SLOTS:
            self._empty()

    def _free(self, slot: int) -> None:
        key = self.keys[slot]
        del self.shards[hash(key) % SHARDS][key]
        for column in self.stamped:
            if column.ticks.pop(slot, None) is not None and column.begun and column.bucket is not None:
                self.rest(slot, column)
        self.keys[slot] = None
        page = slot >> PAGE_BITS
        self.taken[slot] = 0
        self.room[page] += 1
        self.roomy[page] = 1
        self.live -= 1
        self._total.live -= 1

    def _empty(self) -> None:
        """Give back the room of slots that nothing uses."""
        for shard in self.shards:
            shard.clear()
        self.keys.clear()
        del self.seen[:], self.held[:], self.times[:], self.first_ticks[:], self.first_times[:]
        self.taken.clear()
        del self.room[:]
        self.roomy.clear()
        self.idle.clear()
        self.scanned = self.ticked = 0

    def next_block(self, now_us: int) -> list[int]:
        """Give the slots of the next block that can still make a difference, and drop the others."""
        if self.scanned >= len(self.keys):
            self.scanned = 0
        first = self.scanned
        self.scanned += BLOCK_SLOTS
        slots = [
            slot for slot in range(first, min(self.scanned, len(self.keys))) if self.keys[slot] is not None
        ]
        for column in self.columns:
            column.expire(first, self.scanned, now_us)
        live = []
        for slot in slots:
            if self.held[slot] or self._ticks_on(slot, now_us):
                live.append(slot)
            else:
                self._free(slot)
        return live

    def _ticks_on(self, slot: int, now_us: int) -> bool:
        """Tell whether the clock of a slice still makes a difference to any node."""
        for column in self.stamped:
            if column.begun:
                past_us = column.began(slot)
            else:
                kept = column.ticks.get(slot, column.whole_at) >= self.seen[slot]
                past_us = column.at(slot) if kept else self.times[slot]
            if past_us != NEVER and (
                column.expires_after_us is None or past_us >= now_us - column.expires_after_us
            ):
                return True
        return False
