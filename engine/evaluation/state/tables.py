"""The live keys of one path of keys: a slot for each, and who remembers something there."""

from array import array
from bisect import insort
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from engine.evaluation.state.columns import IN_PAGE, NO_SLOT, PAGE_BITS, PAGE_SLOTS, Column
from engine.evaluation.state.sizes import SLOT_BYTES, key_bytes
from engine.evaluation.temporal import FOREVER, NEVER
from engine.evaluation.values import KEY_CHARS_MAX, part_of_key, slice_key_of, split_name, value_of

if TYPE_CHECKING:
    from engine.evaluation.buckets import Bucket

Key = Any
"""The value of a path's keys: of one key its `key_of`, of several the tuple of them, each a `part_of_key`."""

SHARDS: Final = 251
"""A dict that grows in one piece pauses 21 ms at a million keys. Nothing else depends on the shards.

Python's hash of a number is the number, or nearly so. A shard is chosen by the hash of the tuple that holds
the key, which mixes it, and by a prime. So keys that are all multiples of something share no shard.
"""

NOT_SEEN: Final = FOREVER
"""When the key of a free slot was last seen: it is never the longest unseen."""


class Total(Protocol):
    """What is counted over all tables of a detector, and held to bounds."""

    live: int
    live_max: int
    bytes: int
    bytes_max: int
    due: bool
    """Whether a bound is passed."""
    tracking: bool
    """Whether the tables log the slots that events touch."""


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
        "columns",
        "dense",
        "first_ticks",
        "first_times",
        "held",
        "key",
        "keys",
        "live",
        "log",
        "names",
        "path",
        "previous_tick",
        "previous_us",
        "room",
        "roomy",
        "seen",
        "shards",
        "shrunk",
        "slot",
        "sparse",
        "stamped",
        "taken",
        "times",
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
        self.live = 0
        self.columns: list[Column] = []
        self.dense: list[Column] = []
        """Those with many entries."""
        self.sparse: dict[int, Column | dict[Column, None]] = {}
        """For each slot, those with few entries that have one there, or have kept something else there. Where
        it is one, it stands for itself."""
        self.log: list[int] = []
        """The slots that events have touched since the last settling, if the detector tracks them."""
        self.awake: dict[int, list[Column]] = {}
        """For each slot, the columns that have rules to wake there; of columns with many entries only
        `watched`."""
        self.watched: list[Column] = []
        """The columns with many entries that have rules to wake: each event looks into each of them."""
        self.shrunk = 0
        """Which shard was looked at last for room to give back."""
        self.stamped: list[Column] = []
        """The columns that are read from the slice's clock, the one that needs it longest first; with any,
        each key that comes is live."""
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
        slot = self.shards[hash((key,)) % SHARDS].get(key, NO_SLOT)
        if slot >= 0:
            self.slot = slot
            self.previous_tick = self.seen[slot]
            self.seen[slot] = tick
            if self._total.tracking:
                self.log.append(slot)
            if self.stamped:
                self.previous_us = self.times[slot]
                self.times[slot] = now_us
        elif self.stamped:
            self.previous_tick = self.previous_us = 0
            self.slot = self.admit(key, tick, now_us)

    def leave(self) -> None:
        """Leave the event, as one that has no key."""
        self.key = None
        self.slot = NO_SLOT

    def _key_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Key | None:
        """Give the key of this path at an event, None where it belongs to no slice."""
        parts = []
        for name in self.names:
            value = value_of(name, fields, sent)
            key = value if type(value) is str and len(value) <= KEY_CHARS_MAX else slice_key_of(value)
            if key is None:
                return None
            parts.append(key)
        return parts[0] if len(parts) == 1 else tuple(map(part_of_key, parts))

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
        shard = self.shards[hash((key,)) % SHARDS]
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
        if total.live > total.live_max:
            total.due = True
        if total.tracking:
            self.log.append(slot)
        self.weigh(SLOT_BYTES + key_bytes(key))
        return slot

    def weigh(self, more_bytes: int) -> None:
        """Take note of what the detector's keys and what is remembered for them have come to weigh."""
        total = self._total
        total.bytes += more_bytes
        if total.bytes > total.bytes_max:
            total.due = True

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

    def restore(self, keys: list[Key | None], held: "array[int]") -> None:
        """Give its slots to keys that had them before, each with how many columns hold something there."""
        assert not self.keys, "a table is restored before it is used"
        shards = self.shards
        for slot, key in enumerate(keys):
            if key is not None:
                shards[hash((key,)) % SHARDS][key] = slot
        self.live = sum(map(len, shards))
        self._total.live += self.live
        self._total.bytes += self.live * SLOT_BYTES + sum(key_bytes(key) for key in keys if key is not None)
        self.keys, self.held = keys, held
        self.taken = bytearray(key is not None for key in keys)
        pages = range(0, len(keys), PAGE_SLOTS)
        self.room = array("q", (self.taken.count(0, first, first + PAGE_SLOTS) for first in pages))
        self.roomy = bytearray(map(bool, self.room))
        self.seen = array("q", bytes(8 * len(keys)))

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
        held = self.held
        for slot in slots:
            held[slot] -= 1

    def hold_sparsely(self, slot: int, column: Column) -> None:
        """Take note that a column has something at a slot of which the slot's page does not tell."""
        holders = self.sparse.get(slot)
        if holders is None:
            self.sparse[slot] = column
        elif isinstance(holders, dict):
            holders[column] = None
        elif holders is not column:
            self.sparse[slot] = {holders: None, column: None}

    def drop_sparsely(self, slot: int, column: Column) -> None:
        """Undo `hold_sparsely`."""
        holders = self.sparse[slot]
        if holders is column:
            del self.sparse[slot]
        elif isinstance(holders, dict):
            del holders[column]
            if not holders:
                del self.sparse[slot]

    def sparse_at(self, slot: int) -> tuple[Column, ...]:
        """Give the columns that have something at a slot of which its page does not tell."""
        holders = self.sparse.get(slot)
        if holders is None:
            return ()
        return tuple(holders) if isinstance(holders, dict) else (holders,)

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
        insort(self.stamped, column, key=_longest_first)
        if column.begun:
            if not self.begun:
                self.first_ticks = array("q", bytes(8 * len(self.keys)))
                self.first_times = self.first_ticks[:]
            self.begun.append(column)
            self.begun_at = max(self.begun_at, column.whole_at)

    def remove_clock(self, column: Column) -> None:
        """Undo `add_clock`."""
        self.stamped.remove(column)
        if column.begun:
            self.begun.remove(column)
            if not self.begun:
                self.first_ticks, self.first_times = array("q"), array("q")
        if not self.stamped:
            self.times = array("q")

    def free(self, slot: int) -> None:
        """Give back the slot of a key for which nothing is held in any column."""
        for column in self.sparse_at(slot):
            column.drop_tick(slot)
        key = self.keys[slot]
        del self.shards[hash((key,)) % SHARDS][key]
        self.keys[slot] = None
        self.seen[slot] = NOT_SEEN
        page = slot >> PAGE_BITS
        self.taken[slot] = 0
        self.room[page] += 1
        self.roomy[page] = 1
        self.live -= 1
        total = self._total
        total.live -= 1
        total.bytes -= SLOT_BYTES + key_bytes(key)
        if total.tracking:
            self.log.append(slot)


def _longest_first(column: Column) -> int:
    return -FOREVER if column.expires_after_us is None else -column.expires_after_us
