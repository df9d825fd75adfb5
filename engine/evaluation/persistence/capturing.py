"""Copies a detector's state between two events, so that a thread can pack it while the detector goes on.

Arrays and dicts that events change in place are copied. Immutable objects (rules, conditions, names) are
shared.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from engine.evaluation.facts.values import Event
from engine.evaluation.kernel.rule_set import RuleSet
from engine.evaluation.paths import Path
from engine.evaluation.persistence.figures import Figures
from engine.evaluation.rule_book.shadows import Shadows
from engine.evaluation.rule_book.verdicts import Verdicts
from engine.evaluation.rules import LiveRule, Rule
from engine.evaluation.state.joining import Joining
from engine.evaluation.state.node_names import Joined, NodeName
from engine.evaluation.state.slices import State
from engine.evaluation.state.storage.columns import Column, ColumnTable
from engine.evaluation.state.storage.pages import NO_SLOT
from engine.evaluation.state.storage.records import Records
from engine.evaluation.state.storage.slots.starts import NO_BIRTH
from engine.evaluation.state.storage.tables import Key
from engine.evaluation.times import NEVER

T = TypeVar("T")


class Saved(Protocol):
    """The parts of a Detector that a snapshot holds."""

    state: State
    rule_set: RuleSet
    clock_us: int | None
    events_seen: int
    priority_highest: int
    live: dict[str, LiveRule]
    verdicts: Verdicts
    shadows: Shadows

    def install(self, rule: Rule, birth: int) -> None:
        """Add a rule whose history began at `birth`."""


class CapturedTable(NamedTuple):
    """A copy of a ColumnTable."""

    path: Path
    keys: list[Key | None]
    held: "array[int]"
    seen: "array[int]"
    times: "array[int]"
    first_ticks: "array[int]"
    first_times: "array[int]"


class CapturedCell(NamedTuple):
    """The memory of an unkeyed node: a time, and the event up to which it is complete."""

    time_us: int
    tick: int


class CapturedColumn(NamedTuple):
    """A copy of a Column: its `few`, or its nonempty pages by number."""

    few: Mapping[int, int] | None
    pages: Mapping[int, bytes]
    counts: Mapping[int, int]
    complete_at: int
    ticks: Mapping[int, int]


Memory: TypeAlias = CapturedCell | CapturedColumn | Records[Any]


class CapturedStarts(NamedTuple):
    """A copy of the Starts of a path."""

    path: Path
    birth: int
    window_us: int
    times: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Captured:
    """A copy of everything that a snapshot of a detector contains."""

    marks: Mapping[str, Any]
    rules: list[tuple[Rule, int]]
    """Each rule with the birth of its history, in order of priority."""
    tables: list[CapturedTable]
    memories: list[tuple[NodeName, Memory]]
    joined: list[tuple[NodeName, Joined]]
    nested: bool
    """Whether a shared memory has memories inside it."""
    newborn: list[tuple[NodeName, int]]
    joining: list[Joining]
    starts: list[CapturedStarts]
    figures: Figures | None = None
    """What was counted and measured; only snapshots have it."""


_NOTHING: Mapping[int, Any] = {}
_NO_VARS: Mapping[str, Any] = {}


Slots: TypeAlias = Mapping[int, int]
"""Slots that are copied, each with its slot in the copy."""


def capture(detector: Saved, events: Sequence[Event] | None = None) -> Captured:
    """Copy a detector between two events. A million keys take about 20 ms.

    With `events`, only the keys of these events are copied.
    """
    state = detector.state
    cells, ticks = state.globals.cells, state.globals.ticks
    slots = {} if events is None else {path: _slots_of(table, events) for path, table in state.tables.items()}
    return Captured(
        marks={
            "clock_us": detector.clock_us,
            "events_seen": detector.events_seen,
            "priority_highest": detector.priority_highest,
            "indexed": state.indexed,
            "previous_us": state.globals.previous_us,
            **(detector.shadows.dump() if detector.shadows else {}),
        },
        rules=[(live.rule, live.birth) for live in detector.live.values()],
        tables=[_table(table, slots.get(path)) for path, table in state.tables.items()],
        memories=[
            (
                name,
                CapturedCell(cells[store], ticks[store])
                if isinstance(store, int)
                else _column(store, slots.get(name.path)),
            )
            for name, store in state.stores.items()
        ],
        joined=list(state.joined.items()),
        nested=bool(state.inner),
        newborn=list(detector.rule_set.joins.newborn.items()),
        joining=_joining(detector.rule_set.joins.waiting, anew=events is not None),
        starts=[
            CapturedStarts(path, starts.birth, starts.window_us, _at(starts.times, slots.get(path)))
            for path in ((), *state.tables)
            if (starts := state.starts_of(path)).birth != NO_BIRTH
        ],
    )


def _joining(waiting: list[Joining], *, anew: bool) -> list[Joining]:
    """Return the memories that wait to join. If slots have new numbers, all slots are compared `anew`."""
    if not anew:
        return waiting
    return [each if each.same is None else each._replace(same=0) for each in waiting]


def _slots_of(table: ColumnTable, events: Sequence[Event]) -> Slots:
    """Return the slots of the keys of some events."""
    found = {table.slot_at(fields, sent or _NO_VARS): None for fields, _, sent in events}
    return {slot: place for place, slot in enumerate(slot for slot in found if slot != NO_SLOT)}


def _table(table: ColumnTable, slots: Slots | None) -> CapturedTable:
    def numbers(column: "array[int]") -> "array[int]":
        # Without clocks, some columns are empty.
        return column[:] if slots is None or not column else array("q", [column[slot] for slot in slots])

    return CapturedTable(
        path=table.path,
        keys=table.keys[:] if slots is None else [table.keys[slot] for slot in slots],
        held=numbers(table.held),
        seen=numbers(table.seen),
        times=numbers(table.times),
        first_ticks=numbers(table.first_ticks),
        first_times=numbers(table.first_times),
    )


def _column(column: Column, slots: Slots | None) -> CapturedColumn | Records[Any]:
    if isinstance(column, Records):
        return column.copied(slots)
    ticks = _at(column.ticks, slots) if column.ticks else _NOTHING
    if slots is not None:
        few = {new: column.at(slot) for slot, new in slots.items() if column.at(slot) != NEVER}
        return CapturedColumn(few, _NOTHING, _NOTHING, column.complete_at, ticks)
    counts = {number: count for number, count in enumerate(column.counts) if count}
    return CapturedColumn(
        few=None if column.few is None else column.few.copy(),
        pages={number: column.pages[number].tobytes() for number in counts},
        counts=counts,
        complete_at=column.complete_at,
        ticks=ticks,
    )


def _at(entries: dict[int, T], slots: Slots | None) -> dict[int, T]:
    """Return a copy of entries by slot, all of them or those of some slots."""
    if slots is None:
        return entries.copy()
    return {new: entries[slot] for slot, new in slots.items() if slot in entries}
