"""Searches for many expressions together, in few passes over a text.

An automaton for a thousand literals has no more states than they have characters. One for a thousand
expressions such as `a.*b` has more than fit into any memory. So RE2's sets contain only literals and simple
expressions. Any other expression is represented by a literal that each of its matches contains (`appdata` for
`users.[^.]+.appdata`), and is tried only on texts with this literal. An expression without such a literal is
tried on every text.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from engine.patterns.compiled_pattern import compiled_set

WEIGHT_MAX: Final = 18_000
"""The most bytes of literals in one set, which compiles in about 6 ms. Ignoring case adds half the weight."""

LONE_WEIGHT_MIN: Final = 2_000
"""An expression of at least this weight is in no set: it is tried by itself on every text."""

RECENT_WEIGHT_MAX: Final = 800
"""A set up to this weight is compiled anew for each expression that is added, in about 0.2 ms."""

GROWTH: Final = 4
"""A set is merged with newer ones when they reach a quarter of its weight, so recompilation is rare."""

SET_MEMORY_BYTES_MAX: Final = 16 * 1024 * 1024
"""RE2's memory for one set. RE2 takes memory as texts need it, and clears its states when it is used up."""


class PatternSets:
    """Finds the expressions that may match a text.

    `compile_new` compiles new expressions into small sets, and merges these into larger ones. If it is called
    after each change, it takes a fraction of a millisecond on average, and a search compiles nothing.
    """

    def __init__(self, memory_bytes_max: int = SET_MEMORY_BYTES_MAX) -> None:
        self._memory_bytes_max = memory_bytes_max
        self._entries: dict[str, _Entry] = {}
        """All expressions, and those that were removed but are still in a set."""
        self._new: dict[str, _Entry] = {}
        self._sets: list[_Set] = []
        """The sets by weight, the lightest last."""
        self._alone: dict[str, _Entry] = {}
        self.weight = 0
        """The weight of the expressions in sets. It does not depend on the history of changes."""

    def add(self, pattern: str, asked_for: str | None, *, is_whole: bool) -> None:
        """Add a new expression.

        It matches only if `asked_for` does, which may be None. If `is_whole`, it then surely matches.
        """
        entry = self._entries.get(pattern)
        if entry is None:
            entry = self._entries[pattern] = _Entry(pattern, asked_for, is_whole=is_whole)
            (self._alone if entry.is_alone else self._new)[pattern] = entry
        else:
            assert entry.home is not None, "an expression outside of sets is forgotten when it is removed"
            entry.is_removed = False
            entry.home.removed_weight -= entry.weight
        self.weight += 0 if entry.is_alone else entry.weight

    def remove(self, pattern: str) -> None:
        """Remove an expression."""
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
        """Compile the new expressions."""
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
        """Return the expressions that may match the text, each with whether it surely does.

        Their order depends on earlier calls.
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
        """Yield the remaining entries of a set that is dissolved, and forget those that were removed."""
        for entry in one.entries:
            entry.home = None
            if entry.is_removed:
                del self._entries[entry.pattern]
            else:
                yield entry


class _Entry:
    """One expression, with the literal or expression that is searched for in its place."""

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
    """Some expressions that are searched for together."""

    def __init__(self, entries: list[_Entry], memory_bytes_max: int) -> None:
        self.entries = entries
        self.weight = sum(entry.weight for entry in entries)
        self.removed_weight = 0
        self._match = compiled_set([entry.asked_for for entry in entries], memory_bytes_max)
        assert self._match is not None, "no set is too heavy for its memory"
        for entry in entries:
            entry.home = self

    def mergeable(self, weight: int) -> bool:
        """Return whether the set should be merged with newer expressions of this weight."""
        small_enough = self.weight <= max(RECENT_WEIGHT_MAX, GROWTH * weight)
        return small_enough and self.weight + weight <= WEIGHT_MAX

    def matched(self, text: bytes) -> list[_Entry]:
        """Return the entries whose `asked_for` matches the text."""
        assert self._match is not None
        numbers = self._match(text)
        assert numbers is not None, "no set runs out of its memory"
        return [self.entries[number] for number in numbers]


def _parts(entries: Iterable[_Entry]) -> Iterator[list[_Entry]]:
    """Split the entries into parts of at most WEIGHT_MAX."""
    part: list[_Entry] = []
    weight = 0
    for entry in entries:
        if weight + entry.weight > WEIGHT_MAX:
            yield part
            part, weight = [], 0
        part.append(entry)
        weight += entry.weight
    yield part
