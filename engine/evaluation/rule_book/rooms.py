"""Bounds on what the rules of a detector take together: work, memory and size."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Final, Generic, TypeVar

from engine.evaluation.operators.table import remembering
from engine.evaluation.requirements import Births, requirements_of
from engine.evaluation.rules import Rule
from engine.language.condition import Condition
from engine.language.diagnostics import Entry, Refusal
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

    def check(self, coming: Collection[T], going: Iterable[T] = ()) -> None:
        """Raise Refusal 1400 if there is no room for what a rule needs. It may replace another rule."""
        more = sum(self._size_of(one) for one in coming if not self._uses[one])
        less = sum(self._size_of(one) for one in going if self._uses[one] == 1 and one not in coming)
        taken = self.taken + more - less
        # If the bound was lowered, a detector may exceed it, and its rules can still become smaller.
        if more > less and taken > self._most:
            raise Refusal(Entry(_FULL, self._said.format(taken=taken, most=self._most)))

    def check_all(self, coming: Iterable[Iterable[T]], going: Iterable[Iterable[T]]) -> None:
        """Raise Refusal 1400 if there is no room for what several rules need, once others are gone."""
        changes = Counter(one for things in coming for one in things)
        changes.subtract(one for things in going for one in things)
        growth = 0
        for one, change in changes.items():
            before = self._uses[one]
            if bool(before) != bool(before + change):
                growth += -self._size_of(one) if before else self._size_of(one)
        if growth > 0 and self.taken + growth > self._most:
            raise Refusal(Entry(_FULL, self._said.format(taken=self.taken + growth, most=self._most)))

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


def room_for_patterns(limits: Limits) -> Room[str]:
    """Return the room for the patterns of all rules, which are compiled anew at each activation."""
    said = "compiling the patterns of the detector's rules costs {taken} units; limit {most}"
    return Room(
        limits.detector_preparation_max, lambda pattern: compile_pattern(pattern, limits).preparation, said
    )


def patterns_of(condition: Condition) -> frozenset[str]:
    """Return the different patterns of a rule."""
    return frozenset(pattern for _, pattern in requirements_of(condition).patterns)


def room_for_records(limits: Limits) -> Room[tuple[Node, int]]:
    """Return the room for the records without keys of the enabled rules, each of a node and a birth."""
    said = "what the detector's rules count without `per` may grow to {taken} bytes; limit {most}"
    return Room(limits.state_bytes_max // RECORDS_SHARE, lambda record: _bytes_max(record[0]), said)


def records_of(condition: Condition, births: Births) -> frozenset[tuple[Node, int]]:
    """Return the records without keys of a rule."""
    parts = requirements_of(condition, births)
    both = zip(parts.memories, parts.births, strict=True)
    return frozenset((node, own.birth) for (node, path), own in both if not path and _bytes_max(node))


def _bytes_max(node: Node) -> int:
    """Return the most bytes that the record of a node may take; 0 if it has none."""
    operator = remembering(node)
    memory = operator.memory(node)
    return memory.bytes_max(operator.keep(node)) if memory.is_record else 0


def room_for_rules(limits: Limits) -> Room[Rule]:
    """Return the room for all rules, which are kept in memory, saved, copied and listed."""
    said = "the detector's rules take {taken} bytes as JSON; limit {most}"
    return Room(limits.rules_bytes_max, Rule.bytes_as_json, said)
