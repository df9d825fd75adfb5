"""Expiry of keys: a key has expired when every memory reads as if the key had never been seen.

A time before the window reads like NEVER, see `temporal.py`, so a key with windows expires by time alone. If
a memory without a window holds a time for the key, the key cannot expire until an event clears it.
"""

from engine.evaluation.memory import FOREVER, NEVER
from engine.evaluation.state.storage.columns import ColumnTable
from engine.evaluation.state.storage.pages import PAGE_BITS, PAGE_SLOTS


def until_us(table: ColumnTable, slot: int) -> int:
    """Return the last time at which the key of a slot has not expired.

    It is NEVER if nothing is remembered, and FOREVER if the key does not expire or the slot is free.
    """
    if not table.free_slots.taken[slot]:
        return FOREVER
    latest_us = NEVER
    for column in table.dense:
        if not column.clocked:
            latest_us = max(latest_us, column.until_us(slot))
    for store in table.sparse.at(slot):
        if not store.clocked:
            latest_us = max(latest_us, store.until_us(slot))
    return max(latest_us, _clocked_until_us(table, slot)) if table.stamped else latest_us


def _clocked_until_us(table: ColumnTable, slot: int) -> int:
    """Return the same for the columns that are read with the clock of the slice."""
    latest_us = NEVER
    clock_us = table.times[slot]
    for column in table.stamped:
        window_us = column.expires_after_us
        if window_us is not None and clock_us + window_us <= latest_us:
            break
        latest_us = max(latest_us, column.until_us(slot))
    return latest_us


def page_until_us(table: ColumnTable, number: int) -> list[int]:
    """Return `until_us` of each slot of a page, much faster than one by one."""
    first = number << PAGE_BITS
    slots = range(first, min(first + PAGE_SLOTS, len(table.keys)))
    latest_us = [NEVER] * len(slots)
    for column in table.dense:
        if column.clocked or not column.counts[number]:
            continue
        page, window_us = column.pages[number], column.expires_after_us
        pairs = zip(latest_us, page, strict=False)
        if window_us is None:
            latest_us = [latest if time_us == NEVER else FOREVER for latest, time_us in pairs]
        else:
            latest_us = [
                latest if time_us == NEVER else max(latest, min(time_us + window_us, FOREVER))
                for latest, time_us in pairs
            ]
    taken, sparse, stamped = table.free_slots.taken, table.sparse, table.stamped
    for offset, slot in enumerate(slots):
        if not taken[slot]:
            latest_us[offset] = FOREVER
        elif stamped or slot in sparse:
            latest_us[offset] = until_us(table, slot)
    return latest_us


def drop_expired(table: ColumnTable, number: int, now_us: int) -> None:
    """Drop the expired entries and keys of a page."""
    for column in table.dense[:]:
        column.drop_expired_of(number, now_us)
    first = number << PAGE_BITS
    last = min(first + PAGE_SLOTS, len(table.keys))
    if table.sparse:
        for slot in range(first, last):
            for store in table.sparse.at(slot):
                store.drop_expired(slot, now_us)
    held = table.held[first:last]
    if held.count(0) == table.free_slots.room[number]:
        # Every key of the page has an entry.
        return
    both = zip(table.free_slots.taken[first:last], held, strict=True)
    for slot in [slot for slot, (taken, entries) in enumerate(both, first) if taken and not entries]:
        if not table.stamped or has_expired(table, slot, now_us):
            table.free(slot)


def has_expired(table: ColumnTable, slot: int, now_us: int) -> bool:
    """Return whether the key of a slot has expired."""
    return until_us(table, slot) < now_us


def forget(table: ColumnTable, slot: int) -> None:
    """Drop a key and its entries in all columns. If the key returns, its slice begins anew."""
    for column in table.dense[:]:
        if column.at(slot) != NEVER:
            column.close(slot)
    for store in table.sparse.at(slot):
        if store.few is not None and slot in store.few:
            store.close(slot)
    assert not table.held[slot], "each entry of a slot is on a page or in the `few` of a column"
    table.free(slot)
