"""Families: rules that differ in one window and in their birth only. Many are one member of the index.

Where a larger window can only make a rule true, or only false, an earlier birth can only do the same. So of
rules with one birth, those that fire at an event are all on one side, in the order of their windows. An event
evaluates a few of them to find where that side begins. It does so for the oldest and for the youngest birth.
Only rules between the two places are evaluated one by one.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from engine.evaluation.kernel.selection.selected_rows import Fire
from engine.evaluation.operators.table import operator_of
from engine.evaluation.paths import Path
from engine.evaluation.requirements import is_temporal
from engine.evaluation.slices.histories import Site
from engine.evaluation.slices.slices import Remembered
from engine.evaluation.stamps import NUMBER_BITS
from engine.language import condition as language
from engine.language.condition import Condition, walk

LARGE_FROM: Final = 16
"""Fewer rules than these are members of the index themselves, which then takes less time."""


class Kin(NamedTuple):
    """A rule, as one that may belong to a family."""

    family: tuple[Condition, Remembered]
    """The name of the family: the condition with a window of 0, and what the node with the window reads."""
    rank: int
    """The window in stamps, below 0 if a larger one can only make the rule false. If a rule is true, so are
    those of the same birth with higher ranks."""
    born: int
    """When the history of that node began, as a stamp."""

    @classmethod
    def of(cls, condition: Condition, site: Site) -> "Kin | None":
        """Return what a rule is to its family, or None if it cannot belong to one."""
        return _kin(condition, site, ())


class Family:
    """The rules of one family, in the order of their ranks."""

    __slots__ = ("_hardest", "condition", "easiest", "highest", "number", "rules", "site")

    edge: Final = "base - abs(rank)"
    born: Final = "born"
    """What code reads instead of constants: the stamps of the edge of a rule's window, and of its birth."""

    def __init__(self, condition: Condition, site: Site) -> None:
        self.condition, self.site = condition, site
        """Those of one of the rules."""
        self.number: int | None = None
        """That of the family in the index, or None as long as its rules are members themselves."""
        self.rules: list[tuple[int, int, int]] = []
        """The rank, the priority and the birth, as a stamp, of each."""
        self.highest = 0
        """The highest rank."""
        self.easiest = self._hardest = 0
        """Births, as stamps. With the first, a rule is true wherever it is true with its own; with the
        second, only there."""

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

    @property
    def is_large(self) -> bool:
        """Whether the family should be one member of the index."""
        return len(self.rules) >= LARGE_FROM

    def priorities(self) -> list[int]:
        """Return the priorities of the rules."""
        return [priority for _, priority, _ in self.rules]

    def fire(self, is_true: Callable[[int, int], bool], fire: Fire) -> None:
        """Fire the rules that are true, given the test of a rule of some rank and birth."""
        rules, easiest, hardest = self.rules, self.easiest, self._hardest
        first = bisect_left(rules, True, key=lambda rule: is_true(rule[0], easiest))
        sure = bisect_left(rules, True, first, key=lambda rule: is_true(rule[0], hardest))
        for rank, priority, born in rules[first:sure]:
            if is_true(rank, born):
                fire(priority)
        for _, priority, _ in rules[sure:]:
            fire(priority)


def _kin(node: Condition, site: Site, path: Path) -> Kin | None:
    """Return what a part of a rule would be to its family, if the rule were that part alone."""
    match node:
        case language.Keyed(inner, _, where) if where is None or not _looks_back(where):
            kin = _kin(inner, site, site.births.step(node, path))
            return kin and _around(kin, replace(node, inner=kin.family[0]))
        case language.Not(inner):
            kin = _kin(inner, site, path)
            return kin and _around(kin, language.Not(kin.family[0]))._replace(rank=-kin.rank)
        case language.All(members):
            looking_back = [place for place, member in enumerate(members) if _looks_back(member)]
            if len(looking_back) != 1:
                return None
            (place,) = looking_back
            kin = _kin(members[place], site, path)
            if kin is None:
                return None
            return _around(kin, language.All((*members[:place], kin.family[0], *members[place + 1 :])))
        case _:
            return _kin_of_part(node, site, path)


def _kin_of_part(part: Any, site: Site, path: Path) -> Kin | None:
    operator = operator_of(part)
    grows = operator and operator.grows(part)
    window_us = None if operator is None or grows is None else operator.window_us(part)
    if operator is None or not window_us:
        return None
    own = site.births.of(part, path)
    remembered = site.histories.remembered(operator.memory(part), path, own.birth)
    rank = window_us << NUMBER_BITS
    return Kin((replace(part, window_secs=0.0), remembered), rank if grows else -rank, own.born)


def _around(kin: Kin, condition: Condition) -> Kin:
    """Return kin with a condition around the part that they are."""
    return kin._replace(family=(condition, kin.family[1]))


def _looks_back(condition: Condition) -> bool:
    return any(is_temporal(node) for node, _ in walk(condition))
