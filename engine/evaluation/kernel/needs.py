"""What the enabled rules of a detector need besides memories: patterns, look-ups, relations."""

from collections import Counter
from typing import Any

from engine.evaluation.facts.lookups import Lookups
from engine.evaluation.facts.pattern_work import PatternWork
from engine.evaluation.facts.texts import NO_TEXTS, Texts
from engine.evaluation.kernel.warning_bounds import RELATIONS_NAMED_MAX, WARNING_BYTES_MAX
from engine.evaluation.requirements import Requirements
from engine.language.limits import Limits
from engine.patterns.compiled_pattern import compile_pattern


class Needs:
    """The needs of some rules, each counted."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.patterns = PatternWork(limits)
        self.lookups = Lookups()
        self.relations: Counter[str] = Counter()
        """The relations, each with the number of rules that use it."""
        self._bounds: Counter[tuple[str, int]] = Counter()
        self._texts: Texts | None = None
        self._relation_names: list[str] | None = None

    @property
    def texts(self) -> Texts:
        """The facts whose texts patterns are matched against."""
        if self._texts is None:
            self._texts = Texts(self._bounds) if self._bounds else NO_TEXTS
        return self._texts

    @property
    def relation_names(self) -> list[str]:
        """The names of all relations in rules, sorted."""
        if self._relation_names is None:
            self._relation_names = sorted(self.relations)
        return self._relation_names

    @property
    def warning_bytes_worst(self) -> int:
        """The most bytes of warnings in the result of one event."""
        return (min(len(self.relations), RELATIONS_NAMED_MAX + 1) + len(self.texts)) * WARNING_BYTES_MAX

    def need(self, parts: Requirements) -> None:
        """Add what a rule needs."""
        self.relations.update(parts.relations)
        self.lookups.add(parts.literals)
        for fact, pattern in parts.patterns:
            self.patterns.add(fact, pattern)
            self._bounds[fact, compile_pattern(pattern, self.limits).text_bytes_max] += 1
        self._texts = self._relation_names = None

    def need_no_more(self, parts: Requirements) -> None:
        """Undo `need`."""
        self.lookups.remove(parts.literals)
        for relation in parts.relations:
            uncount(self.relations, relation)
        for fact, pattern in parts.patterns:
            self.patterns.remove(fact, pattern)
            uncount(self._bounds, (fact, compile_pattern(pattern, self.limits).text_bytes_max))
        self._texts = self._relation_names = None

    def compile_new(self) -> None:
        """Compile the texts that added rules search for, so that no event has to."""
        self.patterns.compile_new()
        self.lookups.compile_new()


def uncount(counts: Counter[Any], item: Any) -> None:
    """Count an item once less, and drop it at 0."""
    counts[item] -= 1
    if not counts[item]:
        del counts[item]
