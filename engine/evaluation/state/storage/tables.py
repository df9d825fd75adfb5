"""The live keys of one path: a slot for each, and the columns with entries there."""

from array import array
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from engine.evaluation.facts.values import KEY_CHARS_MAX, part_of_key, slice_key_of, split_name, value_of
from engine.evaluation.key_sizes import key_bytes
from engine.evaluation.memory import FOREVER, Bucket
from engine.evaluation.paths import Path, fact_of, is_filtered, order_of
from engine.evaluation.state.storage.pages import IN_PAGE, NO_SLOT, PAGE_BITS
from engine.evaluation.state.storage.sizes import SLOT_BYTES
from engine.evaluation.state.storage.slots.free_slots import FreeSlots
from engine.evaluation.state.storage.slots.shards import SHARDS, shrink
from engine.evaluation.state.storage.slots.sparse_entries import SparseEntries
from engine.evaluation.state.storage.slots.starts import Starts
from engine.evaluation.state.storage.slots.triggering import TriggeringColumns, WatchedColumns

Key = Any
"""The value of a path's keys: `key_of` for a single key, a tuple of `part_of_key` for several."""

_SHRUNK_EVERY: Final = 16
"""A shard is inspected whenever its length has fallen to a multiple of this."""

NOT_SEEN: Final = FOREVER
"""The last event of a free slot, which is therefore never the longest unseen."""


class Total(Protocol):
    """The totals over all tables of a detector, and their bounds."""

    live: int
    live_max: int
    bytes: int
    bytes_max: int
    due: bool
    """Whether a bound is passed."""
    tracking: bool
    """Whether the tables log the slots that events touch."""

    def weigh(self, more_bytes: int) -> None:
        """Add to the estimated size of the detector's keys and memories."""


class Member(Protocol):
    """What a table asks of its columns."""

    bucket: Bucket | None
    complete_at: int
    expires_after_us: int | None
    ticks: dict[int, int]

    @property
    def begun(self) -> bool:
        """Whether the regime is BEGUN."""

    def at(self, slot: int) -> int:
        """Return the entry of a slot, or NEVER."""

    def grow(self, pages: int) -> None:
        """Extend the column to this many pages."""

    def drop_tick(self, slot: int) -> None:
        """Drop a slot from `ticks`, if it is there."""


ColumnT = TypeVar("ColumnT", bound=Member)


