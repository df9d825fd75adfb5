"""What slices remember as one event finds it, read without changing anything."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from engine.evaluation.slices.slices import SEEN, Remembered, Slice, Slices
from engine.language.diagnostics import Entry, Refusal

ENTRIES_MAX: Final = 1_000_000
"""The most times, values and sums that are read at one event, which takes some hundred milliseconds."""


class Before(NamedTuple):
    """What a memory had for the slice of an event before it."""

    entry: Any
    seen: int
    """The stamp of the last event of the slice."""


class Entries:
    """The entries of the slices of one event, which has a number."""

    def __init__(self, number: int, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> None:
        self.number = number
        self._fields, self._sent = fields, sent
        self._slices: dict[Slices, Slice] = {}
        self._kept: dict[Remembered, Before] = {}
        self._left = ENTRIES_MAX

    def of(self, remembered: Remembered) -> Before:
        """Return what a memory had. Raises Refusal 1400 after too many times, values and sums."""
        before = self._kept.get(remembered) or self._read(remembered)
        if before.entry and remembered.memory.is_record:
            self._left -= remembered.memory.length(before.entry)
            if self._left < 0:
                said = f"more than {ENTRIES_MAX} times and values are remembered for this event"
                raise Refusal(Entry(1400, f"{said}, which is the limit; name one rule, or a smaller one"))
        return before

    def keep(self, memories: Iterable[Remembered]) -> None:
        """Copy what these memories have now. Later events do not change what is given."""
        for one in memories:
            entry, seen = self._read(one)
            self._kept[one] = Before(one.memory.copy(entry) if entry else entry, seen)

    def _read(self, remembered: Remembered) -> Before:
        slices = remembered.slices
        slice_ = self._slices.get(slices)
        if slice_ is None:
            slice_ = self._slices[slices] = slices.at(self._fields, self._sent)
        return Before(slices.entry_in(slice_, remembered), slice_[SEEN])
