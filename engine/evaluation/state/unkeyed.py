"""The memories of nodes without keys: a cell for each, or records with a single slot."""

from collections.abc import Callable, Iterable
from typing import Any, assert_never, cast

from engine.evaluation.key_sizes import KEY_BYTES_MAX
from engine.evaluation.memory import NEVER, Bucket, Kind, Recorded, Regime
from engine.evaluation.state.aggregates.panes import PANES_KEPT_MAX, Panes
from engine.evaluation.state.aggregates.times import Times, full_length
from engine.evaluation.state.aggregates.values import Values
from engine.evaluation.state.storage.columns import Column, ColumnTable
from engine.evaluation.state.storage.records import Records
from engine.evaluation.state.storage.sizes import ENTRY_BYTES, RECORD_BYTES, VALUE_BYTES, steps_bytes
from engine.evaluation.state.storage.slots.free_slots import FreeSlots
from engine.evaluation.state.storage.slots.starts import Starts
from engine.evaluation.state.storage.slots.triggering import TriggeringStores


class Globals:
    """The memories of nodes without keys: a numbered cell for each."""

    __slots__ = (
        "buckets",
        "cells",
        "free",
        "previous_us",
        "regimes",
        "starts",
        "ticks",
        "triggering",
        "unstarted",
    )

    def __init__(self, weigh: Callable[[int], None]) -> None:
        self.cells: list[int] = []
        self.ticks: list[int] = []
        """For each cell, the event up to which it is complete. Later events of a STAMPED node are missing."""
        self.free: list[int] = []
        self.previous_us = 0
        """The time of the previous event."""
        self.regimes: dict[int, Regime] = {}
        """The regime of each cell, once rules are indexed."""
        self.buckets: dict[int, Bucket] = {}
        """For each cell, the members that see every event while it holds a time or, if the cell is in
        `unstarted`, while it holds none."""
        self.unstarted: set[int] = set()
        """The cells that trigger while they hold no time."""
        self.starts = Starts(weigh)
        """The same as `ColumnTable.starts`, for the slot 0 of all events."""
        self.triggering = TriggeringStores()
        """The buckets that the next event meets, by cell and by record without keys."""

    def new_cell(self, tick: int) -> int:
        """Return the number of an empty cell."""
        if self.free:
            cell = self.free.pop()
            self.ticks[cell] = tick
            return cell
        self.cells.append(NEVER)
        self.ticks.append(tick)
        return len(self.cells) - 1

    def drop(self, cell: int) -> None:
        """Free a cell."""
        self.cells[cell] = NEVER
        self.regimes.pop(cell, None)
        self.free.append(cell)

    def past_us(self, cell: int, tick: int) -> int:
        """Return the time that a cell holds after event `tick`, or NEVER."""
        if self.regimes.get(cell) is Regime.STAMPED and self.ticks[cell] < tick:
            return self.previous_us
        return self.cells[cell]

    def watch(self, cell: int, bucket: Bucket, *, unstarted: bool) -> None:
        """Have events meet a bucket while a cell holds a time or, if `unstarted`, while it holds none."""
        self.buckets[cell] = bucket
        if unstarted:
            self.unstarted.add(cell)
        if (self.cells[cell] == NEVER) is unstarted:
            self.triggering.start(cell, bucket)

    def unwatch(self, cell: int) -> None:
        """Undo `watch`."""
        del self.buckets[cell]
        self.unstarted.discard(cell)
        self.triggering.stop(cell)

    def restore(self, cell: int, time_us: int) -> None:
        """Restore the time of a cell from a snapshot."""
        if time_us != NEVER:
            (self.set_idle if cell in self.unstarted else self.set_triggering)(cell, time_us)

    def set_triggering(self, cell: int, time_us: int) -> None:
        """Set a cell that triggers from now on."""
        self.cells[cell] = time_us
        if cell in self.buckets:
            self.triggering.start(cell, self.buckets[cell])

    def set_idle(self, cell: int, time_us: int) -> None:
        """Set a cell that triggers no longer."""
        self.cells[cell] = time_us
        self.triggering.stop(cell)


class _NotSparse:
    """What records without keys have in place of `SparseEntries`: the slot has no key to drop."""

    __slots__ = ()

    def add(self, slot: int, records: object) -> None:
        """Do nothing."""

    def drop(self, slot: int, records: object) -> None:
        """Do nothing."""


class Keyless:
    """What records without keys have in place of a table: a single slot, 0."""

    __slots__ = ("_globals", "free_slots", "held", "keys", "slot", "sparse", "weigh")

    def __init__(self, weigh: Callable[[int], None], globals_: Globals) -> None:
        self.weigh = weigh
        self._globals = globals_
        self.held = [0]
        self.keys = (None,)
        self.sparse = _NotSparse()
        self.free_slots = FreeSlots()
        self.slot = self.free_slots.take()

    def admit(self, key: object, tick: int, now_us: int) -> int:
        """Return the slot."""
        raise AssertionError((key, tick, now_us))

    def note_birth(self, records: object) -> None:
        """Do nothing: records have no runs."""

    def let_go(self, slots: Iterable[int]) -> None:
        """Do nothing."""

    def start_triggering(self, slot: int, records: Column) -> None:  # noqa: ARG002 -- as for a table
        """Have every event meet the bucket of records."""
        self._globals.triggering.start(records, records.bucket)

    def stop_triggering(self, slot: int, records: Column) -> None:  # noqa: ARG002 -- as for a table
        """Undo `start_triggering`."""
        self._globals.triggering.stop(records)


def new_records(recorded: Recorded, slots: ColumnTable | Keyless) -> Records[Any]:
    """Return empty records."""
    table = cast("ColumnTable", slots)
    match recorded.kind:
        case Kind.TIMES:
            return Times(table, recorded.window_us, recorded.most, recorded.needed)
        case Kind.VALUES:
            return Values(table, recorded.window_us, recorded.most, recorded.needed)
        case Kind.SUMS | Kind.MEANS:
            return Panes(table, recorded.window_us, counted=recorded.kind is Kind.MEANS)
        case _:
            assert_never(recorded.kind)


def most_bytes(recorded: Recorded) -> int:
    """Return the most that a record without keys may take, in bytes as they are estimated."""
    match recorded.kind:
        case Kind.TIMES:
            held = steps_bytes(full_length(recorded.most))
        case Kind.VALUES:
            held = recorded.most * (VALUE_BYTES + KEY_BYTES_MAX)
        case Kind.SUMS | Kind.MEANS:
            panes = 1 if recorded.window_us is None else PANES_KEPT_MAX
            held = RECORD_BYTES + (3 if recorded.kind is Kind.MEANS else 2) * steps_bytes(panes)
        case _:
            assert_never(recorded.kind)
    return ENTRY_BYTES + RECORD_BYTES + held
