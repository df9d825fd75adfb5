"""The most recently seen values of a fact, for `distinct`."""

from collections import OrderedDict
from collections.abc import Iterable
from functools import cache
from struct import Struct
from typing import Any, Final

from engine.evaluation.facts.values import KEY_CHARS_MAX, slice_key_of
from engine.evaluation.key_sizes import key_bytes
from engine.evaluation.memory import NEVER
from engine.evaluation.state.aggregates.entries import Entries
from engine.evaluation.state.aggregates.interned import Interned
from engine.evaluation.state.storage.columns import ColumnTable
from engine.evaluation.state.storage.pages import IN_PAGE, PAGE_BITS, PAGE_SLOTS
from engine.evaluation.state.storage.records import row_length
from engine.evaluation.state.storage.sizes import VALUE_BYTES
from engine.evaluation.state.storage.slots.shards import SHARDS

_DICT_MAX: Final = 64
"""The longest plain dict. Longer ones are ordered dicts, since removing the first entry of a plain one takes
linear time."""

_ENTRY: Final = Struct("<iq")
"""A value in a row: its number and its latest time."""

_TIME: Final = Struct("<q")
_SIZE: Final = _ENTRY.size
_NUMBER_SIZE: Final = _ENTRY.size - _TIME.size
_LONG: Final = 255


