"""The memories of temporal nodes as an event finds them, read without changing anything."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.evaluation.explanation.past.tallies import Past
from engine.evaluation.paths import Path
from engine.evaluation.state.aggregates.panes import PaneSums
from engine.evaluation.state.node_names import NodeName
from engine.evaluation.state.slices import State
from engine.evaluation.state.storage.records import Records
from engine.evaluation.times import FOREVER, NEVER
from engine.language.diagnostics import Entry, Refusal

ENTRIES_MAX: Final = 1_000_000
"""The most times, values and panes that are read at one event, which takes some hundred milliseconds."""

KEPT_BYTES: Final = 400
"""What a memory that is kept counts for besides its record."""


class Remembered:
    """The memories of the slices of one event, which comes after event `tick`."""

    def __init__(self, state: State, tick: int, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> None:
        self._state = state
        self._tick = tick
        self._fields, self._sent = fields, sent
        self._slots: dict[Path, int] = {}
        self._kept: dict[NodeName, Any] | None = None
        """What `keep` has read, by the names of the memories."""
        self._entries_left = ENTRIES_MAX

    def past_us(self, name: NodeName) -> int | None:
        """Return the time that a memory holds for the event's slice, or None."""
        if self._kept is not None:
            return self._kept[name]  # type: ignore[no-any-return]  # the memory is a time
        state = self._state
        store = state.store_of(name)
        assert not isinstance(store, Records), name
        slot, since_us = self._slot_of(name.path) if name.path else 0, self._since_us(name)
        time_us = state.globals.past_us(store, self._tick) if isinstance(store, int) else store.past_us(slot)
        if time_us != NEVER and state.traits.run_us_of(name.condition) is not None:
            time_us = state.starts_of(name.path).begun(slot, time_us, since_us)
        return time_us if since_us < time_us < FOREVER else None

    def past(self, name: NodeName) -> Past:
        """Return the record that a memory has for the event's slice. Raises Refusal 1400 after too many."""
        if self._kept is not None:
            return self._kept[name]  # type: ignore[no-any-return]  # the memory is a record
        store = self._state.store_of(name)
        assert isinstance(store, Records), name
        record = store.record(self._slot_of(name.path) if name.path else 0)
        if record is not None:
            self._entries_left -= len(record.panes if isinstance(record, PaneSums) else record)
            if self._entries_left < 0:
                said = f"more than {ENTRIES_MAX} times and values are remembered for this event"
                raise Refusal(Entry(1400, f"{said}, which is the limit; name one rule, or a smaller one"))
        return Past(record, self._since_us(name))

    def keep(self, names: Iterable[NodeName]) -> "Remembered":
        """Read the memories with these names now. Later events do not change what is given."""
        self._kept = self._kept or {}
        for name in names:
            self.keep_one(name)
        return self

    def keep_one(self, name: NodeName) -> int:
        """Read one memory now, too. Return about how many bytes what was read takes."""
        kept, self._kept = self._kept or {}, None
        store, size = self._state.store_of(name), KEPT_BYTES
        if isinstance(store, Records):
            record, since_us = self.past(name)
            if record is not None:
                size += store.bytes_of(record)
                record = store.copy_of(record)
            kept[name] = Past(record, since_us)
        else:
            kept[name] = self.past_us(name)
        self._kept = kept
        return size

    def has(self, names: Iterable[NodeName]) -> bool:
        """Return whether the memories with these names were kept."""
        return self._kept is not None and all(name in self._kept for name in names)

    def _since_us(self, name: NodeName) -> int:
        view = self._state.views.get(name)
        return NEVER if view is None else view.since_us

    def _slot_of(self, path: Path) -> int:
        slot = self._slots.get(path)
        if slot is None:
            slot = self._slots[path] = self._state.tables[path].slot_at(self._fields, self._sent)
        return slot
