"""A time for each slot of a key table.

Few times are a dict, more are an array in pages. So their size is proportional to the keys with a time, and
an array never has to be copied to grow.
"""

from array import array
from collections.abc import Sized
from typing import Final, Protocol

from engine.evaluation.memory import NEVER
from engine.evaluation.state.storage.pages import IN_PAGE, PAGE_BITS, PAGE_SLOTS
from engine.evaluation.state.storage.sizes import PAGE_BYTES

_BLANK: Final = array("q", [NEVER]) * PAGE_SLOTS

# Empty columns share these, because there may be a hundred thousand of them.
_NO_PAGES: Final = [_BLANK]
_NO_COUNTS: Final[list[int]] = []


class Slotted(Protocol):
    """What the times ask of their table."""

    @property
    def keys(self) -> Sized:
        """One for each slot."""

    def weigh(self, more_bytes: int) -> None:
        """Add to the estimated size of the detector's keys and memories."""


class SlotTimes:
    """Entries by slot: a time in microseconds, or NEVER. Generated functions read and overwrite them."""

    __slots__ = ("bytes", "counts", "few", "held", "pages", "table")

    def __init__(self, table: Slotted) -> None:
        self.table = table
        self.bytes = 0
        """The estimated size; see `sizes.py`."""
        self.few: dict[int, int] | None = {}
        """The entries by slot, or None if they are in pages."""
        self.pages = _NO_PAGES
        """The entries by page, if they are many. The last page is blank; NO_SLOT reads it."""
        self.counts = _NO_COUNTS
        """The number of entries on each page."""
        self.held = 0

    def weigh(self, more_bytes: int) -> None:
        """Add to the estimated size of the column, and so of the detector."""
        self.bytes += more_bytes
        self.table.weigh(more_bytes)

    def at(self, slot: int) -> int:
        """Return the entry of a slot, or NEVER."""
        if self.few is not None:
            return self.few.get(slot, NEVER)
        return self.pages[slot >> PAGE_BITS][slot & IN_PAGE]

    def slots(self) -> list[int]:
        """Return the slots with an entry, in the order of snapshots."""
        if self.few is not None:
            return list(self.few)
        return [slot for number in range(len(self.counts)) for slot in self._slots_of(number)]

    def _slots_of(self, number: int) -> list[int]:
        if not self.counts[number]:
            return []
        first = number << PAGE_BITS
        return [first + offset for offset, time_us in enumerate(self.pages[number]) if time_us != NEVER]

    def grow(self, pages: int) -> None:
        """Extend the column to this many pages, as the table has grown."""
        if self.few is None:
            more = pages - len(self.counts)
            self.counts += [0] * more
            self.pages += [_BLANK] * more

    def _begin_few(self) -> None:
        self.few = {}
        self.pages, self.counts = _NO_PAGES, _NO_COUNTS

    def _begin_pages(self) -> None:
        self.few, self.pages, self.counts = None, [_BLANK], []
        self.grow((len(self.table.keys) + IN_PAGE) >> PAGE_BITS)

    def _put_in_page(self, slot: int, time_us: int) -> None:
        number = slot >> PAGE_BITS
        if not self.counts[number]:
            self.pages[number] = _BLANK[:]
            self.weigh(PAGE_BYTES)
        self.pages[number][slot & IN_PAGE] = time_us
        self.counts[number] += 1

    def _give_page_back(self, number: int) -> None:
        self.pages[number] = _BLANK
        self.weigh(-PAGE_BYTES)
