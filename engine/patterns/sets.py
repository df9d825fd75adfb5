"""Many patterns on one fact: which of them are found in a text, in few passes over it.

Literals go together well: an automaton for a thousand of them has no more states than they have characters,
while a thousand `a.*b` together have more than any memory. So what is little more than literals is gathered
in sets of RE2. Of other patterns a literal is, that no match can do without (`appdata` of
`users.[^.]+.appdata`), and only where that is found is the pattern itself tried. What has none is tried
alone.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import re2

from engine.language.limits import Limits
from engine.patterns.cost import is_brief, is_words
from engine.patterns.guards import guard_of
from engine.patterns.searching import compile_pattern, options
from engine.patterns.syntax import read

WEIGHT_MAX: Final = 18_000
"""Bytes of the literals in one set: it compiles in some 6 ms. A free case weighs half as much more."""

LONE_WEIGHT_MIN: Final = 2_000
"""A pattern with so many bytes is a pass of its own anyway."""

RECENT_WEIGHT_MAX: Final = 800
"""So small a set is compiled anew for each pattern that is added, in some 0.2 ms."""

GROWTH: Final = 4
"""A set is merged with newer ones once they weigh a quarter of it, so each pattern is compiled few times."""

SET_MEMORY_BYTES_MAX: Final = 16 * 1024 * 1024
"""What RE2 may use for one set; it takes what the texts demand, and starts afresh when that is used up."""

_ALWAYS: Final = r"\z"
"""Found in every text. A set that does not find it ran out of memory, and has found nothing at all."""


class PatternSets:
    """Many patterns on one fact, and which of them are found in a text.

    Adding and removing costs nothing until the next text; then only what is new is compiled, in small sets
    that are merged into larger ones as they gather.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        finder: Callable[[str], Callable[[str], bool]] | None = None,
        set_memory_bytes_max: int = SET_MEMORY_BYTES_MAX,
    ) -> None:
        """`finder` gives what tells whether one pattern is found in a text, where a set cannot tell it."""
        self._limits = limits
        self._finder = finder or (lambda pattern: compile_pattern(pattern, limits).found_in)
        self._memory_bytes_max = set_memory_bytes_max
        self._counts: dict[str, int] = {}
        self._entries: dict[str, _Entry] = {}
        """Those of all patterns that are in a set, even if removed meanwhile, or tried alone."""
        self._new: dict[str, None] = {}
        self._sets: list[_Set] = []
        self._alone: dict[str, _Entry] = {}
        self.exhausted = 0
        """How often a set ran out of memory, so that its patterns were tried one by one."""

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, pattern: str) -> None:
        """Add a pattern that `compile_pattern` takes; one that is there is counted."""
        count = self._counts.get(pattern, 0)
        self._counts[pattern] = count + 1
        if count:
            return
        entry = self._entries.get(pattern)
        if entry is None:
            self._new[pattern] = None
        elif entry.home is not None:
            entry.home.removed_weight -= entry.weight

    def remove(self, pattern: str) -> None:
        """Undo one `add`. The pattern must be there."""
        self._counts[pattern] -= 1
        if self._counts[pattern]:
            return
        del self._counts[pattern]
        self._new.pop(pattern, None)
        self._alone.pop(pattern, None)
        entry = self._entries.get(pattern)
        if entry is not None and entry.home is not None:
            entry.home.removed_weight += entry.weight
        else:
            self._entries.pop(pattern, None)

    def found(self, text: str) -> list[str]:
        """Give the patterns that are found in the text, each once. Their order follows from earlier calls."""
        encoded = self._settled(text)
        if encoded is None:
            return []
        found: list[str] = []
        for candidates in self._sets:
            matched = candidates.matched(encoded)
            if matched is None:
                self.exhausted += 1
                matched = [(entry, False) for entry in candidates.entries]
            found.extend(
                entry.pattern
                for entry, certain in matched
                if entry.pattern in self._counts and (certain or self._tried(entry, text))
            )
        found.extend(pattern for pattern, entry in self._alone.items() if self._tried(entry, text))
        return found

    def candidates(self, text: str) -> list[tuple[str, bool]]:
        """Give the patterns that may be found in the text, and for each whether it certainly is.

        They follow from the patterns and the text alone, whether or not a set has run out of memory.
        """
        encoded = self._settled(text)
        if encoded is None:
            return []
        found: list[tuple[str, bool]] = []
        for candidates in self._sets:
            matched = candidates.matched(encoded)
            if matched is None:
                matched = [
                    (entry, entry.is_whole)
                    for entry in candidates.entries
                    if compile_pattern(entry.asked_for or "", self._limits).found_in(text)
                ]
            found.extend(
                (entry.pattern, certain) for entry, certain in matched if entry.pattern in self._counts
            )
        found.extend((pattern, False) for pattern in self._alone)
        return found

    @property
    def weight(self) -> int:
        """The bytes of the literals that are asked for together; the same whatever was there before."""
        self._settle()
        return sum(
            entry.weight
            for pattern, entry in self._entries.items()
            if pattern in self._counts and pattern not in self._alone
        )

    def _settled(self, text: str) -> bytes | None:
        """Have all patterns in sets, and give the text as those take it; None where none is found in it."""
        self._settle()
        if len(text) > self._limits.pattern_text_chars_max:
            return None
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            return None
        # Those of a set whose words are the verdict take texts of any length up to this one.
        return encoded if len(encoded) <= self._limits.pattern_work_max else None

    def _tried(self, entry: "_Entry", text: str) -> bool:
        if entry.found_in is None:
            entry.found_in = self._finder(entry.pattern)
        return entry.found_in(text)

    def _settle(self) -> None:
        """Bring what was added into sets, and leave behind what was removed where that is half of a set."""
        if any(2 * one.removed_weight > one.weight for one in self._sets):
            for one in [one for one in self._sets if 2 * one.removed_weight > one.weight]:
                self._sets.remove(one)
                self._new |= dict.fromkeys(entry.pattern for entry in self._emptied(one))
        elif not self._new:
            return
        gathered: list[_Entry] = []
        for pattern in self._new:
            entry = self._entries.setdefault(pattern, _Entry(pattern))
            if entry.asked_for is None or entry.weight >= LONE_WEIGHT_MIN:
                self._alone[pattern] = entry
            else:
                gathered.append(entry)
        self._new.clear()
        weight = sum(entry.weight for entry in gathered)
        # The lightest stand last.
        while gathered and self._sets and self._sets[-1].mergeable(weight):
            lightest = self._sets.pop()
            gathered = [*self._emptied(lightest), *gathered]
            weight = sum(entry.weight for entry in gathered)
        self._sets.extend(_Set(part, self._memory_bytes_max) for part in _parts(gathered))
        self._sets.sort(key=lambda one: -one.weight)

    def _emptied(self, one: "_Set") -> Iterator["_Entry"]:
        """Give what is left of a set that is given up, and forget what was removed from it."""
        for entry in one.entries:
            entry.home = None
            if entry.pattern in self._counts:
                yield entry
            else:
                del self._entries[entry.pattern]


