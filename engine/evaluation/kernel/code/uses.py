"""How often rules use each predicate, fact, path and node, so that repeated ones are evaluated only once."""

from collections import Counter
from collections.abc import Hashable, Iterable
from sys import maxsize
from typing import Final

from engine.evaluation.facts.look_up import RUNS_PARTS_MAX, field_names
from engine.evaluation.operators.table import operator_of, parts_of
from engine.evaluation.paths import Path
from engine.evaluation.requirements import Births, inside
from engine.language import condition as language
from engine.language.condition import Condition, Predicate
from engine.language.forms.table import facts_of
from engine.language.nodes import Node
from engine.language.operators import LARGEST

SHORT: Final = frozenset({"eq", "neq", "in", "nin", "between"})
"""The operators of leaves that are decided in a few steps, whatever the values."""

DECIDED_ONCE_FROM: Final = 3
"""A short predicate used at least this often is decided once for each event, before all others."""


class _EveryName(frozenset[str]):
    """The set of all names."""

    def __contains__(self, name: object) -> bool:
        return True

    def __len__(self) -> int:
        return maxsize


class Uses:
    """What some rules use, and how often.

    With `at_once`, all facts are looked up first, before the rules read any of them. `besides` are further
    facts that are read, apart from the conditions.
    """

    def __init__(
        self,
        rules: Iterable[tuple[Condition, Births]],
        *,
        at_once: bool = False,
        besides: Iterable[str] = (),
    ) -> None:
        self._at_once = at_once
        self._counts: Counter[Hashable] = Counter(("fact", name) for name in besides)
        self._paths: set[Path] = set()
        self._types: dict[str, type] = {}
        for condition, births in rules:
            self._visit(condition, births, ())

    @property
    def fields(self) -> frozenset[str]:
        """The names of the fields that may contain a fact: `a` and `a.b` for `a.b`.

        If a name has very many parts, or all strings are searched, this is the set of all names.
        """
        facts = [str(each[1]) for each in self._counts if isinstance(each, tuple) and each[0] == "fact"]
        names = [fact for fact in facts if not fact.startswith("$")]
        if any(name.count(".") >= RUNS_PARTS_MAX or name == language.STRINGS for name in names):
            return _EveryName()
        return frozenset(field for name in names for field in field_names(name))

    def expected(self, name: str) -> type:
        """Return the type of a constant that some leaf compares a fact with; `str` if there is none."""
        return self._types.get(name, str)

    def repeats_fact(self, name: str) -> bool:
        """Return whether a fact is read by more than one predicate, or by other code."""
        return self._at_once or self._counts["fact", name] > 1

    def repeats_number(self, name: str, least: int = 2) -> bool:
        """Return whether a fact is compared as a number at least this often."""
        return self._counts["number", name] >= least

    def repeats_address(self, name: str) -> bool:
        """Return whether the address in a fact is used more than once."""
        return self._counts["address", name] > 1

    def repeats_node(self, node: Node, path: Path, birth: object) -> bool:
        """Return whether rules share the verdict of a node that looks back."""
        return self._counts[node, path, birth] > 1

    def decides_once(self, node: Condition) -> bool:
        """Return whether a predicate is decided before all others."""
        return self._counts[node] >= DECIDED_ONCE_FROM

    def looks_back(self, path: Path) -> bool:
        """Return whether there are memories under a path."""
        return path in self._paths

    def _visit(self, node: Condition, births: Births, path: Path) -> None:
        match node:
            case _ if isinstance(node, Predicate):
                self._predicate(node)
            case language.All() if (range_ := open_range(node)) is not None:
                self._predicate(range_)
            case language.Compare():
                self._comparison(node, births, path)
            case language.Keyed(_, key):
                self._counts["fact", key] += 2
                self._visit_inside(node, births, path)
            case _:
                if operator_of(node) is not None:
                    self._paths.add(path)
                    known = node, path, births.name(node, path)
                    self._counts[known] += 1
                    self._counts.update({("fact", name): 2 for name in facts_of(node)})
                    if self.repeats_node(*known):
                        return
                self._visit_inside(node, births, path)

    def _visit_inside(self, node: Condition, births: Births, path: Path) -> None:
        for child in inside(node, births, path):
            self._visit(*child)

    def _comparison(self, node: language.Compare, births: Births, path: Path) -> None:
        parts = parts_of(node)
        # The memories of terms read their facts, too.
        times = 2 if parts else 1
        for name in facts_of(node):
            self._counts["fact", name] += times
        if not parts:
            self._counts[node] += 1
            return
        self._paths.add(path)
        known = node, path, births.name(node, path)
        self._counts[known] += 1
        if self.repeats_node(*known):
            return
        self._counts.update((part, path, births.of(part, path).birth) for part in parts)
        self._visit_inside(node, births, path)

    def _predicate(self, node: Predicate) -> None:
        self._counts.update(("fact", name) for name in facts_of(node))
        if isinstance(node, language.InNetwork):
            # The code reads the address from a variable.
            self._counts["fact", node.fact] += 1
            self._counts["address", node.fact] += 1
        if isinstance(node, language.Leaf):
            one = (*node.value, "")[0] if isinstance(node.value, tuple) else node.value
            self._types[node.fact] = type(one)
            self._counts["number", node.fact] += node.op == "between"
            self._counts[node] += node.op in SHORT


def open_range(node: Condition) -> language.Leaf | None:
    """Return the range of `x > 5` or `x < 5`, whose end is excluded; None for other conditions."""
    match node:
        case language.All((language.Leaf(fact, "between", ends) as range_, language.Leaf(same, "neq", end))):
            # In Python, True equals 1.
            if fact == same and not isinstance(end, bool | str | tuple) and abs(end) != LARGEST:
                return range_ if ends in ((end, LARGEST), (-LARGEST, end)) else None
    return None
