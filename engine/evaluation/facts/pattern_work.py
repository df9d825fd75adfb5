"""Bounds the work of patterns at one event: one bound for all patterns, one for exploding patterns.

Which patterns are skipped depends only on the event and the patterns of the enabled rules, not on the order
or the shortcuts of matching. So a replay of the event gives the same verdicts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from engine.evaluation.facts.names import FactNames, few_looks
from engine.language.limits import Limits
from engine.patterns.compiled_pattern import CompiledPattern, compile_pattern
from engine.patterns.fact_patterns import FactPatterns
from engine.patterns.text_tests import literal_of

_NONE: Final[frozenset[str]] = frozenset()

_CHARACTER_BYTES_MAX: Final = 4


class PatternWork:
    """The patterns of a detector by fact.

    Call `begin` with each event before trying a pattern on it. It returns the facts on which all patterns, or
    all exploding ones, are skipped. Skipped patterns match nothing, and message 2004 reports it.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._facts: dict[str, FactPatterns] = {}
        self._names: FactNames[tuple[str, FactPatterns]] = FactNames()
        self._asked: WeakValueDictionary[str, FactPatterns] = WeakValueDictionary()
        """The patterns of all facts in `_facts`, and of facts that a compiled rule still refers to."""
        self._count = self._exploding = 0
        """The number of all patterns, and of exploding ones, summed over the facts."""
        self.changed: set[FactPatterns] = set()
        """Facts' patterns of which new ones are not compiled yet."""
        self._cut = _NONE
        self._untried = _NONE
        self._reached = False
        self._looks = few_looks(self._facts)
        self._walked: list[FactPatterns] = []
        """The facts' patterns that currently keep an array."""
        self.bounded = False
        """Whether `begin` must be called. If not, there are too few patterns to reach a bound."""

    def add(self, fact: str, pattern: str) -> None:
        """Add a pattern that an enabled rule tries on a fact, or count another use of it."""
        patterns = self._facts[fact] = self.of(fact)
        self._names.add(fact, (fact, patterns))
        self._change(patterns, partial(patterns.add, pattern))
        self._see_facts()

    def remove(self, fact: str, pattern: str) -> None:
        """Undo one `add` with the same fact and pattern."""
        self._end()
        patterns = self._facts[fact]
        self._change(patterns, partial(patterns.remove, pattern))
        if not patterns:
            del self._facts[fact]
            self._names.remove(fact)
        self._see_facts()

    def of(self, fact: str) -> FactPatterns:
        """Return the patterns of a fact, which all callers share."""
        known = self._asked.get(fact)
        if known is None:
            known = self._asked[fact] = FactPatterns(self._limits)
        return known

    def finder(self, fact: str, pattern: str) -> Callable[[str], bool]:
        """Return a function that tests whether the pattern matches a text of the fact at the current event.

        The pattern is tried once on each text, however many rules use it. If the pattern is a literal, the
        rule's code searches for it, and the function only tests whether the text is short enough.
        """
        if literal_of(pattern) is not None:
            return _fits(compile_pattern(pattern, self._limits))
        patterns = self.of(fact)
        return partial(patterns.found, pattern, patterns.compiled(pattern))

    def narrower(
        self, fact: str, pattern: str, look: Callable[[Any], Any]
    ) -> Callable[[list[Any]], Sequence[Any]]:
        """Return a function that returns the elements of an array that a pattern may match.

        `look` returns the value of the fact in an element.
        """
        return partial(self.of(fact).elements, pattern, look, self._walked)

    def forget_elements(self) -> None:
        """Forget the arrays of an event, which their owner may change from now on."""
        while self._walked:
            self._walked.pop().forget_elements()

    def begin(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> frozenset[str]:
        """Begin an event. Return the facts on which all patterns, or all exploding ones, are skipped.

        Facts are admitted in order of their work, the least first, then of their names. The fact whose work
        exceeds the bound is skipped, and so are all facts after it.
        """
        self._end()
        if not self.bounded:
            return _NONE
        self.forget_elements()
        bytes_max, work_max = self._limits.pattern_event_bytes_max, self._limits.pattern_event_work_max
        bytes_at_most = work_at_most = 0
        for patterns, value in self._values(fields, sent):
            if type(value) is str:
                bytes_at_most += patterns.bytes_a_char * len(value)
                if patterns.exploding:
                    work_at_most += patterns.work_at_most(value)
        # The upper estimates are cheap, and nearly always within bounds.
        if bytes_at_most <= bytes_max and work_at_most <= work_max:
            return _NONE
        texts = [(*named, text) for named, text in self._names.found_in(fields, sent) if type(text) is str]
        if bytes_at_most > bytes_max:
            bytes_of = _sums((fact, patterns.bytes_of(text)) for fact, patterns, text in texts)
            self._untried = _too_much(bytes_of, bytes_max)
        if work_at_most > work_max:
            tried = [each for each in texts if each[1].exploding and each[0] not in self._untried]
            if sum(patterns.work_at_most(text) for _, patterns, text in tried) > work_max:
                work = _sums((fact, patterns.work(text)) for fact, patterns, text in tried)
                self._cut = _too_much(work, work_max)
        for fact in self._untried:
            self.of(fact).untried = True
        for fact in self._cut:
            self.of(fact).exploding_untried = True
        cut = self._cut | self._untried
        self._reached = self._reached or bool(cut)
        return cut

    def reached(self) -> bool:
        """Return whether a bound was reached at an event since the last call."""
        reached, self._reached = self._reached, False
        return reached

    def is_untried(self, fact: str) -> bool:
        """Return whether all patterns are skipped on that fact at the current event."""
        return fact in self._untried

    def _change(self, patterns: FactPatterns, change: Callable[[], None]) -> None:
        self._count -= len(patterns)
        self._exploding -= patterns.exploding
        change()
        self._count += len(patterns)
        self._exploding += patterns.exploding
        self.changed.add(patterns)

    def _see_facts(self) -> None:
        bytes_max = _CHARACTER_BYTES_MAX * self._limits.pattern_text_chars_max
        many = self._names.of_elements or self._count * bytes_max > self._limits.pattern_event_bytes_max
        self.bounded = self._exploding > 0 or many
        self._looks = few_looks(self._facts)

    def _values(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[tuple[FactPatterns, Any]]:
        """Return the patterns of each fact with its value in the event, which may be None."""
        if self._looks is not None:
            return [(patterns, look(fields)) for patterns, look in self._looks]
        return [(patterns, value) for (_, patterns), value in self._names.found_in(fields, sent)]

    def _end(self) -> None:
        """End the previous event: stop skipping patterns."""
        if not self._cut and not self._untried:
            return
        for fact in self._cut | self._untried:
            patterns = self.of(fact)
            patterns.untried = patterns.exploding_untried = False
        self._cut = self._untried = _NONE


def _fits(compiled: CompiledPattern) -> Callable[[str], bool]:
    """Return a function that tests whether a text is short enough for a pattern."""
    surely = min(compiled.text_chars_max, compiled.text_bytes_max // _CHARACTER_BYTES_MAX)
    return lambda text: len(text) <= surely or not compiled.too_long(text)


def _sums(amounts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Add up the amounts of each fact. Elements of an array give several."""
    found: dict[str, int] = {}
    for fact, amount in amounts:
        found[fact] = found.get(fact, 0) + amount
    return found


def _too_much(work: dict[str, int], left: int) -> frozenset[str]:
    cut = []
    for amount, fact in sorted((amount, fact) for fact, amount in work.items()):
        left -= amount
        if left < 0:
            cut.append(fact)
    return frozenset(cut)