class _Entry:
    """One pattern, and what it is asked for by."""

    __slots__ = ("asked_for", "found_in", "home", "is_whole", "pattern", "weight")

    def __init__(self, pattern: str) -> None:
        tree = read(pattern)
        self.pattern = pattern
        guard = guard_of(tree)
        self.is_whole = tree is not None and (
            is_words(tree) or (guard is not None and any(map(str.isalpha, guard)) and is_brief(tree))
        )
        self.asked_for = pattern if self.is_whole else guard
        asked_for = self.asked_for or ""
        weight = len(asked_for.encode()) + 1
        self.weight = weight + weight // 2 if "(?" in asked_for else weight
        self.found_in: Callable[[str], bool] | None = None
        self.home: _Set | None = None


class _Set:
    """Some patterns that are asked for together."""

    def __init__(self, entries: list[_Entry], memory_bytes_max: int) -> None:
        self.entries = entries
        self.weight = sum(entry.weight for entry in entries)
        self.removed_weight = 0
        self._set: re2.Set | None = _compiled(entries, memory_bytes_max)
        for entry in entries:
            entry.home = self

    def mergeable(self, weight: int) -> bool:
        """Tell whether the set should be merged with newer patterns of that weight."""
        small_enough = self.weight <= max(RECENT_WEIGHT_MAX, GROWTH * weight)
        return small_enough and self.weight + weight <= WEIGHT_MAX

    def matched(self, text: bytes) -> list[tuple[_Entry, bool]] | None:
        """Give those that may be in the text, and whether they certainly are; None if memory was short."""
        numbers = self._set.Match(text) if self._set is not None else None
        if numbers is None:
            return None
        *chosen, always = sorted(numbers)
        # It was added last.
        assert always == len(self.entries)
        return [(entry, entry.is_whole) for entry in map(self.entries.__getitem__, chosen)]


def _compiled(entries: list[_Entry], memory_bytes_max: int) -> "re2.Set | None":
    """Give the set of RE2; None if it does not fit into the memory."""
    made = re2.Set.SearchSet(options(memory_bytes_max))
    try:
        for entry in entries:
            made.Add(entry.asked_for)
        made.Add(_ALWAYS)
        made.Compile()
    except re2.error:
        return None
    return made


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
