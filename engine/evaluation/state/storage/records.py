"""The memory of a temporal node that is a record of varying length for each slot of a key table.

What a comparison with n needs is bounded: whether something happened n times within a window is known from
its n latest times, and likewise for the values of a fact.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from engine.evaluation.state.storage.columns import Column, ColumnTable
from engine.evaluation.state.storage.pages import IN_PAGE, PAGE_BITS
from engine.evaluation.state.storage.sizes import RECORD_BYTES

IN_ROW_MAX: Final = 12
"""The longest record that is a row. A longer one is an object of its own."""

R = TypeVar("R")


def row_length(most: int) -> int:
    """Return the length of rows for records of which at most `most` is needed."""
    return min(most, IN_ROW_MAX)


class Records(Column, Generic[R]):
    """A record for each slot at which something counted, and a column with the latest time in each.

    While the column is a dict, each record is an object. Once it has pages, short records are *rows* in pages
    of their own, so that what events read and write stands together.

    Generated functions read it, and call `add` at most once for each event.
    """

    __slots__ = ("_blank", "_lent", "_page_bytes", "long", "rows")

    def __init__(self, table: ColumnTable, window_us: int | None, blank: Any, page_bytes: int) -> None:
        super().__init__(table, window_us, 0)
        self.long: dict[int, R] = {}
        """The records that are in no row, by slot."""
        self._lent: set[int] = set()
        """The slots of objects that a copy may share. They are copied before they change."""
        self.rows: list[Any] = []
        """The rows by page, if the column is paged. The last page is blank."""
        self._blank = blank
        self._page_bytes = page_bytes

    def record(self, slot: int) -> R | None:
        """Return the record of a slot, or a copy if it is in a row; None without one."""
        record = self.long.get(slot)
        if record is not None or self.few is not None:
            return record
        return self._read_row(self.rows[slot >> PAGE_BITS], slot & IN_PAGE)

    def each_slot(self) -> Iterator[int]:
        """Give the slots with a record one after another, in the order of snapshots."""
        if self.few is not None:
            yield from self.few
        for number in range(len(self.counts)):
            yield from self._slots_of(number)

    def _own(self, slot: int) -> R | None:
        """Return the record of a slot, or None. If it is in no row, the caller may change it."""
        if slot in self._lent:
            self._lent.remove(slot)
            if slot in self.long:
                self.long[slot] = self.copy_of(self.long[slot])
        return self.record(slot)

    # -- what each kind knows -------------------------------------------------------------------------------

    @abstractmethod
    def latest_us(self, record: R) -> int:
        """Return the latest time in a record, or the last time that would expire together with it."""

    @abstractmethod
    def later(self, record: R, since_us: int) -> R | None:
        """Return a copy of what a record holds that is later than a time, or None."""

    @abstractmethod
    def bytes_of(self, record: R) -> int:
        """Return the estimated size of a record that is in no row."""

    @abstractmethod
    def _fits(self, record: R) -> bool:
        """Return whether a record is short enough for a row."""

    @abstractmethod
    def _read_row(self, page: Any, offset: int) -> R | None:
        """Return the record in a row, or None if it is empty."""

    @abstractmethod
    def _write_row(self, page: Any, offset: int, record: R) -> None:
        """Put a record into an empty row."""

    @abstractmethod
    def _clear_row(self, page: Any, offset: int, *, long: bool) -> None:
        """Empty a row, and mark whether the record is an object."""

    def _copied(self, page: Any) -> Any:
        """Return a copy of a page of rows."""
        return page[:]

    # -- records --------------------------------------------------------------------------------------------

    def take_over(self, other: "Records[Any]", since_us: int, now_us: int) -> None:
        """Take from other records what is later than a time and has not expired."""
        for slot in other.slots():
            record = other.record(slot)
            assert record is not None, "the slot has a record"
            later = self.later(record, since_us)
            if later is not None and other.until_us(slot) >= now_us:
                self._insert(slot, later)

    def restore_records(self, records: dict[int, R], *, paged: bool) -> None:
        """Restore the records. The table must already have the numbers of columns with an entry."""
        if not paged:
            self.restore({slot: self.latest_us(record) for slot, record in records.items()}, {}, {}, 0)
        else:
            self._begin_rows()
            self.restore(None, {}, {}, 0)
            self.held = len(records)
        for slot, record in records.items():
            if paged:
                self._put_in_page(slot, self.latest_us(record))
            self._keep_record(slot, record)

    def copied(self, slots: Mapping[int, int] | None = None) -> "Records[R]":
        """Return a copy for reading, which later events do not change.

        With `slots`, only their records are copied, each to another slot.
        """
        copy = self._twin()
        if slots is not None:
            for slot, new in slots.items():
                record = self.record(slot)
                if record is not None:
                    copy.long[new] = self.copy_of(record)
            copy.few = {new: self.latest_us(record) for new, record in copy.long.items()}
            return copy
        copy.few = None if self.few is None else self.few.copy()
        copy.counts = self.counts[:]
        used = [bool(count) for count in [*self.counts, 0]]
        copy.pages = [page[:] if use else page for page, use in zip(self.pages, used, strict=False)]
        copy.rows = [self._copied(page) if use else page for page, use in zip(self.rows, used, strict=False)]
        copy.long = self.long.copy()
        self._lent = set(self.long)
        return copy

    @abstractmethod
    def _twin(self) -> "Records[R]":
        """Return new records of the same node."""

    @abstractmethod
    def copy_of(self, record: R) -> R:
        """Return a copy of a record."""

    def _admit(self, key: Any, now_us: int, tick: int) -> int:
        """Admit a key that is not live, and give its slot."""
        slot = self.table.slot = self.table.admit(key, tick, now_us)
        return slot

    def _open(self, key: Any, slot: int, now_us: int, tick: int, record: R) -> int:
        """Add a record for a key, which is admitted if it is not live, and give its slot."""
        if slot < 0:
            slot = self._admit(key, now_us, tick)
        self._insert(slot, record)
        return slot

    def _insert(self, slot: int, record: R) -> None:
        self.put(slot, self.latest_us(record))
        self._keep_record(slot, record)

    def _keep_record(self, slot: int, record: R) -> None:
        """Store a record that is new, or that has outgrown its row."""
        if self.few is None:
            page, offset = self.rows[slot >> PAGE_BITS], slot & IN_PAGE
            if self._fits(record):
                self._write_row(page, offset, record)
                return
            self._clear_row(page, offset, long=True)
        self.long[slot] = record
        self.weigh(RECORD_BYTES + self.bytes_of(record))

    def _drop_record(self, slot: int) -> None:
        record = self.long.pop(slot, None)
        if record is not None:
            self._lent.discard(slot)
            self.weigh(-RECORD_BYTES - self.bytes_of(record))
        if self.few is None:
            self._clear_row(self.rows[slot >> PAGE_BITS], slot & IN_PAGE, long=False)

    def _set_latest(self, slot: int, time_us: int) -> None:
        if self.few is not None:
            self.few[slot] = time_us
        else:
            self.pages[slot >> PAGE_BITS][slot & IN_PAGE] = time_us

    # -- as of a column -------------------------------------------------------------------------------------

    def close(self, slot: int) -> None:
        """Remove the record of a slot."""
        self._drop_record(slot)
        super().close(slot)

    def drop_all(self) -> None:
        """Drop all records, when their node is dropped."""
        for slot in self.slots():
            self._drop_record(slot)
        self.weigh(-self._page_bytes * sum(map(bool, self.counts)))
        super().drop_all()

    def grow(self, pages: int) -> None:
        """Extend the pages to this many, as the table has grown."""
        if self.few is None:
            self.rows += [self._blank] * (pages - len(self.counts))
        super().grow(pages)

    def _begin_rows(self) -> None:
        self.rows = [self._blank]

    def _expire(self, slots: list[int]) -> None:
        for slot in slots:
            self._drop_record(slot)

    def _put_in_page(self, slot: int, time_us: int) -> None:
        number = slot >> PAGE_BITS
        if not self.counts[number]:
            self.rows[number] = self._copied(self._blank)
            self.weigh(self._page_bytes)
        super()._put_in_page(slot, time_us)

    def _give_page_back(self, number: int) -> None:
        self.rows[number] = self._blank
        self.weigh(-self._page_bytes)
        super()._give_page_back(number)

    def _to_pages(self, few: dict[int, int]) -> None:
        self._begin_rows()
        super()._to_pages(few)
        for slot in list(self.long):
            record = self.long.pop(slot)
            self.weigh(-RECORD_BYTES - self.bytes_of(record))
            self._keep_record(slot, record)

    def _to_few(self) -> None:
        super()._to_few()
        self.rows = []
