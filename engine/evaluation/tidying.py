"""Tidying a key table: what has expired is dropped, and its room given back, a little at a time.

Each piece of work is bounded, so that no event waits long, whatever expires at once. What is dropped depends
on the past alone, never on time or memory: a detector that is loaded goes on as the one that was saved.
"""

import sys
from typing import Final

from engine.evaluation.columns import PAGE_BITS
from engine.evaluation.tables import SHARDS, KeyTable
from engine.evaluation.temporal import NEVER

BLOCK_SLOTS: Final = 1 << 11
"""How many slots are looked over in one go for those that are longest unseen: some 1 ms."""

_SWEPT_AT_LEAST: Final = 1024
"""How many entries each tidying looks at, at the least: some 50 µs, 1 ms if all of them have expired."""

SHRUNK_FROM: Final = 1 << 15
"""So much room for keys is kept in any case."""

_PAGES_SHRUNK: Final = 16
_SHARDS_SHRUNK: Final = 32
_SHARD_BYTES_MIN: Final = 4096
_ENTRY_BYTES_MAX: Final = 150
"""How many shards each tidying looks at, and what an entry takes at the most before its shard is made anew:
deleting from a dict gives no room back."""


def tidy(table: KeyTable, now_us: int) -> bool:
    """Drop some of what has expired, more than was added since, and the keys that hold nothing.

    Tells whether there was so much of it that there will be more.
    """
    live = table.live
    credit = 2 * table.opened + _SWEPT_AT_LEAST
    table.opened = 0
    idle_rounds = len(table.columns)
    while credit > 0 and idle_rounds:
        table.turn = table.turn + 1 if table.turn + 1 < len(table.columns) else 0
        cost = table.columns[table.turn].sweep(now_us)
        idle_rounds = idle_rounds - 1 if cost == 1 else len(table.columns)
        credit -= cost
    if table.stamped:
        _tidy_clocks(table)
    free_idle(table, now_us)
    shrunk = _shrink(table)
    return shrunk or live - table.live > _SWEPT_AT_LEAST // 2


def free_idle(table: KeyTable, now_us: int) -> None:
    """Give back the slots that hold nothing any more."""
    edge_us = NEVER
    if table.stamped and None not in table.clocks:
        edge_us = now_us - max(window_us for window_us in table.clocks if window_us is not None)
    for slot in table.idle:
        if table.keys[slot] is None or table.held[slot]:
            continue
        if not table.stamped or table.times[slot] < edge_us:
            table.free(slot)
    table.idle.clear()
    if not table.live and 0 < len(table.keys) <= BLOCK_SLOTS:
        table.empty()


def forget(table: KeyTable, slot: int) -> None:
    """Drop all that is remembered for a slot; its slice begins anew."""
    for column in table.columns:
        if not table.held[slot]:
            break
        if column.at(slot) != NEVER:
            column.close(slot)
    table.free(slot)


def bloated(table: KeyTable) -> bool:
    """Whether there is much more room than keys."""
    return len(table.keys) > SHRUNK_FROM and len(table.keys) > 2 * table.live


def next_block(table: KeyTable, now_us: int) -> list[int]:
    """Give the slots of the next block that can still make a difference, and drop the others."""
    if table.scanned >= len(table.keys):
        table.scanned = 0
    first = table.scanned
    table.scanned += BLOCK_SLOTS
    slots = [
        slot for slot in range(first, min(table.scanned, len(table.keys))) if table.keys[slot] is not None
    ]
    for column in table.columns:
        column.expire(first, table.scanned, now_us)
    live = []
    for slot in slots:
        if table.held[slot] or _ticks_on(table, slot, now_us):
            live.append(slot)
        else:
            table.free(slot)
    return live


def _tidy_clocks(table: KeyTable) -> None:
    """Look over the next slots for those that only a clock has kept."""
    held, length = table.held, len(table.keys)
    left = min(_SWEPT_AT_LEAST, length)
    while left:
        # On to the beginning at once: the end may be moving away, and what has expired stands before it.
        first = table.ticked if table.ticked < length else 0
        until = min(first + left, length)
        table.idle += [slot for slot in range(first, until) if not held[slot]]
        table.ticked = until
        left -= until - first


def _shrink(table: KeyTable) -> bool:
    """Give back some of the room that is not needed any more, and tell whether there was that much."""
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
            return False
        del table.room[page], table.roomy[page], table.taken[first:]
        del table.keys[first:], table.seen[first:], table.held[first:]
        del table.times[first:], table.first_ticks[first:], table.first_times[first:]
    return True


def _ticks_on(table: KeyTable, slot: int, now_us: int) -> bool:
    """Tell whether the clock of a slice still makes a difference to any node."""
    for column in table.stamped:
        if column.begun:
            past_us = column.began(slot)
        else:
            kept = column.ticks.get(slot, column.whole_at) >= table.seen[slot]
            past_us = column.at(slot) if kept else table.times[slot]
        if past_us != NEVER and (
            column.expires_after_us is None or past_us >= now_us - column.expires_after_us
        ):
            return True
    return False
