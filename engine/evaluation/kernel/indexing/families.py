"""Families: rules that differ only in one window and their births. A large one is one member of the index.

If a larger window can only make a rule true, or only false, an earlier birth can only do the same. So of the
rules with one birth, ordered by window, those that fire at an event are all on one side. An event evaluates a
few of them to find where that side begins, once for the oldest and once for the youngest birth. Only rules
between the two places are evaluated one by one.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from engine.evaluation.kernel.buckets.buckets import Fire
from engine.evaluation.operators.interface import Operator
from engine.evaluation.operators.table import OPERATORS
from engine.evaluation.requirements import Births, Requirements
from engine.evaluation.rules import Rule
from engine.evaluation.slices.slices import Remembered
from engine.evaluation.stamps import NUMBER_BITS
from engine.language import condition as language
from engine.language.condition import Condition

LARGE_FROM: Final = 16
"""Smaller families are not used: their rules are members of the index, which then takes less time."""


class Kin(NamedTuple):
    """The family that a rule may belong to, and its place there."""

    family: tuple[Condition, Remembered]
    """The name of the family: the condition with a window of 0, and the memory that the window applies to."""
    rank: int
    """The window in stamps, negative if a larger one can only make the rule false. If a rule is true, so are
    those of the same birth with higher ranks."""
    born: int
    """When the history of the node with the window began, as a stamp."""


def kin_of(condition: Condition, parts: Requirements, memories: Sequence[Remembered]) -> Kin | None:
    """Return the family and the place of a rule, or None if it cannot belong to one."""
    # If only one use is outermost, it is the first, and all others are inside it.
    if parts.outermost != 1 or not (first := parts.memories[0]).window_us:
        return None
    found = _without_window(condition)
    grows = first.operator.grows(first.node) if isinstance(first.operator, Operator) else None
    if found is None or grows is None:
        return None
    family, is_negated = found
    rank = first.window_us << NUMBER_BITS
    return Kin((family, memories[0]), rank if grows is not is_negated else -rank, first.births.born)


def _without_window(node: Condition) -> tuple[Condition, bool] | None:
    """Return a condition with a window of 0 in its only part that looks back, and whether that is negated.

    Return None if the part is not there, or inside another condition than `per`, `not` and `and`.
    """
    match node:
        case language.Keyed(inner):
            found = _without_window(inner)
            return found and (replace(node, inner=found[0]), found[1])
        case language.Not(inner):
            found = _without_window(inner)
            return found and (language.Not(found[0]), not found[1])
        case language.All(members):
            for place, member in enumerate(members):
                found = _without_window(member)
                if found is not None:
                    return language.All((*members[:place], found[0], *members[place + 1 :])), found[1]
            return None
        case _ if type(node) in OPERATORS:
            part: Any = node
            return replace(part, window_secs=0.0), False
        case _:
            return None


class Family:
    """The rules of a family, ordered by rank."""

    __slots__ = ("_hardest", "births", "condition", "easiest", "highest", "number", "rules")

    edge: Final = "base - abs(rank)"
    born: Final = "born"
    """Expressions that code reads instead of constants: the edge of a rule's window, and its birth, as
    stamps."""

    def __init__(self, condition: Condition, births: Births) -> None:
        self.condition, self.births = condition, births
        """The condition and births of one of the rules."""
        self.number: int | None = None
        """The number of the family in the index; None while its rules are members themselves."""
        self.rules: list[tuple[int, int, int]] = []
        """The rank, the priority and the birth, as a stamp, of each rule."""
        self.highest = 0
        """The highest rank."""
        self.easiest = self._hardest = 0
        """Births, as stamps. With the easiest, a rule is true whenever it is with its own birth; with the
        hardest, only then."""

    def add(self, rank: int, priority: int, born: int) -> None:
        """Add a rule."""
        if not self.rules:
            self.easiest = self._hardest = born
        insort(self.rules, (rank, priority, born))
        self.highest = self.rules[-1][0]
        births = sorted((self.easiest, self._hardest, born))
        # If a larger window can only make a rule true, an earlier birth can only do the same.
        self.easiest, _, self._hardest = births if rank > 0 else reversed(births)

    def remove(self, rank: int, priority: int) -> None:
        """Undo `add`."""
        del self.rules[bisect_left(self.rules, (rank, priority))]
        if self.rules:
            self.highest = self.rules[-1][0]

    def priorities(self) -> list[int]:
        """Return the priorities of the rules."""
        return [priority for _, priority, _ in self.rules]

    def fire(self, is_true: Callable[[int, int], bool], fire: Fire) -> None:
        """Fire the rules that are true, given the test of a rule by rank and birth."""
        rules, easiest, hardest = self.rules, self.easiest, self._hardest
        first = bisect_left(rules, True, key=lambda rule: is_true(rule[0], easiest))
        sure = bisect_left(rules, True, first, key=lambda rule: is_true(rule[0], hardest))
        for rank, priority, born in rules[first:sure]:
            if is_true(rank, born):
                fire(priority)
        for _, priority, _ in rules[sure:]:
            fire(priority)


class Families:
    """The families of one detector."""

    def __init__(self) -> None:
        self.of_kin: dict[tuple[Condition, Remembered], Family] = {}
        """The families by name."""

    def join(
        self, rule: Rule, births: Births, parts: Requirements, memories: Sequence[Remembered]
    ) -> Family | None:
        """Add a rule. Return its family if that represents its rules in the index."""
        kin = kin_of(rule.condition, parts, memories)
        if kin is None:
            return None
        family = self.of_kin.setdefault(kin.family, Family(rule.condition, births))
        family.add(kin.rank, rule.priority, kin.born)
        return family if family.number is not None or len(family.rules) >= LARGE_FROM else None

    def leave(self, rule: Rule, parts: Requirements, memories: Sequence[Remembered]) -> Family | None:
        """Undo `join`. Return the family if that represents its rules in the index."""
        kin = kin_of(rule.condition, parts, memories)
        if kin is None:
            return None
        family = self.of_kin[kin.family]
        family.remove(kin.rank, rule.priority)
        if not family.rules:
            del self.of_kin[kin.family]
        return None if family.number is None else family
