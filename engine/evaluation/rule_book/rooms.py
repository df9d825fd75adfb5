"""Bounds on what the rules of a detector take together: work, memory and size."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

from engine.evaluation.operators.table import remembering
from engine.evaluation.requirements import Births, requirements_of
from engine.evaluation.rules import LiveRule, Rule
from engine.language.diagnostics import Entry
from engine.language.limits import Limits
from engine.language.nodes import Node
from engine.patterns.compiled_pattern import compile_pattern

T = TypeVar("T")

RECORDS_SHARE: Final = 2
"""Records without keys, which cannot be evicted, may take the bound on a detector's memory divided by this,
in addition to what keys take."""

_FULL: Final = 1400


class Room(Generic[T]):
    """The room for things that rules need. Each counts once, however many rules need it."""

    def __init__(self, most: int, size_of: Callable[[T], int], said: str) -> None:
        """`said` tells, with `{taken}` and `{most}`, that there is no room."""
        self.taken = 0
        self._most, self._size_of, self._said = most, size_of, said
        self._uses = Counter[T]()
        """How many rules need each."""

    def lacking(self, coming: Iterable[Iterable[T]], going: Iterable[Iterable[T]]) -> Iterator[Entry]:
        """Yield an error 1400 if there is no room for what rules need, once others are gone."""
        changes = Counter(one for things in coming for one in things)
        changes.subtract(one for things in going for one in things)
        growth = 0
        for one, change in changes.items():
            before = self._uses[one]
            if bool(before) != bool(before + change):
                growth += -self._size_of(one) if before else self._size_of(one)
        # If the bound was lowered, a detector may exceed it, and its rules can still become smaller.
        if growth > 0 and self.taken + growth > self._most:
            yield Entry(_FULL, self._said.format(taken=self.taken + growth, most=self._most))

    def add(self, things: Iterable[T]) -> None:
        """Count what a rule needs."""
        for one in things:
            if not self._uses[one]:
                self.taken += self._size_of(one)
            self._uses[one] += 1

    def remove(self, things: Iterable[T]) -> None:
        """Undo one `add` of the same things."""
        for one in things:
            self._uses[one] -= 1
            if not self._uses[one]:
                del self._uses[one]
                self.taken -= self._size_of(one)


class Rooms:
    """The rooms for the rules of a detector: their patterns, their size, and their records without keys."""

    def __init__(self, limits: Limits, live: Mapping[str, LiveRule]) -> None:
        self._live = live
        # The patterns of all rules are compiled anew at each activation.
        self.patterns = Room[str](
            limits.detector_preparation_max,
            lambda pattern: compile_pattern(pattern, limits).preparation,
            "compiling the patterns of the detector's rules costs {taken} units; limit {most}",
        )
        # All rules are kept in memory, saved, copied and listed.
        self.rules = Room[Rule](
            limits.rules_bytes_max,
            Rule.bytes_as_json,
            "the detector's rules take {taken} bytes as JSON; limit {most}",
        )
        self.records = Room[tuple[Node, int]](
            limits.state_bytes_max // RECORDS_SHARE,
            lambda record: _bytes_max(record[0]),
            "what the detector's rules count without `per` may grow to {taken} bytes; limit {most}",
        )
        """The records of the enabled rules, each of a node and a birth."""
        self._is_filled = False
        """Whether patterns and rules are counted. Evaluation does not need that; the first change does."""

    def lacking(
        self, coming: Sequence[tuple[Rule, Births]], going: Sequence[LiveRule] = ()
    ) -> Iterator[Entry]:
        """Yield an error 1400 for each room that is too small for some rules, once others are gone."""
        if not self._is_filled:
            self._is_filled = True
            for live in self._live.values():
                self.patterns.add(_patterns_of(live.rule))
                self.rules.add([live.rule])
        yield from self.patterns.lacking(
            [_patterns_of(rule) for rule, _ in coming], [_patterns_of(one.rule) for one in going]
        )
        yield from self.rules.lacking([[rule] for rule, _ in coming], [[one.rule] for one in going])
        yield from self.records.lacking(
            [_records_of(*one) for one in coming], [_records_of(one.rule, one.births) for one in going]
        )

    def put(self, before: LiveRule | None, after: LiveRule) -> None:
        """Count a rule that is added, or put in place of another."""
        self.records.add(_records_of(after.rule, after.births))
        if self._is_filled:
            self.patterns.add(_patterns_of(after.rule))
            self.rules.add([after.rule])
        if before is not None:
            self.remove(before)

    def remove(self, live: LiveRule) -> None:
        """Count a rule no more."""
        self.records.remove(_records_of(live.rule, live.births))
        if self._is_filled:
            self.patterns.remove(_patterns_of(live.rule))
            self.rules.remove([live.rule])


def _patterns_of(rule: Rule) -> frozenset[str]:
    return frozenset(pattern for _, pattern in requirements_of(rule.condition).patterns)


def _records_of(rule: Rule, births: Births) -> frozenset[tuple[Node, int]]:
    """Return the records without keys of a rule; none if it is disabled."""
    if not rule.enabled:
        return frozenset()
    parts = requirements_of(rule.condition, births)
    both = zip(parts.memories, parts.births, strict=True)
    return frozenset((node, own.birth) for (node, path), own in both if not path and _bytes_max(node))


def _bytes_max(node: Node) -> int:
    """Return the most bytes that the record of a node may take; 0 if it has none."""
    operator = remembering(node)
    memory = operator.memory(node)
    return memory.bytes_max(operator.keep(node)) if memory.is_record else 0
