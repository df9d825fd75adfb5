"""Limits on all rules of a detector together: work, memory and size."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

from engine.evaluation.operators.table import remembering
from engine.evaluation.requirements import Requirements, requirements_of
from engine.evaluation.rules import LiveRule, Rule
from engine.language.diagnostics import Entry
from engine.language.limits import Limits
from engine.language.nodes import Node
from engine.patterns.compiled_pattern import compile_pattern

T = TypeVar("T")

RECORDS_SHARE: Final = 2
"""Records without keys cannot be evicted. They may take the limit on a detector's state divided by this, in
addition to the state with keys."""

_FULL: Final = 1400


class Budget:
    """A limit on something that rules need."""

    def __init__(self, most: int, said: str) -> None:
        """`said` is the message if the limit is exceeded, with `{taken}` and `{most}`."""
        self.taken = 0
        self._most, self._said = most, said

    def exceeded(self, growth: int) -> Iterator[Entry]:
        """Yield an error 1400 if an increase exceeds it."""
        # After the limit was lowered, a detector may exceed it, but its rules can still become smaller.
        if growth > 0 and self.taken + growth > self._most:
            yield Entry(_FULL, self._said.format(taken=self.taken + growth, most=self._most))


class SharedBudget(Budget, Generic[T]):
    """A limit on things that rules share. Each counts once, however many rules need it."""

    def __init__(self, most: int, size_of: Callable[[T], int], said: str) -> None:
        super().__init__(most, said)
        self._size_of = size_of
        self._uses = Counter[T]()
        """The number of rules that need each."""

    def growth(self, coming: Iterable[Iterable[T]], going: Iterable[Iterable[T]]) -> int:
        """Return the increase if some rules come and others go, given the things that each needs."""
        changes = Counter(one for things in coming for one in things)
        changes.subtract(one for things in going for one in things)
        growth = 0
        for one, change in changes.items():
            before = self._uses[one]
            if bool(before) != bool(before + change):
                growth += -self._size_of(one) if before else self._size_of(one)
        return growth

    def add(self, things: Iterable[T]) -> None:
        """Count the things that a rule needs."""
        for one in things:
            if not self._uses[one]:
                self.taken += self._size_of(one)
            self._uses[one] += 1

    def remove(self, things: Iterable[T]) -> None:
        """Undo `add` of the same things."""
        for one in things:
            self._uses[one] -= 1
            if not self._uses[one]:
                del self._uses[one]
                self.taken -= self._size_of(one)


class Budgets:
    """The limits on the rules of a detector: patterns, size, and records without keys."""

    def __init__(self, limits: Limits, live: Mapping[str, LiveRule]) -> None:
        self._live = live
        # The patterns of all rules are compiled anew at each activation.
        self.patterns = SharedBudget[str](
            limits.detector_preparation_max,
            lambda pattern: compile_pattern(pattern, limits).preparation,
            "compiling the patterns of the detector's rules costs {taken} units; limit {most}",
        )
        # All rules are kept in memory, saved, copied and listed.
        self.rules = Budget(
            limits.rules_bytes_max, "the detector's rules take {taken} bytes as JSON; limit {most}"
        )
        self.records = SharedBudget[tuple[Node, int]](
            limits.state_bytes_max // RECORDS_SHARE,
            lambda record: _bytes_max(record[0]),
            "what the detector's rules count without `per` may grow to {taken} bytes; limit {most}",
        )
        """The records of the enabled rules, each as a node and a birth."""
        self._is_filled = False
        """Whether patterns and rules are counted. The first change counts them; evaluation does not need
        it."""

    def exceeded(
        self, coming: Sequence[tuple[Rule, Requirements]], going: Sequence[LiveRule] = ()
    ) -> Iterator[Entry]:
        """Yield an error 1400 for each limit that would be exceeded if some rules came and others went."""
        if not self._is_filled:
            self._is_filled = True
            for live in self._live.values():
                self.patterns.add(_patterns_of(_needed(live)))
                self.rules.taken += live.rule.bytes_as_json()
        gone = [(live.rule, _needed(live)) for live in going]
        yield from self.patterns.exceeded(
            self.patterns.growth(*([_patterns_of(parts) for _, parts in each] for each in (coming, gone)))
        )
        yield from self.rules.exceeded(
            sum(rule.bytes_as_json() for rule, _ in coming) - sum(rule.bytes_as_json() for rule, _ in gone)
        )
        yield from self.records.exceeded(
            self.records.growth(*([_records_of(*one) for one in each] for each in (coming, gone)))
        )

    def put(self, before: LiveRule | None, after: LiveRule, parts: Requirements) -> None:
        """Count a rule with its requirements. It is added, or replaces another."""
        self.records.add(_records_of(after.rule, parts))
        if self._is_filled:
            self.patterns.add(_patterns_of(parts))
            self.rules.taken += after.rule.bytes_as_json()
        if before is not None:
            self.remove(before)

    def remove(self, live: LiveRule) -> None:
        """Stop counting a rule."""
        parts = _needed(live)
        self.records.remove(_records_of(live.rule, parts))
        if self._is_filled:
            self.patterns.remove(_patterns_of(parts))
            self.rules.taken -= live.rule.bytes_as_json()


def _needed(live: LiveRule) -> Requirements:
    return requirements_of(live.rule.condition, live.births)


def _patterns_of(parts: Requirements) -> frozenset[str]:
    return frozenset([pattern for _, pattern in parts.patterns])


def _records_of(rule: Rule, parts: Requirements) -> frozenset[tuple[Node, int]]:
    """Return the records without keys of a rule; none if it is disabled."""
    records = [use for use in parts.memories if not use.path and use.name.memory.is_record]
    return frozenset([(use.node, use.births.birth) for use in records] if rule.enabled else ())


def _bytes_max(node: Node) -> int:
    """Return the maximum size of a node's record."""
    operator = remembering(node)
    return operator.memory(node).bytes_max(operator.keep(node))
