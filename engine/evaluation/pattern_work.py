"""How much work the patterns of one event may be: a bound on all of them, and one on those that explode.

What is too much follows from the patterns of the detector's enabled rules and from the event alone, so that
an event that is evaluated again has the same verdicts, in whatever order and by whatever shortcuts.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final
from weakref import WeakValueDictionary

from engine.evaluation.names import Names
from engine.evaluation.values import split_name
from engine.language.limits import Limits
from engine.patterns.cost import longest
from engine.patterns.guards import guard_of, leading
from engine.patterns.searches import Searches
from engine.patterns.searching import CompiledPattern, compile_pattern
from engine.patterns.sets import PatternSets
from engine.patterns.syntax import read

_NONE: Final[frozenset[str]] = frozenset()

_CHARACTER_BYTES_MAX: Final = 4


class PatternWork:
    """The patterns of a detector, each with the fact that it is tried on.

    `begin` is told each event before any pattern is tried on it, and gives the facts on which patterns are
    not tried: there they match nothing, and message 2004 says so. On some, only those that explode are not.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._facts: dict[str, _Fact] = {}
        """Those with patterns that explode."""
        self._searches: dict[str, Searches] = {}
        self._of_fields: Names[tuple[str, Searches]] = Names()
        self._of_vars: Names[tuple[str, Searches]] = Names()
        self._asked: WeakValueDictionary[str, Searches] = WeakValueDictionary()
        """Also those of facts that have no patterns any more, as long as anybody may still ask them."""
        self._count = 0
        """How many patterns there are, each counted once for each fact."""
        self._cut = _NONE
        self._untried = _NONE

    def add(self, fact: str, pattern: str) -> None:
        """Add a pattern that an enabled rule tries on a fact; one that is there is counted."""
        self._end()
        searches = self._of(fact)
        if fact not in self._searches:
            self._searches[fact] = searches
            self._names(fact).add(split_name(fact), (fact, searches))
        self._count -= searches.count
        searches.add(pattern)
        self._count += searches.count
        compiled = compile_pattern(pattern, self._limits)
        if compiled.explodes:
            if fact not in self._facts:
                self._facts[fact] = _Fact(fact, self._limits)
            self._facts[fact].add(pattern, compiled)

    def remove(self, fact: str, pattern: str) -> None:
        """Undo one `add` of the same fact and pattern."""
        self._end()
        if fact in self._searches:
            searches = self._searches[fact]
            self._count -= searches.count
            searches.remove(pattern)
            self._count += searches.count
            if not searches.count:
                del self._searches[fact]
                self._names(fact).remove(split_name(fact))
        known = self._facts.get(fact)
        if known is not None and pattern in known.patterns:
            known.remove(pattern)
            if not known.patterns:
                del self._facts[fact]

    def finder(self, fact: str, pattern: str) -> Callable[[str], bool]:
        """Give what tells whether the pattern is found in the text of that fact, at the event that has begun.

        All share one answer, for which the pattern is tried once on each text.
        """
        return partial(self._of(fact).found, pattern, compile_pattern(pattern, self._limits))

    @property
    def bounded(self) -> bool:
        """Whether `begin` must be told of events: without it, there are too few patterns to take long."""
        bytes_max = _CHARACTER_BYTES_MAX * self._limits.pattern_text_chars_max
        return bool(self._facts) or self._count * bytes_max > self._limits.pattern_event_bytes_max

    def begin(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> frozenset[str]:
        """Give the facts on which patterns are not tried at this event, or not those that explode.

        Facts are taken by their work, the least first and those alike by name; from the first on that is too
        much together with those before it, none is tried.
        """
        self._end()
        if not self.bounded:
            return _NONE
        texts = []
        bytes_at_most = 0
        for (fact, searches), value in chain(self._of_fields.found_in(fields), self._of_vars.found_in(sent)):
            if type(value) is str:
                texts.append((fact, searches, value))
                bytes_at_most += searches.count * len(value) * _CHARACTER_BYTES_MAX
        # What all of it would be is told at once, and nearly always little enough.
        bytes_max = self._limits.pattern_event_bytes_max
        if bytes_at_most > bytes_max:
            work = {fact: searches.bytes_of(text) for fact, searches, text in texts}
            self._untried = _too_much(work, bytes_max)
        if self._facts:
            exploding = [
                (known, text)
                for fact, _, text in texts
                if fact not in self._untried and (known := self._facts.get(fact)) is not None
            ]
            work_max = self._limits.pattern_event_work_max
            if sum(known.work_at_most(text) for known, text in exploding) > work_max:
                self._cut = _too_much({known.name: known.work(text) for known, text in exploding}, work_max)
        if not (self._cut or self._untried):
            return _NONE
        for fact in self._untried:
            self._of(fact).untried = True
        for fact in self._cut:
            self._of(fact).exploding_untried = True
        return self._cut | self._untried

    def is_cut(self, fact: str) -> bool:
        """Tell whether exploding patterns are not tried on that fact at the event that has begun."""
        return fact in self._cut or fact in self._untried

    def is_untried(self, fact: str) -> bool:
        """Tell whether no pattern at all is tried on that fact at the event that has begun."""
        return fact in self._untried

    def _end(self) -> None:
        """Forget what was said of the event before."""
        if self._cut or self._untried:
            for fact in self._cut | self._untried:
                searches = self._of(fact)
                searches.untried = searches.exploding_untried = False
            self._cut = self._untried = _NONE

    def _names(self, fact: str) -> Names[tuple[str, Searches]]:
        return self._of_vars if split_name(fact).of_vars else self._of_fields

    def _of(self, fact: str) -> Searches:
        known = self._asked.get(fact)
        if known is None:
            known = self._asked[fact] = Searches(self._limits)
        return known


def _too_much(work: dict[str, int], left: int) -> frozenset[str]:
    cut = []
    for amount, fact in sorted((amount, fact) for fact, amount in work.items()):
        left -= amount
        if left < 0:
            cut.append(fact)
    return frozenset(cut)


class _Pattern:
    """One pattern of a fact: how often it was added, and the literals without which it cannot be there."""

    __slots__ = ("compiled", "count", "guard", "leading", "longest")

    def __init__(self, pattern: str, compiled: CompiledPattern) -> None:
        self.compiled = compiled
        tree = read(pattern)
        self.guard = guard_of(tree)
        self.leading = leading(tree)
        self.longest = None if tree is None else longest(tree)
        self.count = 0

    def work(self, text: str, size: int) -> int:
        """Give the work that the pattern can be in a text of `size` bytes in which its literals are."""
        compiled = self.compiled
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

    def add(self, pattern: str, compiled: CompiledPattern) -> None:
        known = self.patterns.get(pattern)
        if known is None:
            known = self.patterns[pattern] = _Pattern(pattern, compiled)
            self._work_per_byte += compiled.work_per_byte
            if known.guard is not None:
                self._guards.add(known.guard)
        known.count += 1

    def remove(self, pattern: str) -> None:
        known = self.patterns[pattern]
        known.count -= 1
        if known.count == 0:
            del self.patterns[pattern]
            self._work_per_byte -= known.compiled.work_per_byte
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
