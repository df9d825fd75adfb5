"""The memory of one temporal node by key: a time for each slot of a key table.

While few slots hold anything it is a dict; then an array in pages. So what a node costs is in proportion to
the keys that it has touched, and no growth copies more than one page.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from engine.evaluation.state.sizes import ENTRY_BYTES, PAGE_BYTES, TICK_BYTES
from engine.evaluation.temporal import FOREVER, NEVER, Regime

if TYPE_CHECKING:
    from engine.evaluation.buckets import Bucket
    from engine.evaluation.state.tables import KeyTable

PAGE_BITS: Final = 8
PAGE_SLOTS: Final = 1 << PAGE_BITS
IN_PAGE: Final = PAGE_SLOTS - 1

NO_SLOT: Final = -1
"""The slot of a key that is not live. It reads as NEVER in every column, and is never written."""

PAGED_FROM: Final = 512
"""So many entries a column may have as a dict in any case."""

SPARSE_SHARE: Final = 16
"""Beyond, it stays a dict while it holds less than one of so many slots: an entry of a dict costs as much as
so many of an array."""

_BLANK: Final = array("q", [NEVER]) * PAGE_SLOTS

# What a column has that holds nothing: a hundred thousand of them need not have lists of their own.
_NO_PAGES: Final = [_BLANK]
_NO_COUNTS: Final[list[int]] = []
_NO_TICKS: Final[dict[int, int]] = {}


class Column:
    """What one node remembers for each slot of a table: a time in microseconds, or NEVER.

    Rules read entries and overwrite them themselves; an entry begins with `open` and ends with `close`.
    """

    __slots__ = (
        "bucket",
        "counts",
        "expires_after_us",
        "few",
        "held",
        "pages",
        "regime",
        "table",
        "ticks",
        "whole_at",
    )

    def __init__(self, table: "KeyTable", expires_after_us: int | None, whole_at: int) -> None:
        self.table = table
        self.expires_after_us = expires_after_us
        self.whole_at = whole_at
        """The number of the event up to which the entries say all; later ones may be stamped, see `keep`."""
        self.few: dict[int, int] | None = {}
        """The entries by slot, as long as they are few."""
        self.pages = _NO_PAGES
        """The entries by page, if they are many; the last page is blank, and what NO_SLOT reads."""
        self.counts = _NO_COUNTS
        """How many entries each page holds."""
        self.held = 0
        self.ticks = _NO_TICKS
        """Of a node that is stamped: the event at which each slot's entry was last kept, where it was."""
        self.bucket: Bucket | None = None
        """The rules that must see every event of a slice in which something is held or, if the node's regime
        is BEGUN, in which it was cleared by the event before."""
        self.regime = Regime.SEEN
        """What an event does to the memory that wakes no rule of it, once rules sleep."""

    def open(self, key: object, slot: int, now_us: int, tick: int) -> int:
        """Begin to remember something for a key, and give its slot."""
        table = self.table
        if slot < 0:
            slot = table.slot = table.admit(key, tick, now_us)
        self.put(slot, now_us)
        return slot

    def put(self, slot: int, time_us: int) -> None:
        """Make a new entry at a slot of a live key."""
        few = self.few
        if few is not None and len(few) >= PAGED_FROM and len(few) * SPARSE_SHARE >= len(self.table.keys):
            self._to_pages(few)
            few = None
        if few is not None:
            few[slot] = time_us
            table = self.table
            table.weigh(ENTRY_BYTES)
            table.hold_sparsely(slot, self)
            if self.wakes_holders:
                table.wake(slot, self)
        else:
            self._put_in_page(slot, time_us)
        self.held += 1
        self.table.held[slot] += 1

    def close(self, slot: int) -> None:
        """Forget what is remembered for a slot."""
        if self.few is not None:
            del self.few[slot]
            self._drop_few((slot,))
        else:
            number = slot >> PAGE_BITS
            self.counts[number] -= 1
            if self.counts[number]:
                self.pages[number][slot & IN_PAGE] = NEVER
            else:
                self._give_page_back(number)
        self.held -= 1
        if not self.held:
            self._to_few()
        self.table.let_go((slot,))

    def keep(self, slot: int, time_us: int, tick: int) -> None:
        """Remember a time that is not the event's, or NEVER: it counts until the slice's next event."""
        before = self.at(slot)
        if time_us == NEVER:
            if before != NEVER:
                self.close(slot)
        elif before == NEVER:
            self.put(slot, time_us)
        elif self.few is not None:
            self.few[slot] = time_us
        else:
            self.pages[slot >> PAGE_BITS][slot & IN_PAGE] = time_us
        self._keep_tick(slot, tick)

    def restore(
        self,
        few: dict[int, int] | None,
        pages: "Mapping[int, tuple[array[int], int]]",
        ticks: dict[int, int],
        whole_at: int,
    ) -> None:
        """Take the entries that a column had before: by slot if they are few, else pages by their number.

        With each page comes how many entries it holds. That something is held the table knows already.
        """
        bucket = self.bucket
        if bucket is not None:
            self.unwatch()
        self.few, self.whole_at = few, whole_at
        table = self.table
        if ticks:
            self.ticks = ticks
            table.weigh(len(ticks) * TICK_BYTES)
        for slot in {**(few or {}), **ticks}:
            table.hold_sparsely(slot, self)
        if few is not None:
            self.held = len(few)
            table.weigh(len(few) * ENTRY_BYTES)
        else:
            table.dense.append(self)
            table.weigh(len(pages) * PAGE_BYTES)
            self.pages, self.counts = [_BLANK], []
            self.grow((len(table.keys) + IN_PAGE) >> PAGE_BITS)
            for number, (page, count) in pages.items():
                self.pages[number], self.counts[number] = page, count
                self.held += count
        if bucket is not None:
            self.watch(bucket)

    def grow(self, pages: int) -> None:
        """Take note that the table has come to have so many pages of slots."""
        if self.few is None:
            more = pages - len(self.counts)
            self.counts += [0] * more
            self.pages += [_BLANK] * more

    # -- a run of truth that begins by itself, see `Regime.BEGUN` -------------------------------------------

    def began(self, slot: int) -> int:
        """Give the time at which the run of truth up to now began, NEVER if the next event begins it."""
        time_us, table = self.at(slot), self.table
        # What was cleared may be of the key that had the slot before: the rules are awake all the same, and
        # begin the run of the new one at its first event.
        if time_us != NEVER or slot in self.ticks:
            return time_us
        return table.first_times[slot] if table.first_ticks[slot] > self.whole_at else NEVER

    def begin(self, slot: int, now_us: int) -> None:
        """Take note that an event begins the run."""
        self.put(slot, now_us)
        self.drop_tick(slot)

    def end(self, slot: int, tick: int) -> None:
        """Take note that an event is outside of any run; the slice's next event may begin one."""
        if self.at(slot) != NEVER:
            self.close(slot)
        if slot not in self.ticks and self.bucket is not None:
            self.table.wake(slot, self)
        self._keep_tick(slot, tick)

    @property
    def clocked(self) -> bool:
        """Whether the entries are read with the clock of the slice."""
        return self.regime is Regime.STAMPED or self.regime is Regime.BEGUN

    @property
    def begun(self) -> bool:
        """Whether the column remembers such runs."""
        return self.regime is Regime.BEGUN

    # -- rules that must see events for what is remembered --------------------------------------------------

    @property
    def wakes_holders(self) -> bool:
        """Whether slots that hold something have rules to wake."""
        return self.bucket is not None and not self.begun

    def watch(self, bucket: "Bucket") -> None:
        """Have rules see the events for which `bucket` is there."""
        self.bucket = bucket
        if self.few is None and not self.begun:
            self.table.watched.append(self)
        for slot in self._waking():
            self.table.wake(slot, self)

    def unwatch(self) -> None:
        """Undo `watch`."""
        if self.few is None and not self.begun:
            self.table.watched.remove(self)
        for slot in self._waking():
            self.table.rest(slot, self)
        self.bucket = None

    def _waking(self) -> Iterable[int]:
        """Give the slots that the table knows to have rules to wake."""
        return self.ticks if self.begun else self.few or ()

    # -- what is held ---------------------------------------------------------------------------------------

    def at(self, slot: int) -> int:
        """Give the entry of a slot, NEVER where there is none."""
        if self.few is not None:
            return self.few.get(slot, NEVER)
        return self.pages[slot >> PAGE_BITS][slot & IN_PAGE]

    def stamped_at(self, slot: int, now_us: int, tick: int) -> int:
        """Give the entry of the slot of event `tick` once a stamped node has seen that event."""
        return self.at(slot) if self.ticks.get(slot, self.whole_at) >= tick else now_us

    def slots(self) -> list[int]:
        """Give the slots that hold something, in the order in which they are saved."""
        if self.few is not None:
            return list(self.few)
        return [slot for number in range(len(self.counts)) for slot in self._slots_of(number)]

    def until_us(self, slot: int) -> int:
        """Give the last time at which what is remembered for a slot matters.

        NEVER where nothing is, FOREVER where it does not expire. The clock of the slice counts too.
        """
        table = self.table
        if self.begun:
            time_us = self.began(slot)
        elif self.clocked and self.ticks.get(slot, self.whole_at) < table.seen[slot]:
            time_us = table.times[slot]
        else:
            time_us = self.at(slot)
        if time_us == NEVER:
            return NEVER
        return FOREVER if self.expires_after_us is None else min(time_us + self.expires_after_us, FOREVER)

    def drop_expired(self, slot: int, now_us: int) -> None:
        """Drop the entry of a slot if it has expired, and what was kept for an event that has come since."""
        tick = self.ticks.get(slot)
        if tick is not None and tick < self.table.seen[slot]:
            self.drop_tick(slot)
        if self.expires_after_us is not None and NEVER < self.at(slot) < now_us - self.expires_after_us:
            self.close(slot)

    def drop_expired_of(self, number: int, now_us: int) -> None:
        """Drop the entries of a page that have expired. There are pages."""
        if self.expires_after_us is None or not self.counts[number]:
            return
        page, first = self.pages[number], number << PAGE_BITS
        edge_us = now_us - self.expires_after_us
        offsets = [offset for offset, time_us in enumerate(page) if NEVER < time_us < edge_us]
        self.counts[number] -= len(offsets)
        self.held -= len(offsets)
        if self.counts[number]:
            for offset in offsets:
                page[offset] = NEVER
        else:
            self._give_page_back(number)
        if not self.held:
            self._to_few()
        self.table.let_go([first + offset for offset in offsets])

    def drop_tick(self, slot: int) -> None:
        """Drop what was kept for the next event of a slice, if anything was."""
        if self.ticks.pop(slot, None) is None:
            return
        table = self.table
        table.weigh(-TICK_BYTES)
        if self.few is None or slot not in self.few:
            table.drop_sparsely(slot, self)
        if self.begun and self.bucket is not None:
            table.rest(slot, self)

    def _keep_tick(self, slot: int, tick: int) -> None:
        if self.ticks is _NO_TICKS:
            self.ticks = {}
        if slot not in self.ticks:
            self.table.weigh(TICK_BYTES)
            self.table.hold_sparsely(slot, self)
        self.ticks[slot] = tick

    def drop_all(self) -> None:
        """Let go of all that is remembered, for good."""
        table = self.table
        table.let_go(self.slots())
        for slot in list(self.ticks):
            self.drop_tick(slot)
        if self.few is None:
            table.weigh(-PAGE_BYTES * sum(map(bool, self.counts)))
            table.dense.remove(self)
        else:
            slots, self.few = list(self.few), {}
            self._drop_few(slots)

    def _slots_of(self, number: int) -> list[int]:
        if not self.counts[number]:
            return []
        first = number << PAGE_BITS
        return [first + offset for offset, time_us in enumerate(self.pages[number]) if time_us != NEVER]

    def _put_in_page(self, slot: int, time_us: int) -> None:
        number = slot >> PAGE_BITS
        if not self.counts[number]:
            self.pages[number] = _BLANK[:]
            self.table.weigh(PAGE_BYTES)
        self.pages[number][slot & IN_PAGE] = time_us
        self.counts[number] += 1

    def _to_pages(self, few: dict[int, int]) -> None:
        """Lay the entries out in pages: of the room of both, now they take less so."""
        self.few = None
        self._drop_few(few)
        self.table.dense.append(self)
        if self.wakes_holders:
            self.table.watched.append(self)
        self.pages, self.counts = [_BLANK], []
        self.grow((len(self.table.keys) + IN_PAGE) >> PAGE_BITS)
        for slot, time_us in few.items():
            self._put_in_page(slot, time_us)

    def _drop_few(self, slots: Collection[int]) -> None:
        """Take note that slots had entries in the dict, and have none there now."""
        table = self.table
        table.weigh(-ENTRY_BYTES * len(slots))
        for slot in slots:
            if slot not in self.ticks:
                table.drop_sparsely(slot, self)
            if self.wakes_holders:
                table.rest(slot, self)

    def _give_page_back(self, number: int) -> None:
        self.pages[number] = _BLANK
        self.table.weigh(-PAGE_BYTES)

    def _to_few(self) -> None:
        """Begin anew: nothing is held."""
        if self.few is None:
            self.table.dense.remove(self)
            if self.wakes_holders:
                self.table.watched.remove(self)
        self.few = {}
        self.pages, self.counts = _NO_PAGES, _NO_COUNTS