class KeyTable(Generic[ColumnT]):
    """The live keys of one path: a slot for each, and the columns with entries by slot.

    `enter` sets `key`, `slot`, `previous_tick` and `previous_us` for an event: its key, the slot, and the
    number and time of the previous event of the same key.
    """

    __slots__ = (
        "_total",
        "begun",
        "begun_at",
        "columns",
        "dense",
        "filtered",
        "first_ticks",
        "first_times",
        "free_slots",
        "held",
        "key",
        "keys",
        "live",
        "log",
        "names",
        "order",
        "path",
        "previous_tick",
        "previous_us",
        "seen",
        "shards",
        "slice_test",
        "slot",
        "sparse",
        "stamped",
        "starts",
        "times",
        "triggering",
        "watched",
        "weigh",
    )

    def __init__(self, path: Path, total: Total) -> None:
        self.path = path
        self.order = order_of(path)
        """The sort key of tables."""
        self.filtered = is_filtered(path)
        """Whether a `where` decides which events have a key."""
        self.slice_test: Any = None
        """What tells whether an event has a key, if the table is filtered. The state only keeps it."""
        self.names = [split_name(fact_of(step)) for step in path]
        self._total = total
        self.weigh = total.weigh
        self.shards: list[dict[Key, int]] = [{} for _ in range(SHARDS)]
        self.keys: list[Key | None] = []
        self.seen = array("q")
        """For each slot, the last event of its key."""
        self.held = array("q")
        """For each slot, the number of columns with an entry."""
        self.free_slots = FreeSlots()
        self.live = 0
        self.columns: list[ColumnT] = []
        self.dense: list[ColumnT] = []
        """The paged columns."""
        self.sparse: SparseEntries[ColumnT] = SparseEntries()
        self.log: list[int] = []
        """The slots touched by events since the last `hold`, if keys are tracked; see `eviction.py`."""
        self.triggering: defaultdict[int, TriggeringColumns] = defaultdict(TriggeringColumns)
        """For each slot, the columns whose bucket its next event meets, except for those in `watched`."""
        self.watched = WatchedColumns()
        """The paged columns with a bucket for some slots."""
        self.stamped: list[ColumnT] = []
        """The columns that are read with the slice's clock, the longest window first. If there are any, each
        key that an event has is admitted."""
        self.times = array("q")
        """For each slot, the time of its key's last event, if there are stamped columns."""
        self.begun: list[ColumnT] = []
        """The stamped columns whose regime is BEGUN."""
        self.begun_at = 0
        """The event after which the youngest of them was born."""
        self.first_ticks, self.first_times = array("q"), array("q")
        """For each slot, the first event of its slice and its time, if there are such columns. Both are 0 if
        the slice is older than the columns."""
        self.starts = Starts(self.weigh)
        """The first events of slices after births, for memories of runs that rules of several births read."""
        self.key: Key | None = None
        self.slot = NO_SLOT
        self.previous_tick = self.previous_us = 0

    # -- events ---------------------------------------------------------------------------------------------

    def enter(self, fields: Mapping[str, Any], sent: Mapping[str, Any], now_us: int, tick: int) -> None:
        """Enter an event: set its key and slot, and record it as the key's last event."""
        key = self.key = self._key_at(fields, sent)
        self.slot = NO_SLOT
        if key is None:
            return
        slot = self.shards[hash((key,)) % SHARDS].get(key, NO_SLOT)
        if slot >= 0:
            self.slot = slot
            self.previous_tick = self.seen[slot]
            self.seen[slot] = tick
            if self.previous_tick <= self.starts.birth:
                self.starts.add(slot, now_us)
            if self._total.tracking:
                self.log.append(slot)
            if self.stamped:
                self.previous_us = self.times[slot]
                self.times[slot] = now_us
        elif self.stamped:
            self.previous_tick = self.previous_us = 0
            self.slot = self.admit(key, tick, now_us)

    def slot_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> int:
        """Return the slot of an event's key, or NO_SLOT if the key is not live. Changes nothing."""
        key = self._key_at(fields, sent)
        return self.shards[hash((key,)) % SHARDS].get(key, NO_SLOT)

    def leave(self) -> None:
        """Leave the event: set no key."""
        self.key = None
        self.slot = NO_SLOT

    def _key_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Key | None:
        """Return the event's key of this path, or None if it belongs to no slice."""
        parts: tuple[Key, ...] = ()
        for name in self.names:
            value = value_of(name, fields, sent)
            key = value if type(value) is str and len(value) <= KEY_CHARS_MAX else slice_key_of(value)
            if key is None or len(self.names) == 1:
                return key
            parts += (part_of_key(key),)
        return parts

    def meet(self) -> list[Bucket]:
        """Have this event meet the buckets that the entries of its slice trigger, and return them."""
        slot = self.slot
        if slot < 0:
            return []
        met = self.watched.meet_at(slot) if self.watched else []
        if slot in self.triggering:
            met += self.triggering[slot].meet()
        if self.begun and self.previous_tick <= self.begun_at:
            # Some of these nodes may be younger than the slice, and see its first event now.
            oldest = max(self.previous_tick, self.first_ticks[slot])
            # Columns with a tick for the slot trigger already.
            young = [column for column in self.begun if column.complete_at >= oldest]
            met += [each.bucket for each in young if each.bucket is not None and slot not in each.ticks]
        return met

    def would_meet(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[Bucket]:
        """Return all buckets that an event may meet here, and perhaps some others. Changes nothing."""
        slot = self.slot_at(fields, sent)
        columns = [*self.begun, *self.triggering[slot]] if slot in self.triggering else self.begun[:]
        if slot >= 0:
            columns += [column for column in self.watched if column.triggers_at(slot)]
        return [column.bucket for column in columns if column.bucket is not None]

    def admit(self, key: Key, tick: int, now_us: int) -> int:
        """Return the slot of a key, a new one if the key is not live."""
        shard = self.shards[hash((key,)) % SHARDS]
        slot = shard.get(key)
        if slot is not None:
            return slot
        slot = self.free_slots.take()
        if slot == len(self.keys):
            self._add_slot(slot, key, tick)
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

    def restore(self, keys: list[Key | None], held: "array[int]") -> None:
        """Restore the keys by slot, and for each slot the number of columns with an entry."""
        assert not self.keys, "a table is restored before it is used"
        shards = self.shards
        for slot, key in enumerate(keys):
            if key is not None:
                shards[hash((key,)) % SHARDS][key] = slot
        self.live = sum(map(len, shards))
        self._total.live += self.live
        self._total.bytes += self.live * SLOT_BYTES + sum(key_bytes(key) for key in keys if key is not None)
        self.keys, self.held = keys, held
        self.free_slots.restore(bytearray(key is not None for key in keys))
        self.seen = array("q", bytes(8 * len(keys)))

    def _add_slot(self, slot: int, key: Key, tick: int) -> None:
        self.keys.append(key)
        self.seen.append(tick)
        self.held.append(0)
        if self.stamped:
            self.times.append(0)
        if self.begun:
            self.first_ticks.append(0)
            self.first_times.append(0)
        if not slot & IN_PAGE:
            for column in self.columns:
                column.grow((slot >> PAGE_BITS) + 1)

    # -- called by columns ----------------------------------------------------------------------------------

    def let_go(self, slots: Iterable[int]) -> None:
        """Record that a column has dropped its entries of some slots."""
        held = self.held
        for slot in slots:
            held[slot] -= 1

    def start_triggering(self, slot: int, column: ColumnT) -> None:
        """Have the next events of a slice meet a column's bucket."""
        self.triggering[slot].append(column)

    def stop_triggering(self, slot: int, column: ColumnT) -> None:
        """Undo `start_triggering`."""
        columns = self.triggering[slot]
        columns.remove(column)
        if not columns:
            del self.triggering[slot]

    def add_clock(self, column: ColumnT) -> None:
        """Record the time of each slice's last event for a column. Its entries must be complete up to now."""
        if not self.stamped:
            self.times = array("q", bytes(8 * len(self.keys)))
        insort(self.stamped, column, key=_longest_first)
        if column.begun:
            if not self.begun:
                self.first_ticks = array("q", bytes(8 * len(self.keys)))
                self.first_times = self.first_ticks[:]
            self.begun.append(column)
            self.note_birth(column)

    def note_birth(self, column: ColumnT) -> None:
        """Note the event up to which a column is complete."""
        if column.begun:
            self.begun_at = max(self.begun_at, column.complete_at)

    def remove_clock(self, column: ColumnT) -> None:
        """Undo `add_clock`."""
        self.stamped.remove(column)
        if column.begun:
            self.begun.remove(column)
            if not self.begun:
                self.first_ticks, self.first_times = array("q"), array("q")
        if not self.stamped:
            self.times = array("q")

    def free(self, slot: int) -> None:
        """Free the slot of a key. No column may hold a time for it."""
        for column in self.sparse.at(slot):
            column.drop_tick(slot)
        self.starts.drop(slot)
        key = self.keys[slot]
        shard = self.shards[hash((key,)) % SHARDS]
        del shard[key]
        if not len(shard) % _SHRUNK_EVERY:
            shrink(shard)
        self.keys[slot] = None
        self.seen[slot] = NOT_SEEN
        self.free_slots.free(slot)
        self.live -= 1
        total = self._total
        total.live -= 1
        total.bytes -= SLOT_BYTES + key_bytes(key)
        if total.tracking:
            self.log.append(slot)


def _longest_first(column: Member) -> int:
    return -FOREVER if column.expires_after_us is None else -column.expires_after_us
