"""The memory of a temporal node that is a record of varying length for each slot of a key table.

What a comparison with n needs is bounded: whether something happened n times within a window is known from
its n latest times, and likewise for the values of a fact.
"""

from abc import abstractmethod
from array import array
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

from engine.evaluation.facts.values import slice_key_of
from engine.evaluation.memory import FOREVER, NEVER, Bucket, Regime
from engine.evaluation.state.sizes import (
    ENTRY_BYTES,
    RECORD_BYTES,
    RECORD_STEP,
    STEP_BYTES,
    VALUE_BYTES,
    key_bytes,
)

SLACK: Final = 8
"""A record of times is cut to the most that are needed when it has this many more, or half as many more."""

_DICT_MAX: Final = 64
"""Longer dicts are ordered ones: from a plain dict, the first entry is removed in linear time."""


class Slots(Protocol):
    """The slots of records: a KeyTable or, without keys, a single slot."""

    held: Any
    slot: int

    def admit(self, key: Any, tick: int, now_us: int) -> int:
        """Return the slot of a key, a new one if the key is not live."""

    def weigh(self, more_bytes: int) -> None:
        """Add to the estimated size of the detector's keys and memories."""

    def hold_sparsely(self, slot: int, column: Any) -> None:
        """Record that there is an entry at a slot."""

    def drop_sparsely(self, slot: int, column: Any) -> None:
        """Undo `hold_sparsely`."""

    def let_go(self, slots: Iterable[int]) -> None:
        """Record that entries were dropped."""

    def wake(self, slot: int, column: Any) -> None:
        """Have the next events of a slice meet the bucket."""

    def rest(self, slot: int, column: Any) -> None:
        """Undo `wake`."""


R = TypeVar("R")


class Records(Generic[R]):
    """A record for each slot at which something counted.

    Generated functions read it, and call `add` at most once for each event.
    """

    __slots__ = ("bucket", "few", "held", "table", "window_us")

    clocked: Final = False
    begun: Final = False
    regime: Final = Regime.UNCHANGED

    def __init__(self, table: Slots, window_us: int | None) -> None:
        self.table = table
        self.window_us = window_us
        self.few: dict[int, R] = {}
        """The records by slot."""
        self.held = 0
        self.bucket: Bucket | None = None
        """The members that see every event of a slice with a record."""

    # -- what each kind knows -------------------------------------------------------------------------------

    @abstractmethod
    def last_us(self, record: R) -> int:
        """Return the latest time in a record, or the last one at which it is read as that time is."""

    @abstractmethod
    def bytes_of(self, record: R) -> int:
        """Return the estimated size of a record."""

    # -- called by the table and the state ------------------------------------------------------------------

    def until_us(self, slot: int) -> int:
        """Return the last time at which the record of a slot has not expired; NEVER without one."""
        record = self.few.get(slot)
        if record is None:
            return NEVER
        return FOREVER if self.window_us is None else min(self.last_us(record) + self.window_us, FOREVER)

    def at(self, slot: int) -> int:
        """Return something other than NEVER if there is a record at a slot."""
        return 0 if slot in self.few else NEVER

    def slots(self) -> list[int]:
        """Return the slots with a record, in the order of snapshots."""
        return list(self.few)

    def close(self, slot: int) -> None:
        """Drop the record of a slot."""
        record = self.few.pop(slot)
        table = self.table
        table.weigh(-ENTRY_BYTES - self.bytes_of(record))
        table.drop_sparsely(slot, self)
        if self.bucket is not None:
            table.rest(slot, self)
        self.held -= 1
        table.let_go((slot,))

    def drop_expired(self, slot: int, now_us: int) -> None:
        """Drop the record of a slot if it has expired."""
        if slot in self.few and self.until_us(slot) < now_us:
            self.close(slot)

    def drop_until(self, time_us: int, tick: int) -> None:  # noqa: ARG002 -- as for columns
        """Drop the records that end with a time or before it."""
        for slot in self.slots():
            if self.last_us(self.few[slot]) <= time_us:
                self.close(slot)

    def drop_all(self) -> None:
        """Drop all records, when their node is dropped."""
        for slot in self.slots():
            self.close(slot)

    def drop_tick(self, slot: int) -> None:
        """Do nothing: records have no clock."""

    def grow(self, pages: int) -> None:
        """Do nothing: records have no pages."""

    def watch(self, bucket: Bucket) -> None:
        """Have events of slices with a record meet a bucket."""
        self.bucket = bucket
        for slot in self.few:
            self.table.wake(slot, self)

    def unwatch(self) -> None:
        """Undo `watch`."""
        for slot in self.few:
            self.table.rest(slot, self)
        self.bucket = None

    def restore(self, records: dict[int, R]) -> None:
        """Restore the records. The table must already have the numbers of its memories with an entry."""
        bucket, table = self.bucket, self.table
        if bucket is not None:
            self.unwatch()
        self.few, self.held = records, len(records)
        for slot, record in records.items():
            table.weigh(ENTRY_BYTES + self.bytes_of(record))
            table.hold_sparsely(slot, self)
        if bucket is not None:
            self.watch(bucket)

    def take_over(self, other: "Records[Any]", since_us: int, now_us: int) -> None:
        """Take from other records what is later than a time and has not expired."""
        for slot, record in other.few.items():
            later = self.later(record, since_us)
            if later is not None and other.until_us(slot) >= now_us:
                self._open(None, slot, 0, 0, later)

    @abstractmethod
    def later(self, record: R, since_us: int) -> R | None:
        """Return a copy of what a record holds that is later than a time, or None."""

    def _open(self, key: Any, slot: int, now_us: int, tick: int, record: R) -> int:
        """Add a record for a key, which is admitted if it is not live, and give its slot."""
        table = self.table
        if slot < 0:
            slot = table.slot = table.admit(key, tick, now_us)
        self.few[slot] = record
        table.weigh(ENTRY_BYTES + self.bytes_of(record))
        table.hold_sparsely(slot, self)
        if self.bucket is not None:
            table.wake(slot, self)
        self.held += 1
        table.held[slot] += 1
        return slot


