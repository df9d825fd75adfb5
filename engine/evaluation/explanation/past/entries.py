"""What slices remember as one event finds it, read without changing anything."""

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, Final, NamedTuple

from engine.evaluation.paths import Path
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.slices import SEEN, Remembered, Slice
from engine.language.condition import Condition
from engine.language.diagnostics import Entry, Refusal

ENTRIES_MAX: Final = 1_000_000
"""The most times, values and sums that are read at one event, which takes some hundred milliseconds."""


class Before(NamedTuple):
    """What a memory had for the slice of an event before it."""

    entry: Any
    seen: int
    """The number of the last event of the slice."""


class Entries:
    """The entries of the slices of one event, which has a number."""

    def __init__(
        self, histories: Histories, number: int, fields: Mapping[str, Any], sent: Mapping[str, Any]
    ) -> None:
        self.number = number
        self._histories, self._fields, self._sent = histories, fields, sent
        self._slices: dict[Path, Slice] = {}
        self._kept: dict[Remembered, Before] | None = None
        self._left = ENTRIES_MAX

    def of(self, node: Condition, path: Path, birth: int) -> Before:
        """Return what a node reads. Raises Refusal 1400 after too many times, values and sums."""
        remembered = self._histories.of(node, path, birth)
        before = self._read(remembered) if self._kept is None else self._kept[remembered]
        if before.entry and remembered.memory.is_record:
            self._left -= remembered.memory.length(before.entry)
            if self._left < 0:
                said = f"more than {ENTRIES_MAX} times and values are remembered for this event"
                raise Refusal(Entry(1400, f"{said}, which is the limit; name one rule, or a smaller one"))
        return before

    def keep(self, memories: Iterable[Remembered]) -> None:
        """Copy the entries of these memories. Later events do not change what is given; there is no other."""
        kept = {one: self._read(one) for one in memories}
        self._kept = {one: Before(copy(entry), seen) for one, (entry, seen) in kept.items()}

    def _read(self, remembered: Remembered) -> Before:
        slices = remembered.slices
        slice_ = self._slices.get(slices.path)
        if slice_ is None:
            slice_ = self._slices[slices.path] = slices.at(self._fields, self._sent)
        return Before(slices.entry_in(slice_, remembered), slice_[SEEN])
