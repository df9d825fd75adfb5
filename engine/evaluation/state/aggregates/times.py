"""The latest times at which a condition was true, for `count`."""

from array import array
from functools import cache
from typing import Any, Final

from engine.evaluation.memory import NEVER
from engine.evaluation.state.aggregates.entries import Entries
from engine.evaluation.state.storage.columns import ColumnTable
from engine.evaluation.state.storage.pages import IN_PAGE, PAGE_BITS, PAGE_SLOTS
from engine.evaluation.state.storage.records import row_length
from engine.evaluation.state.storage.sizes import RECORD_STEP, STEP_BYTES, array_bytes, steps_bytes

SLACK: Final = 8
"""A record that is an object is cut to the most that are needed when it has this many more, or half as many
more."""

_LONG: Final = -1


class Times(Entries["array[int]"]):
    """For each slot the latest times, as many as are needed or some more.

    A row is a ring: the place of the latest time, from 1, and the times. It is 0 in an empty row, and `_LONG`
    if the times are an object.
    """

    __slots__ = ("_full", "_length", "_width")

    def __init__(self, table: ColumnTable, window_us: int | None, most: int, needed: int) -> None:
        self._full = full_length(most)
        self._length = row_length(most)
        self._width = 1 + self._length
        page_bytes = array_bytes(self._width * PAGE_SLOTS)
        super().__init__(table, window_us, (_blank(self._length), page_bytes), most, needed)

    def add(self, key: Any, slot: int, now_us: int, tick: int) -> int:
        """Add the time of an event, which is added once, and give the slot."""
        if self.few is None:
            if slot < 0:
                slot = self._admit(key, now_us, tick)
            number, offset = slot >> PAGE_BITS, slot & IN_PAGE
            page, first = self.rows[number], offset * self._width
            place = page[first]
            if not place:
                self.put(slot, now_us)
                page = self.rows[number]
                page[first], page[first + 1] = 1, now_us
                return slot
            if place > 0:
                place = place + 1 if place < self._length else 1
                if self._length == self.most or page[first + place] < self._edge_us(now_us):
                    page[first] = place
                    page[first + place] = self.pages[number][offset] = now_us
                    return slot
        times = self._own(slot)
        if times is None:
            return self._open(key, slot, now_us, tick, array("q", (now_us,)))
        self._set_latest(slot, now_us)
        times.append(now_us)
        length = len(times)
        if slot not in self.long:
            self._keep_record(slot, times)
            return slot
        if length == self.needed:
            self._grown(slot)
        if not length % RECORD_STEP:
            self.weigh(STEP_BYTES)
        if length == self._full:
            self.weigh(steps_bytes(self.most) - steps_bytes(length))
            del times[: -self.most]
        return slot

    def nth(self, slot: int, number: int) -> int:
        """Return the time of this number, counted back from the latest as 1; NEVER if there are fewer."""
        if self.few is None:
            page, first = self.rows[slot >> PAGE_BITS], (slot & IN_PAGE) * self._width
            place = page[first]
            if place >= 0:
                if number > self._length:
                    return NEVER
                time_us: int = page[first + 1 + (place - number) % self._length]
                return time_us
        times = self.long.get(slot)
        return NEVER if times is None or len(times) < number else times[-number]

    def latest_us(self, record: "array[int]") -> int:
        return record[-1]

    def later(self, record: "array[int]", since_us: int) -> "array[int] | None":
        return array("q", [time_us for time_us in record if time_us > since_us]) or None

    def bytes_of(self, record: "array[int]") -> int:
        return steps_bytes(len(record))

    def copy_of(self, record: "array[int]") -> "array[int]":
        return record[:]

    def _twin(self) -> "Times":
        return Times(self.table, self.expires_after_us, self.most, self.needed)

    def _edge_us(self, now_us: int) -> int:
        """Return the oldest time that counts, always later than NEVER without a window."""
        return NEVER + 1 if self.expires_after_us is None else now_us - self.expires_after_us

    def _fits(self, record: "array[int]") -> bool:
        # Where a row has room for all that are needed, it leaves out the others. An object that is cut later
        # would be a row once it is restored, and count for less.
        return self._length == self.most or len(record) <= self._length

    def _read_row(self, page: "array[int]", offset: int) -> "array[int] | None":
        first = offset * self._width + 1
        place, end = page[first - 1], first + self._length
        times = page[first + place : end] + page[first : first + place]
        return array("q", [time_us for time_us in times if time_us != NEVER]) or None

    def _write_row(self, page: "array[int]", offset: int, record: "array[int]") -> None:
        first, times = offset * self._width, record[-self._length :]
        page[first] = len(times)
        page[first + 1 : first + 1 + len(times)] = times

    def _clear_row(self, page: "array[int]", offset: int, *, long: bool) -> None:
        first = offset * self._width
        page[first : first + self._width] = _blank(self._length)[: self._width]
        page[first] = _LONG if long else 0


def full_length(most: int) -> int:
    """Return the length at which a record is cut to the most times that are needed."""
    return most + max(SLACK, most // 2)


@cache
def _blank(length: int) -> "array[int]":
    """Return a page of empty rows."""
    return array("q", [0, *[NEVER] * length]) * PAGE_SLOTS
