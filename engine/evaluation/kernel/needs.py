"""What the enabled rules of a detector need: memories, patterns, look-ups, relations."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from engine.evaluation.facts.lookups import Lookups
from engine.evaluation.facts.pattern_work import PatternWork
from engine.evaluation.facts.texts import Sizes, arrays, texts
from engine.evaluation.requirements import Requirements
from engine.evaluation.slices.histories import Histories
from engine.language.limits import Limits
from engine.patterns.compiled_pattern import compile_pattern

RELATIONS_NAMED_MAX: Final = 16
"""The maximum number of missing relations named in the messages about an event."""

NAME_CHARS_SHOWN: Final = 255
"""Messages shorten longer names of facts and relations."""

WARNING_BYTES_MAX: Final = 256 + 6 * NAME_CHARS_SHOWN
"""The maximum size of a warning about a relation or a text, as JSON."""


class Needs:
    """The needs of some rules, with use counts."""

    def __init__(self, limits: Limits, histories: Histories, stored: Mapping[str, Any]) -> None:
        """Take the limits, the memories, and the stored relations by name; others change the latter two."""
        self.limits, self.histories = limits, histories
        self.stored = stored
        self.patterns = PatternWork(limits)
        self.lookups = Lookups(stored)
        self.relations: Counter[str] = Counter()
        """The relations, and the number of rules that use each."""
        self._arrays: Counter[str] = Counter()
        self._bounds: Counter[tuple[str, int]] = Counter()
        self._found_texts: Sizes | None = None
        self._found_arrays: Sizes | None = None
        self._unstored: list[str] | None = None
        self._may_warn: bool | None = None

    @property
    def texts(self) -> Sizes:
        """The facts with patterns."""
        if self._found_texts is None:
            self._found_texts = texts(self._bounds, self.limits.pattern_text_chars_max)
        return self._found_texts

    @property
    def arrays(self) -> Sizes:
        """The arrays whose elements rules use."""
        if self._found_arrays is None:
            self._found_arrays = arrays(self._arrays)
        return self._found_arrays

    @property
    def unstored(self) -> list[str]:
        """The names of relations in rules that are not stored, sorted."""
        if self._unstored is None:
            self._unstored = sorted(name for name in self.relations if name not in self.stored)
        return self._unstored

    @property
    def warning_bytes_worst(self) -> int:
        """The maximum size of the warnings about one event."""
        relations = min(len(self.relations), RELATIONS_NAMED_MAX + 1)
        return (relations + len(self.texts) + len(self._arrays)) * WARNING_BYTES_MAX

    @property
    def may_warn(self) -> bool:
        """Whether there may be messages about an event."""
        if self._may_warn is None:
            self._may_warn = bool(self.unstored or self._bounds or self._arrays)
        return self._may_warn

    def need(self, parts: Requirements) -> None:
        """Add the needs of a rule."""
        self.relations.update(parts.relations)
        for fact, text in parts.literals:
            self.lookups.add(fact, text)
        self._arrays.update(parts.arrays)
        for fact, pattern in parts.patterns:
            self.patterns.add(fact, pattern)
        for fact, pattern in parts.patterns | parts.text_tests:
            self._bounds[fact, compile_pattern(pattern, self.limits).text_bytes_max] += 1
        self._found_texts = self._found_arrays = self._unstored = self._may_warn = None

    def need_no_more(self, parts: Requirements) -> None:
        """Undo `need`."""
        for fact, text in parts.literals:
            self.lookups.remove(fact, text)
        for relation in parts.relations:
            uncount(self.relations, relation)
        for array in parts.arrays:
            uncount(self._arrays, array)
        for fact, pattern in parts.patterns:
            self.patterns.remove(fact, pattern)
        for fact, pattern in parts.patterns | parts.text_tests:
            uncount(self._bounds, (fact, compile_pattern(pattern, self.limits).text_bytes_max))
        self._found_texts = self._found_arrays = self._unstored = self._may_warn = None

    def compile_new(self) -> None:
        """Compile the patterns and literals of added rules, so that no event has to."""
        for changed in (self.patterns.changed, self.lookups.changed):
            while changed:
                changed.pop().compile_new()


def uncount(counts: Counter[Any], item: Any) -> None:
    """Decrement the count of an item, and drop it at 0."""
    counts[item] -= 1
    if not counts[item]:
        del counts[item]
