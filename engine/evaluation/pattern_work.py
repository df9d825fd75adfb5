"""How much work the patterns of one event may be: a bound on all that explode together.

What is too much follows from the patterns of the detector's enabled rules and from the event alone, so that
an event that is evaluated again has the same verdicts, in whatever order and by whatever shortcuts.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.evaluation.facts import split_name, value_of
from engine.evaluation.pattern_sets import PatternSets
from engine.language.limits import Limits
from engine.language.pattern_cost import longest
from engine.language.pattern_guards import guard_of, leading
from engine.language.pattern_syntax import read
from engine.language.patterns import CompiledPattern, compile_pattern

_NONE: Final[frozenset[str]] = frozenset()

_CHARACTER_BYTES_MAX: Final = 4


class PatternWork:
    """The patterns of a detector that explode, each with the fact that it is tried on.

    `begin` is told each event before any pattern is tried on it, and gives the facts on which they are not
    tried: there they match nothing, and message 2004 says so. Patterns that do not explode are not bounded.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._facts: dict[str, _Fact] = {}
        self._cut = _NONE

    def add(self, fact: str, pattern: str) -> None:
        """Add a pattern that an enabled rule tries on a fact; one that is there is counted."""
        compiled = compile_pattern(pattern, self._limits)
        if compiled.explodes:
            if fact not in self._facts:
                self._facts[fact] = _Fact(fact, self._limits)
            self._facts[fact].add(pattern, _Bounded(self, fact, compiled))

    def remove(self, fact: str, pattern: str) -> None:
        """Undo one `add` of the same fact and pattern."""
        known = self._facts.get(fact)
        if known is not None and pattern in known.patterns:
            known.remove(pattern)
            if not known.patterns:
                del self._facts[fact]

    def finder(self, fact: str, pattern: str) -> Callable[[str], bool]:
        """Give what tells whether the pattern is found in the text of that fact, at the event that has begun.

        Of a pattern that was added, all share one, which tries it once on each text.
        """
        known = self._facts.get(fact)
        if known is not None and pattern in known.patterns:
            return known.patterns[pattern].bounded.found_in
        compiled = compile_pattern(pattern, self._limits)
        return _Bounded(self, fact, compiled).found_in if compiled.explodes else compiled.found_in

    @property
    def explodes(self) -> bool:
        """Whether there are any such patterns: without, nothing need be told of events."""
        return bool(self._facts)

    def begin(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> frozenset[str]:
        """Give the facts on which exploding patterns are not tried at this event.

        Facts are taken by their work, the least first and those alike by name; from the first on that is too
        much together with those before it, none is tried.
        """
        self._cut = _NONE
        if self._facts:
            texts = [
                (known, value)
                for fact, known in self._facts.items()
                if isinstance(value := value_of(split_name(fact), fields, sent), str)
            ]
            # What all of it would be is told at once, and nearly always little enough.
            if sum(known.work_at_most(text) for known, text in texts) > self._limits.pattern_event_work_max:
                self._cut = self._too_much({known.name: known.work(text) for known, text in texts})
        return self._cut

    def is_cut(self, fact: str) -> bool:
        """Tell whether exploding patterns are not tried on that fact at the event that has begun."""
        return fact in self._cut

    def _too_much(self, work: dict[str, int]) -> frozenset[str]:
        left = self._limits.pattern_event_work_max
        cut = []
        for amount, fact in sorted((amount, fact) for fact, amount in work.items()):
            left -= amount
            if left < 0:
                cut.append(fact)
        return frozenset(cut)


class _Bounded:
    """A pattern on a fact: tried once on each text, and not at all where that is cut."""

    __slots__ = ("_fact", "_found", "_text", "_work", "compiled")

    def __init__(self, work: PatternWork, fact: str, compiled: CompiledPattern) -> None:
        self._work = work
        self._fact = fact
        self.compiled = compiled
        self._text: str | None = None
        self._found = False

    def found_in(self, text: str) -> bool:
        """Tell whether the pattern is found in the text, and may be tried on it."""
        if self._work.is_cut(self._fact):
            return False
        if text is not self._text:
            self._found = self.compiled.found_in(text)
            self._text = text
        return self._found


class _Pattern:
    """One pattern of a fact: how often it was added, and the literals without which it cannot be there."""

    __slots__ = ("bounded", "count", "guard", "leading", "longest")

    def __init__(self, pattern: str, bounded: _Bounded) -> None:
        self.bounded = bounded
        tree = read(pattern)
        self.guard = guard_of(tree)
        self.leading = leading(tree)
        self.longest = None if tree is None else longest(tree)
        self.count = 0

    def work(self, text: str, size: int) -> int:
        """Give the work that the pattern can be in a text of `size` bytes in which its literals are."""
        compiled = self.bounded.compiled
        if compiled.too_long(text):
            return 0
        # States are built only where a match may be under way: behind the texts with which each one begins.
        if self.leading is not None and self.longest is not None and size == len(text):
            size = min(size, self.longest * sum(guard.begins(text) for guard in self.leading))
        return size * compiled.work_per_byte


class _Fact:
    """The exploding patterns of one fact."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.name = name
        self.patterns: dict[str, _Pattern] = {}
        self._guards = PatternSets(limits)
        self._work_per_byte = 0

    def add(self, pattern: str, bounded: _Bounded) -> None:
        known = self.patterns.get(pattern)
        if known is None:
            known = self.patterns[pattern] = _Pattern(pattern, bounded)
            self._work_per_byte += bounded.compiled.work_per_byte
            if known.guard is not None:
                self._guards.add(known.guard)
        known.count += 1

    def remove(self, pattern: str) -> None:
        known = self.patterns[pattern]
        known.count -= 1
        if known.count == 0:
            del self.patterns[pattern]
            self._work_per_byte -= known.bounded.compiled.work_per_byte
            if known.guard is not None:
                self._guards.remove(known.guard)

    def work_at_most(self, text: str) -> int:
        """Give a bound on `work` that is told at once."""
        return self._work_per_byte * len(text) * (1 if text.isascii() else _CHARACTER_BYTES_MAX)

    def work(self, text: str) -> int:
        """Give the work of the patterns that may be in the text and take texts so long."""
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            return 0
        there = set(self._guards.found(text))
        return sum(
            known.work(text, size)
            for known in self.patterns.values()
            if known.guard is None or known.guard in there
        )
