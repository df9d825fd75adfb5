"""The memory of one temporal node by key: a time for each slot of a key table, and what events do to it."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from engine.evaluation.memory import FOREVER, NEVER, Bucket, Regime
from engine.evaluation.state.storage.pages import IN_PAGE, NO_SLOT, PAGE_BITS
from engine.evaluation.state.storage.sizes import ENTRY_BYTES, PAGE_BYTES, TICK_BYTES
from engine.evaluation.state.storage.slot_times import SlotTimes
from engine.evaluation.state.storage.tables import KeyTable

if TYPE_CHECKING:
    from array import array

PAGED_FROM: Final = 512
"""Up to this many entries, a column is a dict."""

SPARSE_SHARE: Final = 16
"""With more entries, it stays a dict while fewer than one slot of this many has one. An entry of a dict takes
as much memory as this many of an array."""

_NO_TICKS: Final[dict[int, int]] = {}
"""Columns without any share it, because there may be a hundred thousand of them."""


class Column(SlotTimes):
    """The memory of one node for each slot of a table: a time in microseconds, or NEVER.

    Generated functions read and overwrite entries directly. They add them by `open` and remove them by
    `close`.
    """

    __slots__ = ("bucket", "complete_at", "expires_after_us", "regime", "ticks")

    table: "KeyTable[Column]"

    needed = 1
    """How much a slot must hold for its events to meet the bucket; see `Entries`."""

    def __init__(self, table: "KeyTable[Column]", expires_after_us: int | None, complete_at: int) -> None:
        super().__init__(table)
        self.expires_after_us = expires_after_us
        self.complete_at = complete_at
        """The event up to which the entries are complete. A slot in `ticks` is complete up to a later one."""
        self.ticks = _NO_TICKS
        """If the column is clocked: by slot, the last event that changed the memory otherwise than its regime
        says. The entry is complete up to that event."""
        self.bucket: Bucket | None = None
        """The members that see every event of a slice that holds a time or, if the regime is BEGUN, whose
        time the previous event removed."""
        self.regime = Regime.SEEN
        """What an event does to the memory if it meets no trigger of it, once rules are indexed."""

    def open(self, key: object, slot: int, now_us: int, tick: int) -> int:
        """Add an entry for a key, which is admitted if it is not live, and give its slot."""
        table = self.table
        if slot < 0:
            slot = table.slot = table.admit(key, tick, now_us)
        self.put(slot, now_us)
        return slot

    def put(self, slot: int, time_us: int) -> None:
        """Add an entry at the slot of a live key."""
        few = self.few
        if few is not None and len(few) >= PAGED_FROM and len(few) * SPARSE_SHARE >= len(self.table.keys):
            self._to_pages(few)
            few = None
        if few is not None:
            few[slot] = time_us
            self.weigh(ENTRY_BYTES)
            self.table.sparse.add(slot, self)
            if self.bucket is not None and self.needed == 1 and not self.begun:
                self.table.start_triggering(slot, self)
        else:
            self._put_in_page(slot, time_us)
        self.held += 1
        self.table.held[slot] += 1

    def close(self, slot: int) -> None:
        """Remove the entry of a slot."""
        if self.few is not None:
            del self.few[slot]
            self._drop_few(slot)
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
        self.table.held[slot] -= 1

    def keep(self, slot: int, time_us: int, tick: int) -> None:
        """Set the entry to a time other than the event's, or NEVER, until the slice's next event."""
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
        complete_at: int,
    ) -> None:
        """Restore the entries: by slot if they are few, otherwise pages by number, each with its count.

        The column must be empty, and the table already have the numbers of columns with an entry. If it is
        watched, `watch` must follow.
        """
        self.few, self.complete_at = few, complete_at
        table = self.table
        table.note_birth(self)
        if ticks:
            self.ticks = ticks
            self.weigh(len(ticks) * TICK_BYTES)
        for slot in {**(few or {}), **ticks}:
            table.sparse.add(slot, self)
        if few is not None:
            self.held = len(few)
            self.weigh(len(few) * ENTRY_BYTES)
        else:
            table.dense.append(self)
            self.weigh(len(pages) * PAGE_BYTES)
            self._begin_pages()
            for number, (page, count) in pages.items():
                self.pages[number], self.counts[number] = page, count
                self.held += count

    # -- runs that start without an update, see `Regime.BEGUN` ----------------------------------------------

    def began(self, slot: int) -> int:
        """Return the time at which the current run began, or NEVER if the next event begins one."""
        time_us, table = self.at(slot), self.table
        # An entry in `ticks` may stem from the slot's previous key. The bucket is then met all the same, and
        # the first event of the new key begins its run.
        if time_us != NEVER or slot in self.ticks:
            return time_us
        return table.first_times[slot] if table.first_ticks[slot] > self.complete_at else NEVER

    def begin(self, slot: int, now_us: int) -> None:
        """Record that an event begins a run."""
        self.put(slot, now_us)
        self.drop_tick(slot)

    def end(self, slot: int, tick: int) -> None:
        """Record that an event belongs to no run. The slice's next event may begin one."""
        if self.at(slot) != NEVER:
            self.close(slot)
        if slot not in self.ticks and self.bucket is not None:
            self.table.start_triggering(slot, self)
        self._keep_tick(slot, tick)

    @property
    def clocked(self) -> bool:
        """Whether the entries are read together with the clock of the slice."""
        return self.regime is Regime.STAMPED or self.regime is Regime.BEGUN

    @property
    def begun(self) -> bool:
        """Whether the regime is BEGUN."""
        return self.regime is Regime.BEGUN

    # -- events that meet the bucket ------------------------------------------------------------------------

    def watch(self, bucket: Bucket) -> None:
        """Have events meet a bucket; see `bucket`."""
        self.bucket = bucket
        if self.few is None and not self.begun:
            self.table.watched.append(self)
        for slot in self._triggering_slots():
            self.table.start_triggering(slot, self)

    def unwatch(self) -> None:
        """Undo `watch`."""
        if self.few is None and not self.begun:
            self.table.watched.remove(self)
        for slot in self._triggering_slots():
            self.table.stop_triggering(slot, self)
        self.bucket = None

    def triggers_at(self, slot: int) -> bool:
        """Return whether the events of a slot meet the bucket, if the column is paged."""
        return self.at(slot) != NEVER

    def _triggering_slots(self) -> Iterable[int]:
        """Return the slots for which the table's `triggering` has this column."""
        return self.ticks if self.begun else self.few or ()

    # -- entries --------------------------------------------------------------------------------------------

    def stamped_at(self, slot: int, now_us: int, tick: int) -> int:
        """Return the time that a STAMPED memory has for a slot after event `tick` of its slice."""
        return self.at(slot) if self.ticks.get(slot, self.complete_at) >= tick else now_us

    def past_us(self, slot: int) -> int:
        """Return the time that the memory of a slot has after the slice's last event, or NEVER."""
        if slot == NO_SLOT:
            return NEVER
        if self.begun:
            return self.began(slot)
        if self.clocked and self.ticks.get(slot, self.complete_at) < self.table.seen[slot]:
            return self.table.times[slot]
        return self.at(slot)

    def until_us(self, slot: int) -> int:
        """Return the last time at which the memory of a slot has not expired.

        It is NEVER without a remembered time, and FOREVER without expiry.
        """
        time_us = self.past_us(slot)
        if time_us == NEVER:
            return NEVER
        return FOREVER if self.expires_after_us is None else min(time_us + self.expires_after_us, FOREVER)

    def drop_expired(self, slot: int, now_us: int) -> None:
        """Drop the entry of a slot if it has expired, and its `ticks` if the slice has had a later event."""
        tick = self.ticks.get(slot)
        if tick is not None and tick < self.table.seen[slot]:
            self.drop_tick(slot)
        if self.expires_after_us is not None and NEVER < self.at(slot) < now_us - self.expires_after_us:
            self.close(slot)

    def drop_expired_of(self, number: int, now_us: int) -> None:
        """Drop the expired entries of a page. The column must be paged."""
        if self.expires_after_us is None or not self.counts[number]:
            return
        page, first = self.pages[number], number << PAGE_BITS
        edge_us = now_us - self.expires_after_us
        offsets = [offset for offset, time_us in enumerate(page) if NEVER < time_us < edge_us]
        slots = [first + offset for offset in offsets]
        self._expire(slots)
        self.counts[number] -= len(offsets)
        self.held -= len(offsets)
        if self.counts[number]:
            for offset in offsets:
                page[offset] = NEVER
        else:
            self._give_page_back(number)
        if not self.held:
            self._to_few()
        self.table.let_go(slots)

    def _expire(self, slots: list[int]) -> None:
        """Drop everything else that is kept for slots whose entries are about to be dropped."""

    def drop_tick(self, slot: int) -> None:
        """Drop a slot from `ticks`, if it is there."""
        if self.ticks.pop(slot, None) is None:
            return
        table = self.table
        self.weigh(-TICK_BYTES)
        if self.few is None or slot not in self.few:
            table.sparse.drop(slot, self)
        if self.begun and self.bucket is not None:
            table.stop_triggering(slot, self)

    def _keep_tick(self, slot: int, tick: int) -> None:
        if self.ticks is _NO_TICKS:
            self.ticks = {}
        if slot not in self.ticks:
            self.weigh(TICK_BYTES)
            self.table.sparse.add(slot, self)
        self.ticks[slot] = tick

    def drop_until(self, time_us: int, tick: int) -> None:
        """Drop what is remembered from up to a time. Events up to that time have numbers up to `tick`."""
        for slot in self.slots():
            if self.at(slot) <= time_us:
                self.close(slot)
        if self.clocked:
            for slot in [slot for slot, kept in self.ticks.items() if kept <= tick]:
                self.drop_tick(slot)
            self.complete_at = max(self.complete_at, tick)
            self.table.note_birth(self)

    def drop_all(self) -> None:
        """Drop all entries, when the column itself is dropped."""
        table = self.table
        table.let_go(self.slots())
        for slot in list(self.ticks):
            self.drop_tick(slot)
        if self.few is None:
            self.weigh(-PAGE_BYTES * sum(map(bool, self.counts)))
            table.dense.remove(self)
        else:
            slots, self.few = list(self.few), {}
            for slot in slots:
                self._drop_few(slot)

    def _to_pages(self, few: dict[int, int]) -> None:
        """Move the entries to pages, which now take less memory."""
        for slot in few:
            self._drop_few(slot)
        self.table.dense.append(self)
        if self.bucket is not None and not self.begun:
            self.table.watched.append(self)
        self._begin_pages()
        for slot, time_us in few.items():
            self._put_in_page(slot, time_us)

    def _drop_few(self, slot: int) -> None:
        """Record that a slot has lost its entry in the dict."""
        self.weigh(-ENTRY_BYTES)
        if slot not in self.ticks:
            self.table.sparse.drop(slot, self)
        if self.bucket is not None and self.needed == 1 and not self.begun:
            self.table.stop_triggering(slot, self)

    def _to_few(self) -> None:
        """Make an empty column a dict."""
        if self.few is None:
            self.table.dense.remove(self)
            if self.bucket is not None and not self.begun:
                self.table.watched.remove(self)
        self._begin_few()


ColumnTable = KeyTable[Column]
"""A table and its columns."""