class Values(Entries[dict[Any, int]]):
    """For each slot the most recently seen values in order, as many as are needed, with their latest times.

    A row begins with the number of its values: 0 if it is empty, and `_LONG` if the values are an object.
    """

    __slots__ = ("_interned", "_length", "_width")

    def __init__(self, table: ColumnTable, window_us: int | None, most: int, needed: int) -> None:
        self._length = row_length(most)
        self._width = 1 + _SIZE * self._length
        blank = _blank(self._width)
        super().__init__(table, window_us, (blank, len(blank)), most, needed)
        self._interned: Interned | None = None
        """The values in rows, if there are rows."""

    def add(self, key: Any, slot: int, now_us: int, tick: int, value: Any) -> int:
        """Add the value of a fact, if it is a scalar, and give the slot."""
        if type(value) is not str or len(value) > KEY_CHARS_MAX:
            value = slice_key_of(value)
            if value is None:
                return slot
        if self.few is None:
            if slot < 0:
                slot = self._admit(key, now_us, tick)
            number, offset = slot >> PAGE_BITS, slot & IN_PAGE
            page, first = self.rows[number], offset * self._width
            if not page[first]:
                assert self._interned is not None, "there are rows"
                self.put(slot, now_us)
                page = self.rows[number]
                page[first] = 1
                _ENTRY.pack_into(page, first + 1, self._interned.take(value), now_us)
                return slot
            if page[first] < _LONG:
                self.pages[number][offset] = now_us
                if not self._add_to_row(page, first, now_us, value):
                    record = self._read_row(page, offset)
                    assert record is not None, "the row is full"
                    record[value] = now_us
                    self._keep_record(slot, record)
                return slot
        values = self._own(slot)
        if values is None:
            return self._open(key, slot, now_us, tick, self.ordered([(value, now_us)]))
        self._set_latest(slot, now_us)
        if value in values:
            del values[value]
        else:
            more = VALUE_BYTES + key_bytes(value)
            if len(values) == self.most:
                oldest = next(iter(values))
                del values[oldest]
                more -= VALUE_BYTES + key_bytes(oldest)
            elif len(values) == self.needed - 1:
                self._grown(slot)
            self.weigh(more)
        values[value] = now_us
        return slot

    def _add_to_row(self, page: bytearray, first: int, now_us: int, value: Any) -> bool:
        """Add a value to a row that is not empty; return False if it would replace a value that is needed."""
        interned = self._interned
        assert interned is not None, "there are rows"
        count, begin = page[first], first + 1
        end = begin + count * _SIZE
        number = interned.shards[hash((value,)) % SHARDS].get(value)
        if number is not None:
            entry = _ENTRY.pack(number, now_us)
            place = page.find(entry[:_NUMBER_SIZE], begin, end)
            while place >= 0 and (place - begin) % _SIZE:
                place = page.find(entry[:_NUMBER_SIZE], place + 1, end)
            if place >= 0:
                page[place:end] = page[place + _SIZE : end] + entry
                return True
        if count < self._length:
            page[first] = count + 1
            if number is None:
                number = interned.take(value)
            else:
                interned.uses[number] += 1
            _ENTRY.pack_into(page, end, number, now_us)
            return True
        oldest, time_us = _ENTRY.unpack_from(page, begin)
        if self._length < self.most and (
            self.expires_after_us is None or time_us >= now_us - self.expires_after_us
        ):
            return False
        interned.give_back(oldest)
        page[begin:end] = page[begin + _SIZE : end] + _ENTRY.pack(interned.take(value), now_us)
        return True

    def nth(self, slot: int, number: int) -> int:
        """Return the latest time of the value of this number, counted back from the most recent as 1.

        It is NEVER if there are fewer. The number is that of the first value in a record or of the second.
        """
        if self.few is None:
            page, first = self.rows[slot >> PAGE_BITS], (slot & IN_PAGE) * self._width
            count = page[first]
            if count < _LONG:
                if count < number:
                    return NEVER
                time_us: int = _ENTRY.unpack_from(page, first + 1 + (count - number) * _SIZE)[1]
                return time_us
        values = self.long.get(slot)
        if values is None or len(values) < number:
            return NEVER
        times = iter(values.values())
        if len(values) > number:
            next(times)
        return next(times)

    def latest_us(self, record: dict[Any, int]) -> int:
        return next(reversed(record.values()))

    def later(self, record: dict[Any, int], since_us: int) -> dict[Any, int] | None:
        return self.ordered([entry for entry in record.items() if entry[1] > since_us]) or None

    def ordered(self, values: Iterable[tuple[Any, int]]) -> dict[Any, int]:
        """Return a record of values in order."""
        return dict(values) if self.most <= _DICT_MAX else OrderedDict(values)

    def bytes_of(self, record: dict[Any, int]) -> int:
        return VALUE_BYTES * len(record) + sum(map(key_bytes, record))

    def copy_of(self, record: dict[Any, int]) -> dict[Any, int]:
        return record.copy()

    def _twin(self) -> "Values":
        twin = Values(self.table, self.expires_after_us, self.most, self.needed)
        if self._interned is not None:
            twin._interned = self._interned.copied()
        return twin

    def _begin_rows(self) -> None:
        super()._begin_rows()
        self._interned = Interned(self.weigh)

    def _to_few(self) -> None:
        super()._to_few()
        self._interned = None

    def _fits(self, record: dict[Any, int]) -> bool:
        return len(record) <= self._length

    def _read_row(self, page: bytearray, offset: int) -> dict[Any, int] | None:
        first = offset * self._width
        count = page[first]
        if not count:
            return None
        assert self._interned is not None, "there are rows"
        values = self._interned.values
        entries = _ENTRY.iter_unpack(page[first + 1 : first + 1 + count * _SIZE])
        return self.ordered((values[number], time_us) for number, time_us in entries)

    def _write_row(self, page: bytearray, offset: int, record: dict[Any, int]) -> None:
        assert self._interned is not None, "there are rows"
        take = self._interned.take
        first = offset * self._width
        page[first] = len(record)
        entries = b"".join([_ENTRY.pack(take(value), time_us) for value, time_us in record.items()])
        page[first + 1 : first + 1 + len(entries)] = entries

    def _clear_row(self, page: bytearray, offset: int, *, long: bool) -> None:
        first = offset * self._width
        count = page[first]
        if 0 < count < _LONG:
            assert self._interned is not None, "there are rows"
            for number, _ in _ENTRY.iter_unpack(page[first + 1 : first + 1 + count * _SIZE]):
                self._interned.give_back(number)
        page[first] = _LONG if long else 0


@cache
def _blank(width: int) -> bytearray:
    """Return a page of empty rows."""
    return bytearray(width * PAGE_SLOTS)