def steps_bytes(length: int) -> int:
    """Return the size of this many numbers, which grows in steps."""
    return STEP_BYTES * (length // RECORD_STEP + 1)


class Times(Records["array[int]"]):
    """The latest times at which a condition was true, as many as are needed or some more."""

    __slots__ = ("_full", "most")

    def __init__(self, table: Slots, window_us: int | None, most: int) -> None:
        super().__init__(table, window_us)
        self.most = most
        self._full = most + max(SLACK, most // 2)

    def add(self, key: Any, slot: int, now_us: int, tick: int) -> int:
        """Add the time of an event, which is added once, and give the slot."""
        times = self.few.get(slot)
        if times is None:
            return self._open(key, slot, now_us, tick, array("q", (now_us,)))
        times.append(now_us)
        length = len(times)
        if not length % RECORD_STEP:
            self.table.weigh(STEP_BYTES)
        if length == self._full:
            self.table.weigh(steps_bytes(self.most) - steps_bytes(length))
            del times[: -self.most]
        return slot

    def nth(self, slot: int, number: int) -> int:
        """Return the so-manieth of the latest times, from 1, or NEVER if there are fewer."""
        times = self.few.get(slot)
        return NEVER if times is None or len(times) < number else times[-number]

    def last_us(self, record: "array[int]") -> int:
        """Return the latest time."""
        return record[-1]

    def later(self, record: "array[int]", since_us: int) -> "array[int] | None":
        """Return a copy of what a record holds that is later than a time, or None."""
        return array("q", [time_us for time_us in record if time_us > since_us]) or None

    def bytes_of(self, record: "array[int]") -> int:
        """Return the estimated size of a record."""
        return RECORD_BYTES + steps_bytes(len(record))


class Values(Records[dict[Any, int]]):
    """The most recently seen values of a fact, as many as are needed, each with its latest time, in order."""

    __slots__ = ("most",)

    def __init__(self, table: Slots, window_us: int | None, most: int) -> None:
        super().__init__(table, window_us)
        self.most = most

    def add(self, key: Any, slot: int, now_us: int, tick: int, value: Any) -> int:
        """Add the value of a fact, if it is a scalar, and give the slot."""
        value = slice_key_of(value)
        if value is None:
            return slot
        values = self.few.get(slot)
        if values is None:
            return self._open(key, slot, now_us, tick, self.record([(value, now_us)]))
        if value in values:
            del values[value]
        else:
            more = VALUE_BYTES + key_bytes(value)
            if len(values) == self.most:
                oldest = next(iter(values))
                del values[oldest]
                more -= VALUE_BYTES + key_bytes(oldest)
            self.table.weigh(more)
        values[value] = now_us
        return slot

    def nth(self, slot: int, number: int) -> int:
        """Return the latest time of the so-manieth of the most recent values, from 1, or NEVER.

        The number is that of the first value in a record or of the second.
        """
        values = self.few.get(slot)
        if values is None or len(values) < number:
            return NEVER
        times = iter(values.values())
        if len(values) > number:
            next(times)
        return next(times)

    def record(self, values: Iterable[tuple[Any, int]]) -> dict[Any, int]:
        """Return a record of values in order."""
        return dict(values) if self.most <= _DICT_MAX else OrderedDict(values)

    def last_us(self, record: dict[Any, int]) -> int:
        """Return the latest time."""
        return next(reversed(record.values()))

    def later(self, record: dict[Any, int], since_us: int) -> dict[Any, int] | None:
        """Return a copy of what a record holds that is later than a time, or None."""
        return self.record([entry for entry in record.items() if entry[1] > since_us]) or None

    def bytes_of(self, record: dict[Any, int]) -> int:
        """Return the estimated size of a record."""
        return RECORD_BYTES + VALUE_BYTES * len(record) + sum(map(key_bytes, record))
