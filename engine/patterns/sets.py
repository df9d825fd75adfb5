"""Many expressions searched for together, in few passes over a text.

Literals go together well: an automaton for a thousand of them has no more states than they have characters,
while a thousand `a.*b` together have more than any memory. So RE2's sets hold what is little more than
literals: for other expressions a literal that no match can do without (`appdata` of `users.[^.]+.appdata`).
The expression itself is tried only where that is found. One that has no such literal is tried on every text.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from engine.patterns.compiled_pattern import compiled_set

WEIGHT_MAX: Final = 18_000
"""Bytes of the literals in one set: it compiles in some 6 ms. A free case weighs half as much more."""

LONE_WEIGHT_MIN: Final = 2_000
"""An expression with so many bytes is a pass of its own anyway."""

RECENT_WEIGHT_MAX: Final = 800
"""So small a set is compiled anew for each expression that is added, in some 0.2 ms."""

GROWTH: Final = 4
"""A set is merged with newer ones once they weigh a quarter of it, so each expression is compiled rarely."""

SET_MEMORY_BYTES_MAX: Final = 16 * 1024 * 1024
"""What RE2 may use for one set. It takes what the texts demand, and starts afresh when that is used up."""


class PatternSets:
    """Expressions, and which of them may be found in a text.

    `compile_new` makes small sets of what is new, and merges them into larger ones. Called after
    each change it takes a fraction of a millisecond on average, and a search compiles nothing.
    """

    def __init__(self, memory_bytes_max: int = SET_MEMORY_BYTES_MAX) -> None:
        self._memory_bytes_max = memory_bytes_max
        self._entries: dict[str, _Entry] = {}
        """All, and those that were removed and are still in a set."""
        self._new: dict[str, _Entry] = {}
        self._sets: list[_Set] = []
        """The lightest last."""
        self._alone: dict[str, _Entry] = {}
        self.weight = 0
        """Bytes of the literals that are asked for together; the same whatever was there before."""

    def add(self, pattern: str, asked_for: str | None, *, is_whole: bool) -> None:
        """Add an expression that is not there.

        It is found only where `asked_for` is; None if there is no such thing. `is_whole`: it is found there.
        """
        entry = self._entries.get(pattern)
        if entry is None:
            entry = self._entries[pattern] = _Entry(pattern, asked_for, is_whole=is_whole)
            (self._alone if entry.is_alone else self._new)[pattern] = entry
        elif entry.home is not None:
            entry.is_removed = False
            entry.home.removed_weight -= entry.weight
        self.weight += 0 if entry.is_alone else entry.weight

    def remove(self, pattern: str) -> None:
        """Remove an expression that is there."""
        entry = self._entries[pattern]
        self.weight -= 0 if entry.is_alone else entry.weight
        home = entry.home
        if home is None:
            del self._entries[pattern], (self._alone if entry.is_alone else self._new)[pattern]
            return
        entry.is_removed = True
        home.removed_weight += entry.weight
        if 2 * home.removed_weight > home.weight:
            self._sets.remove(home)
            self._new |= {left.pattern: left for left in self._emptied(home)}

    def compile_new(self) -> None:
        """Compile what is new."""
        if not self._new:
            return
        gathered = list(self._new.values())
        self._new.clear()
        weight = sum(entry.weight for entry in gathered)
        while self._sets and self._sets[-1].mergeable(weight):
            gathered = [*self._emptied(self._sets.pop()), *gathered]
            weight = sum(entry.weight for entry in gathered)
        self._sets.extend(_Set(part, self._memory_bytes_max) for part in _parts(gathered))
        self._sets.sort(key=lambda one: -one.weight)

    def candidates(self, text: bytes) -> list[tuple[str, bool]]:
        """Give the expressions that may be found in the text, and for each whether it certainly is.

        Their order follows from earlier calls.
        """
        self.compile_new()
        found = [
            (entry.pattern, entry.is_whole)
            for candidates in self._sets
            for entry in candidates.matched(text)
            if not entry.is_removed
        ]
        found.extend((pattern, False) for pattern in self._alone)
        return found

    def _emptied(self, one: "_Set") -> Iterator["_Entry"]:
        """Give what is left of a set that is given up, and forget what was removed from it."""
        for entry in one.entries:
            entry.home = None
            if entry.is_removed:
                del self._entries[entry.pattern]
            else:
                yield entry


class _Entry:
    """One expression, and what it is asked for by."""

    __slots__ = ("asked_for", "home", "is_alone", "is_removed", "is_whole", "pattern", "weight")

    def __init__(self, pattern: str, asked_for: str | None, *, is_whole: bool) -> None:
        self.pattern = pattern
        self.asked_for = asked_for or ""
        self.is_whole = is_whole
        weight = len(self.asked_for.encode()) + 1
        self.weight = weight + weight // 2 if "(?" in self.asked_for else weight
        self.is_alone = asked_for is None or self.weight >= LONE_WEIGHT_MIN
        self.is_removed = False
        self.home: _Set | None = None


class _Set:
    """Some expressions that are asked for together."""

    def __init__(self, entries: list[_Entry], memory_bytes_max: int) -> None:
        self.entries = entries
        self.weight = sum(entry.weight for entry in entries)
        self.removed_weight = 0
        self._match = compiled_set([entry.asked_for for entry in entries], memory_bytes_max)
        assert self._match is not None, "no set is too heavy for its memory"
        for entry in entries:
            entry.home = self

    def mergeable(self, weight: int) -> bool:
        """Tell whether the set should be merged with newer expressions of that weight."""
        small_enough = self.weight <= max(RECENT_WEIGHT_MAX, GROWTH * weight)
        return small_enough and self.weight + weight <= WEIGHT_MAX

    def matched(self, text: bytes) -> list[_Entry]:
        """Give those whose literal is in the text."""
        assert self._match is not None
        numbers = self._match(text)
        assert numbers is not None, "no set runs out of its memory"
        return [self.entries[number] for number in numbers]


def _parts(entries: Iterable[_Entry]) -> Iterator[list[_Entry]]:
    """Give the entries in parts that are no heavier than a set may be."""
    part: list[_Entry] = []
    weight = 0
    for entry in entries:
        if part and weight + entry.weight > WEIGHT_MAX:
            yield part
            part, weight = [], 0
        part.append(entry)
        weight += entry.weight
    if part:
        yield part
