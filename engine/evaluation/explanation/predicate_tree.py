"""A condition at an event as a function of the truths of its predicates, to find what would turn it.

`x > 1` counts as one predicate, although it is an `all` of two leaves.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from math import inf
from typing import Final, NamedTuple

from engine.evaluation.explanation.nodes import Decide, Node
from engine.evaluation.operators.table import parts_of
from engine.language import condition as language
from engine.language.condition import Condition, Predicate
from engine.language.text.printer import comparison_text

_KEPT: Final = -1
"""The number of a node that no event changes: a condition without members that is not a predicate."""


class _Part(NamedTuple):
    """A node with members, or a predicate with its number."""

    members: tuple[int, ...]
    """The places of its members, which come before it."""
    decide: Decide | None
    predicate: int
    verdict: bool


class PredicateTree:
    """The nodes of a condition, inner ones first, with each predicate once."""

    def __init__(self, root: Node) -> None:
        self.verdict = root.verdict
        self._parts: list[_Part] = []
        self._numbers: dict[Condition, int] = {}
        self._decided: dict[tuple[int, tuple[bool, ...]], bool] = {}
        """The cached verdicts of nodes, by place and truths of the members."""
        self.truths: list[bool] = []
        """The truth of each predicate at the event."""
        uses = Counter[int]()
        for _ in self._flatten(root, uses):
            pass
        self.predicates = tuple(self._numbers)
        """The predicates without duplicates, in the order of the condition."""
        # Each place of a predicate has a share of its cost, so that no set costs more than its size.
        self._shares = [1 / uses[number] for number in range(len(self.predicates))]

    def __len__(self) -> int:
        return len(self._parts)

    def _flatten(self, node: Node, uses: Counter[int]) -> Iterator[int]:
        """Add a node and all nodes inside it. Yield its place."""
        if is_predicate(node.condition):
            number = self._numbers.setdefault(node.condition, len(self._numbers))
            if number == len(self.truths):
                self.truths.append(node.verdict)
            uses[number] += 1
            self._parts.append(_Part((), None, number, node.verdict))
        else:
            members = tuple([place for inner in node.nodes for place in self._flatten(inner, uses)])
            self._parts.append(_Part(members, node.decide if members else None, _KEPT, node.verdict))
        yield len(self._parts) - 1

    def truth(self, truths: Sequence[bool]) -> bool:
        """Return the verdict if the predicates have these truths."""
        return self._all_truths(truths)[-1]

    def turned(self, predicates: Collection[int]) -> bool:
        """Return whether the verdict turns if exactly these predicates change."""
        return self.truth([kept is not (n in predicates) for n, kept in enumerate(self.truths)]) is not (
            self.verdict
        )

    def _all_truths(self, truths: Sequence[bool]) -> list[bool]:
        found: list[bool] = []
        for place, (members, decide, predicate, verdict) in enumerate(self._parts):
            if decide is not None:
                found.append(self._decide(place, decide, tuple([found[member] for member in members])))
            else:
                found.append(verdict if predicate == _KEPT else truths[predicate])
        return found

    def _decide(self, place: int, decide: Decide, truths: tuple[bool, ...]) -> bool:
        if decide is all or decide is any:
            return decide(truths)
        name = place, truths
        if name not in self._decided:
            self._decided[name] = decide(truths)
        return self._decided[name]

    # -- the cheapest set -----------------------------------------------------------------------------------

    def cheapest(self, changed: Collection[int], kept: Collection[int]) -> tuple[float, tuple[int, ...]]:
        """Return a lower bound for how many more predicates must change, and the seemingly cheapest ones.

        `changed` have changed already, `kept` must not change. The bound is infinite if no set suffices.
        """
        truths = self._all_truths([now is not (n in changed) for n, now in enumerate(self.truths)])
        costs: list[float] = []
        chosen: list[tuple[int, ...]] = []
        """The members to change in each node."""
        for place, (members, decide, predicate, _) in enumerate(self._parts):
            if decide is not None:
                cost, which = self._cheapest_of(place, decide, members, truths, costs)
                costs.append(cost)
                chosen.append(which)
                continue
            stays = predicate == _KEPT or predicate in changed or predicate in kept
            costs.append(inf if stays else self._shares[predicate])
            chosen.append(())
        if costs[-1] == inf:
            return inf, ()
        return costs[-1], self._predicates_in(chosen)

    def _cheapest_of(
        self, place: int, decide: Decide, members: tuple[int, ...], truths: list[bool], costs: list[float]
    ) -> tuple[float, tuple[int, ...]]:
        if decide is all or decide is any:
            decisive = decide is any
            if truths[place] is decisive:
                deciding = tuple([member for member in members if truths[member] is decisive])
                return sum([costs[member] for member in deciding]), deciding
            best = min(members, key=costs.__getitem__)
            return costs[best], (best,)
        cost, which = inf, members
        for flips in product((False, True), repeat=len(members)):
            tried = tuple([truths[member] is not flip for member, flip in zip(members, flips, strict=True)])
            if self._decide(place, decide, tried) is not truths[place]:
                some = tuple([member for member, flip in zip(members, flips, strict=True) if flip])
                more = sum([costs[member] for member in some])
                if more < cost:
                    cost, which = more, some
        return cost, which

    def _predicates_in(self, chosen: list[tuple[int, ...]]) -> tuple[int, ...]:
        found: dict[int, None] = {}
        pending = [len(self._parts) - 1]
        while pending:
            place = pending.pop()
            predicate = self._parts[place].predicate
            if predicate != _KEPT:
                found[predicate] = None
            pending += chosen[place]
        return tuple(sorted(found))


def is_predicate(condition: Condition) -> bool:
    """Return whether a condition counts as one predicate."""
    if isinstance(condition, language.All):
        return comparison_text(condition.members) is not None
    if isinstance(condition, language.Compare):
        return not parts_of(condition)
    return isinstance(condition, Predicate)


def leaves_of(predicate: Condition) -> list[Predicate | language.Compare]:
    """Return the conditions that are all true if and only if a predicate is."""
    members = predicate.members if isinstance(predicate, language.All) else (predicate,)
    return [one for one in members if isinstance(one, Predicate | language.Compare)]
