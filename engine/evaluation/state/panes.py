"""Sums and means of a fact, kept by panes of time: they take little memory however many numbers are added."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from engine.evaluation.facts.values import double
from engine.evaluation.memory import NEVER, pane_us
from engine.evaluation.state.records import Records, Slots, steps_bytes
from engine.evaluation.state.sizes import RECORD_BYTES


class Sum:
    """A record of panes: their numbers, what was added in each and, for a mean, how often."""

    __slots__ = ("before", "count", "counts", "panes", "read", "sums")

    def __init__(self, panes: "array[int]", sums: "array[float]", counts: "array[int] | None") -> None:
        self.panes = panes
        self.sums = sums
        self.counts = counts
        self.before = _added(sums[:-1])
        """The sum of all panes but the last."""
        self.count = 0 if counts is None else sum(counts)
        """How many numbers all panes have."""
        self.read: tuple[int, float, int] | None = None
        """What was read last: the oldest pane that counted, the sum and the count, unless all panes do."""


class Panes(Records[Sum]):
    """The sums of a fact over panes of time, and how many numbers were added where a mean is asked for."""

    __slots__ = ("counted", "width_us")

    def __init__(self, table: Slots, window_us: int | None, *, counted: bool) -> None:
        super().__init__(table, window_us)
        self.width_us = 0 if window_us is None else pane_us(window_us)
        self.counted = counted

    def add(self, key: Any, slot: int, now_us: int, tick: int, value: Any) -> int:
        """Add the value of a fact, if it is a number within a double's range, and give the slot."""
        number = double(value)
        if number is None:
            return slot
        record = self.few.get(slot)
        pane = 0 if self.window_us is None else now_us // self.width_us
        if record is None:
            counts = array("q", (1,)) if self.counted else None
            # Where the number is -0.0, so is the sum of nothing and it: 0.0.
            return self._open(
                key, slot, now_us, tick, Sum(array("q", (pane,)), array("d", (0.0 + number,)), counts)
            )
        record.read = None
        record.count += 1
        if record.panes[-1] == pane:
            record.sums[-1] += number
            if record.counts is not None:
                record.counts[-1] += 1
            return slot
        record.before += record.sums[-1]
        record.panes.append(pane)
        record.sums.append(0.0 + number)
        if record.counts is not None:
            record.counts.append(1)
        length = len(record.panes)
        expired = bisect_left(record.panes, self._oldest(now_us))
        if expired:
            del record.panes[:expired], record.sums[:expired]
            if record.counts is not None:
                del record.counts[:expired]
                record.count = sum(record.counts)
            record.before = _added(record.sums[:-1])
        columns = 2 if record.counts is None else 3
        more = steps_bytes(len(record.panes)) - steps_bytes(length - 1)
        if more:
            self.table.weigh(columns * more)
        return slot

    def total(self, slot: int, now_us: int) -> float:
        """Return the sum over the panes that count."""
        record = self.few.get(slot)
        if record is None:
            return 0.0
        if self.window_us is None or record.panes[0] >= self._oldest(now_us):
            return record.before + record.sums[-1]
        return self._read(record, now_us)[1]

    def mean(self, slot: int, now_us: int) -> float | None:
        """Return the mean over the panes that count, or None if no number does."""
        record = self.few.get(slot)
        if record is None:
            return None
        assert record.counts is not None, "the numbers are counted"
        if self.window_us is None or record.panes[0] >= self._oldest(now_us):
            return (record.before + record.sums[-1]) / record.count
        _, total, count = self._read(record, now_us)
        return total / count if count else None

    def last_us(self, record: Sum) -> int:
        """Return the end of the last pane, before which its numbers count like one at its end."""
        return (record.panes[-1] + 1) * self.width_us - 1

    def later(self, record: Sum, since_us: int) -> Sum | None:
        """Return a copy of a record. From a sum, nothing can be taken out."""
        assert since_us == NEVER, "sums are shared only when nothing in them is ignored"
        return Sum(record.panes[:], record.sums[:], None if record.counts is None else record.counts[:])

    def bytes_of(self, record: Sum) -> int:
        """Return the estimated size of a record."""
        return 2 * RECORD_BYTES + (2 if record.counts is None else 3) * steps_bytes(len(record.panes))

    def _oldest(self, now_us: int) -> int:
        """Return the oldest pane that counts."""
        return 0 if self.window_us is None else (now_us - self.window_us) // self.width_us

    def _read(self, record: Sum, now_us: int) -> tuple[int, float, int]:
        """Read a record of which some panes have expired."""
        oldest = self._oldest(now_us)
        read = record.read
        if read is None or read[0] != oldest:
            first = bisect_left(record.panes, oldest)
            count = 0 if record.counts is None else sum(record.counts[first:])
            read = record.read = (oldest, _added(record.sums[first:]), count)
        return read


def _added(numbers: Iterable[float]) -> float:
    """Add numbers in order, beginning with 0.0. `sum` would round less."""
    total = 0.0
    for number in numbers:
        total += number
    return total
