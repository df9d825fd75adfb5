"""Completes memories when rules cease to be indexed: every event updates every memory from then on.

What was read from a clock is written, and names that have joined another have a memory of their own again.
"""

from engine.evaluation.memory import FOREVER, NEVER, Regime
from engine.evaluation.state.node_names import Joined, NodeName
from engine.evaluation.state.slices import State
from engine.evaluation.state.storage.columns import Column
from engine.evaluation.state.storage.records import Records


def entries_to_write(state: State) -> int:
    """Return the number of entries that `fuse` may read and write."""
    shared = [store for name in state.joined if not isinstance(store := state.store_of(name), int)]
    clocked = [column for table in state.tables.values() for column in table.stamped]
    return sum(
        store.held if isinstance(store, Records) else len(store.table.keys) for store in (*shared, *clocked)
    )


def fuse(state: State, tick: int, now_us: int) -> None:
    """Have every event after `tick` update every memory. Undoes `State.become_indexed`."""
    globals_ = state.globals
    for cell, regime in globals_.regimes.items():
        if regime is Regime.STAMPED and globals_.ticks[cell] < tick:
            globals_.cells[cell] = globals_.previous_us
    for table in state.tables.values():
        if table.stamped:
            for column in table.stamped[:]:
                _complete(column)
            state.free_expired(table, range(len(table.keys)), now_us)
    joined = dict(state.joined)
    for name, other in joined.items():
        _part(state, name, other, tick, now_us)
    state.joined.clear()
    state.readers.clear()
    inner = [name for names in state.inner.values() for name in names]
    state.inner.clear()
    state.cease_indexed()
    for name in (*(other.name for other in joined.values()), *inner):
        state.release(name, now_us)
    state.eviction.renew()


def _complete(column: Column) -> None:
    """Write the times that are read from the clock of the slices. From now on, the clock is not read."""
    table = column.table
    for slot, taken in enumerate(table.free_slots.taken):
        if taken:
            column.keep(slot, column.past_us(slot), table.seen[slot])
    for slot in list(column.ticks):
        column.drop_tick(slot)
    table.remove_clock(column)
    column.regime = Regime.SEEN


def _part(state: State, name: NodeName, joined: Joined, tick: int, now_us: int) -> None:
    """Give a name that has joined another a memory of its own, which reads the same."""
    shared = state.stores[joined.name]
    runs = state.traits.run_us_of(name.condition) is not None
    if isinstance(shared, Records):
        own = state.stores[name] = state.new_store(name, tick)
        assert isinstance(own, Records), name
        own.take_over(shared, joined.since_us, now_us)
        return
    if not isinstance(shared, Column):
        cell = state.stores[name] = state.globals.new_cell(tick)
        time_us = state.globals.cells[shared]
        if runs and time_us != NEVER:
            time_us = state.globals.starts.begun(0, time_us, joined.since_us)
        if joined.since_us < time_us:
            state.globals.cells[cell] = time_us
        return
    own = state.stores[name] = Column(shared.table, shared.expires_after_us, tick)
    own.table.columns.append(own)
    # What is not read is not copied: a key is live no longer than it would have been.
    edge_us = NEVER if own.expires_after_us is None else now_us - own.expires_after_us
    for slot in shared.slots():
        time_us = shared.at(slot)
        if runs:
            time_us = own.table.starts.begun(slot, time_us, joined.since_us)
        if joined.since_us < time_us >= edge_us and time_us != FOREVER:
            own.put(slot, time_us)
