"""Tidying a key table: what has expired is dropped, and its room given back, a little at a time.

Each piece of work is bounded, so that no event waits long, whatever expires at once. Where it goes on follows
from the number of the event alone: a detector that is loaded goes on as the one that was saved.
"""

import sys
from typing import Final

from engine.evaluation.state.columns import PAGE_BITS, PAGE_SLOTS
from engine.evaluation.state.expiry import drop_expired, has_expired
from engine.evaluation.state.tables import SHARDS, KeyTable

_PAGE_STEP: Final = 0x9E3779B1
"""Pages are taken in the order of the multiples of this prime: one after another, they would be emptied at
the pace of the events."""

_EVERY: Final = 4
"""Every so-manieth time a page is tidied in any case, and else only where one look shows that it is worth it.
So twice as many keys are looked at as an event can add."""

_PAGES_AT_ONCE: Final = 2

SHRUNK_FROM: Final = 1 << 15
"""So much room for keys is kept in any case."""

_PAGES_SHRUNK: Final = 16
_SHARDS_SHRUNK: Final = 32
_SHARD_BYTES_MIN: Final = 4096
_ENTRY_BYTES_MAX: Final = 150
"""How many shards each tidying looks at, and what an entry takes at the most before its shard is made anew:
deleting from a dict gives no room back."""


def tidy(table: KeyTable, now_us: int, number: int) -> None:
    """Drop some of what has expired, more than was added since, and give room back.

    `number` is that of the tidying; one after another they come to every page.
    """
    pages = len(table.room)
    if not pages:
        return
    rounds, turn = divmod(number, _EVERY)
    page = (number if turn else rounds) * _PAGE_STEP % pages
    if turn and not _seems_expired(table, page, now_us):
        return
    for each in range(page, min(page + _PAGES_AT_ONCE, pages)):
        if drop_expired(table, each, now_us) < PAGE_SLOTS // 2:
            break
    _shrink(table)


def _seems_expired(table: KeyTable, page: int, now_us: int) -> bool:
    """Tell whether a page has expired, judged by one of its slots."""
    slot = min((page << PAGE_BITS) + PAGE_SLOTS // 2, len(table.keys) - 1)
    return bool(table.taken[slot]) and has_expired(table, slot, now_us)


def bloated(table: KeyTable) -> bool:
    """Whether there is much more room than keys."""
    return len(table.keys) > SHRUNK_FROM and len(table.keys) > 2 * table.live


def _shrink(table: KeyTable) -> None:
    """Give back some of the room that is not needed any more."""
    for _ in range(_SHARDS_SHRUNK):
        table.shrunk = (table.shrunk + 1) % SHARDS
        shard = table.shards[table.shrunk]
        if sys.getsizeof(shard) > _SHARD_BYTES_MIN + _ENTRY_BYTES_MAX * len(shard):
            # The dict itself stays: a new one would lie in memory that is about to be given back.
            entries = list(shard.items())
            shard.clear()
            shard.update(entries)
    for _ in range(_PAGES_SHRUNK):
        page = (len(table.keys) - 1) >> PAGE_BITS
        first = page << PAGE_BITS
        if page < 0 or table.room[page] < len(table.keys) - first:
            return
        del table.room[page], table.roomy[page], table.taken[first:]
        del table.keys[first:], table.seen[first:], table.held[first:]
        del table.times[first:], table.first_ticks[first:], table.first_times[first:]
