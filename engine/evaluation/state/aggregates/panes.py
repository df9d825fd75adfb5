"""Sums and means of a fact, kept by panes of time: they take little memory however many numbers are added."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from engine.evaluation.facts.values import double
from engine.evaluation.memory import FOREVER, PANES, pane_us
from engine.evaluation.state.storage.columns import ColumnTable
from engine.evaluation.state.storage.pages import IN_PAGE, PAGE_BITS, PAGE_SLOTS
from engine.evaluation.state.storage.records import Records, row_length
from engine.evaluation.state.storage.sizes import RECORD_BYTES, array_bytes, steps_bytes

PANES_KEPT_MAX: Final = PANES + 2
"""The most panes of a record: the oldest and the latest are partly outside the window."""

_PANES_IN_ROW: Final = 8
_LONG: Final = -1


class PaneSums:
    """A record of panes: the number of each pane, its sum and, for a mean, its count."""

    __slots__ = ("before", "count", "counts", "panes", "read", "sums")

    def __init__(self, panes: "array[int]", sums: "array[float]", counts: "array[int] | None") -> None:
        self.panes = panes
        self.sums = sums
        self.counts = counts
        self.before = _added(sums[:-1])
        """The sum of all panes but the last."""
        self.count = sum(counts or ())
        """How many numbers all panes have, for a mean."""
        self.read: tuple[int, float, int] | None = None
        """The last result for only some panes: the oldest one that counted, the sum and the count."""

    def add(self, pane: int, number: float, oldest: int) -> None:
        """Add a number. A new pane drops those before the oldest that counts."""
        self.read = None
        self.count += 1
        if self.panes[-1] == pane:
            self.sums[-1] += number
            if self.counts is not None:
                self.counts[-1] += 1
            return
        self.before += self.sums[-1]
        self.panes.append(pane)
        # As in a sum that begins with 0.0, -0.0 becomes 0.0.
        self.sums.append(0.0 + number)
        if self.counts is not None:
            self.counts.append(1)
        expired = bisect_left(self.panes, oldest)
        if expired:
            del self.panes[:expired], self.sums[:expired]
            if self.counts is not None:
                del self.counts[:expired]
                self.count = sum(self.counts)
            self.before = _added(self.sums[:-1])

    def total(self, oldest: int) -> tuple[float, int]:
        """Return the sum over the panes that count, and how many numbers they have."""
        if self.panes[0] >= oldest:
            return self.before + self.sums[-1], self.count
        if self.read is None or self.read[0] != oldest:
            first = bisect_left(self.panes, oldest)
            self.read = (oldest, _added(self.sums[first:]), sum((self.counts or ())[first:]))
        return self.read[1:]


class Panes(Records[PaneSums]):
    """The sums of a fact over panes of time, and how many numbers were added where a mean is asked for.

    The rows of a page are in two arrays. One has the number of panes (0 if there is no record, and `_LONG` if
    it is an object), the panes and, for means, the counts; the other has the sums.
    """

    __slots__ = ("_length", "_width", "counted", "width_us")

    def __init__(self, table: ColumnTable, window_us: int | None, *, counted: bool) -> None:
        self.width_us = 0 if window_us is None else pane_us(window_us)
        self.counted = counted
        self._length = row_length(1 if window_us is None else _PANES_IN_ROW)
        self._width = 1 + self._length * (2 if counted else 1)
        page_bytes = array_bytes(self._width * PAGE_SLOTS) + array_bytes(self._length * PAGE_SLOTS)
        super().__init__(table, window_us, _blank(self._width, self._length), page_bytes)

    def add(self, key: Any, slot: int, now_us: int, tick: int, value: Any) -> int:
        """Add the value of a fact, if it is a number within a double's range, and give the slot."""
        number = value if type(value) is float else double(value)
        if number is None:
            return slot
        pane = 0 if self.expires_after_us is None else now_us // self.width_us
        if self.few is None:
            if slot < 0:
                slot = self._admit(key, now_us, tick)
            numbers, sums = self.rows[slot >> PAGE_BITS]
            offset = slot & IN_PAGE
            first = offset * self._width
            count = numbers[first]
            if not count:
                self.put(slot, self._end_us(pane))
                numbers, sums = self.rows[slot >> PAGE_BITS]
            if count >= 0:
                place = offset * self._length + count
                if count and numbers[first + count] == pane:
                    sums[place - 1] += number
                    if self.counted:
                        numbers[first + self._length + count] += 1
                    return slot
                if count < self._length:
                    numbers[first] = count + 1
                    numbers[first + 1 + count] = pane
                    sums[place] = 0.0 + number
                    if self.counted:
                        numbers[first + self._length + 1 + count] = 1
                    self.pages[slot >> PAGE_BITS][offset] = self._end_us(pane)
                    return slot
        record = self._own(slot)
        if record is None:
            counts = array("q", (1,)) if self.counted else None
            record = PaneSums(array("q", (pane,)), array("d", (0.0 + number,)), counts)
            return self._open(key, slot, now_us, tick, record)
        if record.panes[-1] == pane:
            record.add(pane, number, 0)
            return slot
        self._drop_record(slot)
        record.add(pane, number, self._oldest(now_us))
        self._set_latest(slot, self._end_us(pane))
        self._keep_record(slot, record)
        return slot

    def mean(self, slot: int, now_us: int) -> float | None:
        """Return the mean over the panes that count, or None if no number does."""
        total, count = self.added(slot, now_us)
        return total / count if count else None

    def added(self, slot: int, now_us: int) -> tuple[float, int]:
        """Return the sum over the panes that count and, for means, how many numbers they have."""
        window_us = self.expires_after_us
        oldest = 0 if window_us is None else (now_us - window_us) // self.width_us
        if self.few is None:
            numbers, sums = self.rows[slot >> PAGE_BITS]
            offset, length = slot & IN_PAGE, self._length
            at = offset * self._width
            panes = numbers[at]
            if panes >= 0:
                total, count = 0.0, 0
                for place in range(offset * length, offset * length + panes):
                    at += 1
                    if numbers[at] >= oldest:
                        total += sums[place]
                        if self.counted:
                            count += numbers[at + length]
                return total, count
        record = self.long.get(slot)
        return (0.0, 0) if record is None else record.total(oldest)

    def latest_us(self, record: PaneSums) -> int:
        """Return the end of the last pane: all of its numbers expire as if they came then."""
        return self._end_us(record.panes[-1])

    def later(self, record: PaneSums, since_us: int) -> PaneSums | None:  # noqa: ARG002 -- as for other records
        """Return a copy of the whole record: a sum cannot be split, and what is ignored has expired."""
        return self.copy_of(record)

    def bytes_of(self, record: PaneSums) -> int:
        return RECORD_BYTES + (2 if record.counts is None else 3) * steps_bytes(len(record.panes))

    def copy_of(self, record: PaneSums) -> PaneSums:
        return PaneSums(record.panes[:], record.sums[:], None if record.counts is None else record.counts[:])

    def _twin(self) -> "Panes":
        return Panes(self.table, self.expires_after_us, counted=self.counted)

    def _end_us(self, pane: int) -> int:
        # The last pane of a very long window may end at a time that does not fit in 64 bits.
        return min((pane + 1) * self.width_us, FOREVER) - 1

    def _oldest(self, now_us: int) -> int:
        """Return the oldest pane that counts."""
        assert self.expires_after_us is not None, "without a window, all is in one pane"
        return (now_us - self.expires_after_us) // self.width_us

    def _copied(self, page: Any) -> Any:
        numbers, sums = page
        return numbers[:], sums[:]

    def _fits(self, record: PaneSums) -> bool:
        return len(record.panes) <= self._length

    def _read_row(self, page: Any, offset: int) -> PaneSums | None:
        numbers, sums = page
        first, place = offset * self._width + 1, offset * self._length
        count = numbers[first - 1]
        if not count:
            return None
        counts = None
        if self.counted:
            counts = numbers[first + self._length : first + self._length + count]
        return PaneSums(numbers[first : first + count], sums[place : place + count], counts)

    def _write_row(self, page: Any, offset: int, record: PaneSums) -> None:
        numbers, sums = page
        first, place = offset * self._width + 1, offset * self._length
        count = numbers[first - 1] = len(record.panes)
        numbers[first : first + count] = record.panes
        sums[place : place + count] = record.sums
        if record.counts is not None:
            numbers[first + self._length : first + self._length + count] = record.counts

    def _clear_row(self, page: Any, offset: int, *, long: bool) -> None:
        page[0][offset * self._width] = _LONG if long else 0


@cache
def _blank(width: int, length: int) -> "tuple[array[int], array[float]]":
    """Return a page of empty rows."""
    return array("q", bytes(8 * width * PAGE_SLOTS)), array("d", bytes(8 * length * PAGE_SLOTS))


def _added(numbers: Iterable[float]) -> float:
    """Add numbers in order, beginning with 0.0. `sum` would round less."""
    total = 0.0
    for number in numbers:
        total += number
    return total
