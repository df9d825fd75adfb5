"""Expiry of keys in steps: drops expired keys and entries, and frees their memory.

Each step is bounded, so that no event waits long, however much expires at once. The next step depends only on
the number of the event, so a restored detector continues exactly like the one that was saved.
"""

from typing import Final

from engine.evaluation.state.removal.expiry import drop_expired, has_expired
from engine.evaluation.state.storage.columns import ColumnTable
from engine.evaluation.state.storage.pages import PAGE_BITS, PAGE_SLOTS

_PAGE_STEP: Final = 0x9E3779B1
"""Pages are visited in the order of the multiples of this prime. In sequence, a visit would follow the slots
in the order of their events, and free pages only at the rate of the events."""

_EVERY: Final = 4
"""Every fourth call visits a page in any case, the others only if a sample slot has expired. So even without
samples, expiry visits more keys than events can add."""

SHRUNK_FROM: Final = 1 << 15
"""The table does not shrink below this many slots."""

_PAGES_DROPPED: Final = 8


def expire_some(table: ColumnTable, now_us: int, number: int) -> None:
    """Drop expired keys, more than events can have added since the last call, and free their memory.

    `number` counts the calls. Successive numbers visit every page.
    """
    pages = len(table.free_slots.room)
    if not pages:
        return
    rounds, turn = divmod(number, _EVERY)
    page = (number if turn else rounds) * _PAGE_STEP % pages
    if turn and not _seems_expired(table, page, now_us):
        return
    drop_expired(table, page, now_us)
    _drop_free_pages(table)


def _seems_expired(table: ColumnTable, page: int, now_us: int) -> bool:
    """Return whether a sample slot of a page has expired."""
    slot = min((page << PAGE_BITS) + PAGE_SLOTS // 2, len(table.keys) - 1)
    return bool(table.free_slots.taken[slot]) and has_expired(table, slot, now_us)


def bloated(table: ColumnTable) -> bool:
    """Return whether there are many more slots than keys."""
    return len(table.keys) > SHRUNK_FROM and len(table.keys) > 2 * table.live


def _drop_free_pages(table: ColumnTable) -> None:
    """Drop some of the last pages, if they are free."""
    for _ in range(_PAGES_DROPPED):
        page = (len(table.keys) - 1) >> PAGE_BITS
        first = page << PAGE_BITS
        if page < 0 or table.free_slots.room[page] < len(table.keys) - first:
            return
        table.free_slots.drop_page(page)
        del table.keys[first:], table.seen[first:], table.held[first:]
        del table.times[first:], table.first_ticks[first:], table.first_times[first:]
