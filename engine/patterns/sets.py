"""Searches for many expressions together, in few passes over a text.

An automaton for a thousand literals has at most as many states as they have characters. One for a thousand
expressions such as `a.*b` has more than fit into any memory. So RE2's sets contain only literals and simple
expressions. Any other expression is represented by a literal that each of its matches contains (`appdata` for
`users.[^.]+.appdata`), and is tried only on texts with this literal. An expression without such a literal is
tried on every text.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from engine.patterns.compiled_pattern import compiled_set
from engine.patterns.lines import KeptLines, Line

WEIGHT_MAX: Final = 18_000
"""The maximum size of the literals in a set, which compiles in about 6 ms. Ignoring case adds half the
weight."""

LONE_WEIGHT_MIN: Final = 2_000
"""An expression of at least this weight is in no set, but tried by itself on every text."""

RECENT_WEIGHT_MAX: Final = 800
"""A set up to this weight is compiled anew for each added expression, in about 0.2 ms."""

GROWTH: Final = 4
"""A set is merged with newer ones when they reach a quarter of its weight, so recompilation is rare."""

MERGED_AFTER_BYTES: Final = 1 << 20
"""After searching this many bytes, in some milliseconds, two light sets are merged, which takes as long."""

SET_MEMORY_BYTES_MAX: Final = 16 * 1024 * 1024
"""RE2's memory for one set. RE2 takes memory as texts need it, and clears its states when it is used up."""


class PatternSets:
    """Finds the expressions that may match a text.

    `compile_new` compiles new expressions into small sets, and merges these into larger ones. If it is called
    after each change, it takes a fraction of a millisecond on average, and searches compile nothing, except
    that after many searches, light sets are merged.
    """

    def __init__(self, memory_bytes_max: int = SET_MEMORY_BYTES_MAX) -> None:
        self._memory_bytes_max = memory_bytes_max
        self._entries: dict[str, _Entry] = {}
        """All expressions, and removed ones that are still in a set."""
        self._new: dict[str, _Entry] = {}
        self._sets: list[_Set] = []
        """The sets by weight, the lightest last."""
        self._inside: list[_Set] = []
        self._across: list[_Set] = []
        """The sets of expressions that can be searched for line by line, and the others."""
        self._alone: dict[str, _Entry] = {}
        self.weight = 0
        """The weight of the expressions in sets, which does not depend on the history of changes."""
        self._lines: KeptLines[_Entry] = KeptLines()
        self._searched_bytes = 0
        """The bytes searched since sets were last compiled."""

    def add(self, pattern: str, asked_for: str | None, line: Line, *, is_whole: bool) -> None:
        """Add a new expression.

        It matches only if `asked_for` does, which may be None, and which can be searched for in these lines.
        With `is_whole`, it matches if and only if `asked_for` does.
        """
        self._lines.forget()
        entry = self._entries.get(pattern)
        if entry is None:
            entry = self._entries[pattern] = _Entry(pattern, asked_for, line, is_whole=is_whole)
            (self._alone if entry.is_alone else self._new)[pattern] = entry
        else:
            assert entry.home is not None, "expressions outside of sets are dropped when they are removed"
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
            self._have([one for one in self._sets if one is not home])
            self._new |= {left.pattern: left for left in self._emptied(home)}

    def compile_new(self) -> None:
        """Compile the new expressions."""
        if not self._new:
            return
        gathered = list(self._new.values())
        self._new.clear()
        self._have(
            [
                *self._merged(self._inside, [entry for entry in gathered if entry.line is not Line.NONE]),
                *self._merged(self._across, [entry for entry in gathered if entry.line is Line.NONE]),
            ]
        )

    def candidates(self, text: bytes) -> dict[str, bool]:
        """Return the expressions that may match the text, and whether each certainly does.

        Their order depends on earlier calls.
        """
        self.compile_new()
        self._searched_bytes += len(text)
        if self._searched_bytes > MERGED_AFTER_BYTES:
            self._merge_lightest()
        matched = self._lines.found(text, self._in_line)
        whole = self._sets if matched is None else self._across
        matched = [*(matched or ()), *(entry for one in whole for entry in one.matched(text))]
        found = {entry.pattern: entry.is_whole for entry in matched if not entry.is_removed}
        found.update(dict.fromkeys(self._alone, False))
        return found

    def _in_line(self, line: bytes) -> list[tuple["_Entry", Line]]:
        return [(entry, entry.line) for one in self._inside for entry in one.matched(line)]

    def _merge_lightest(self) -> None:
        """Merge two light sets, unless the result would be too heavy."""
        for alike in (self._inside, self._across):
            light = alike[-2:]
            if len(light) > 1 and sum(one.weight for one in light) <= WEIGHT_MAX:
                entries = [entry for one in light for entry in self._emptied(one)]
                left = [one for one in self._sets if one not in light]
                self._have([*left, *(_Set(part, self._memory_bytes_max) for part in _parts(entries))])
                return
        self._searched_bytes = 0

    def _have(self, sets: list["_Set"]) -> None:
        self._searched_bytes = 0
        self._sets = sorted(sets, key=lambda one: -one.weight)
        self._inside = [one for one in self._sets if one.is_inside]
        self._across = [one for one in self._sets if not one.is_inside]

    def _merged(self, sets: list["_Set"], gathered: list["_Entry"]) -> list["_Set"]:
        """Return sets with new expressions, which absorb sets that they outgrow."""
        left = list(sets)
        weight = sum(entry.weight for entry in gathered)
        while gathered and left and left[-1].mergeable(weight):
            gathered = [*self._emptied(left.pop()), *gathered]
            weight = sum(entry.weight for entry in gathered)
        return left + [_Set(part, self._memory_bytes_max) for part in _parts(gathered)]

    def _emptied(self, one: "_Set") -> Iterator["_Entry"]:
        """Yield the remaining entries of a set that is dissolved, and drop removed ones."""
        for entry in one.entries:
            entry.home = None
            if entry.is_removed:
                del self._entries[entry.pattern]
            else:
                yield entry


class _Entry:
    """One expression, with the literal or expression that is searched for in its place."""

    __slots__ = ("asked_for", "home", "is_alone", "is_removed", "is_whole", "line", "pattern", "weight")

    def __init__(self, pattern: str, asked_for: str | None, line: Line, *, is_whole: bool) -> None:
        self.pattern, self.line = pattern, line
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
        self.is_inside = entries[0].line is not Line.NONE
        """Whether its expressions can be searched for line by line, which is the same for all."""
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
    if part:
        yield part
