"""Finds the smallest set of predicates that would turn a verdict if they changed their truths at this event.

A set counts if the verdict turns when exactly these predicates change, and also at some event that changes
all of them and differs only in the facts that they use. The search is best-first branch and bound: it
branches on whether a predicate of the cheapest set changes or stays. The bound of a branch is the cost of its
cheapest set. The search takes exponential time at worst, so its steps are limited.
"""

from heapq import heappop, heappush
from itertools import count
from math import ceil, inf
from typing import Final, NamedTuple

from engine.evaluation.explanation.nodes import Node
from engine.evaluation.explanation.possible_events import PossibleEvents
from engine.evaluation.explanation.predicate_tree import PredicateTree
from engine.evaluation.explanation.predicates import Predicates
from engine.language.condition import Condition

STEPS_MAX: Final = 30_000
"""The maximum number of nodes and predicates visited for all rules of one explanation, besides a few visits
of each."""

_NEARLY: Final = 1e-9


class Steps:
    """The remaining steps of one explanation."""

    def __init__(self) -> None:
        self.left = STEPS_MAX

    def take(self, steps: int) -> bool:
        """Use up some steps. Return whether any are left."""
        self.left -= steps
        return self.left > 0


class Turning(NamedTuple):
    """The set of predicates that would turn a verdict."""

    predicates: tuple[Condition, ...] | None
    """In the order of the condition; None if no set was found."""
    is_smallest: bool
    """Whether the search is complete, so no smaller set exists."""


def why_not(root: Node, predicates: Predicates, steps: Steps) -> Turning:
    """Return the smallest set that turns the verdict, as far as the remaining steps suffice."""
    search = _Search(PredicateTree(root), predicates, steps)
    found, is_smallest = search.run()
    if found is None:
        return Turning(None, is_smallest)
    return Turning(tuple([search.tree.predicates[number] for number in sorted(found)]), is_smallest)


class _Search:
    def __init__(self, tree: PredicateTree, predicates: Predicates, steps: Steps) -> None:
        self.tree = tree
        self._possible = PossibleEvents(tree, predicates, steps.take)
        self._steps = steps
        self._branches: list[tuple[int, int, int, frozenset[int], frozenset[int], tuple[int, ...]]] = []
        """A heap of: the bound, minus the number of changed predicates, a serial number, the changed
        predicates, the kept ones, and the cheapest set of the rest."""
        self._orders = count()
        self._best: frozenset[int] | None = None
        """The smallest set found so far."""
        self._is_cut = False
        """Whether a branch was left out for lack of steps."""

    def run(self) -> tuple[frozenset[int] | None, bool]:
        """Return the best set found, and whether it is certainly the smallest."""
        self._push(frozenset(), frozenset())
        while self._branches:
            bound, _, _, changed, kept, rest = heappop(self._branches)
            if self._best is not None and bound >= len(self._best):
                break
            whole = changed.union(rest)
            if self._turns(whole):
                self._best = whole
            if self._best is None or bound < len(self._best):
                self._branch(changed, kept, rest)
        return self._best, not (self._is_cut or self._possible.is_cut)

    def _turns(self, whole: frozenset[int]) -> bool:
        if self._best is not None and len(whole) >= len(self._best):
            return False
        self._steps.take(len(self.tree))
        return self.tree.turned(whole) and self._possible.allows(whole)

    def _branch(self, changed: frozenset[int], kept: frozenset[int], rest: tuple[int, ...]) -> None:
        if rest:
            self._push(changed | {rest[0]}, kept)
            self._push(changed, kept | {rest[0]})
            return
        # These predicates turn the verdict, but no event changes exactly them. More of them may work.
        for number in range(len(self.tree.predicates)):
            if number not in changed and number not in kept:
                self._push(changed | {number}, kept)
                kept |= {number}

    def _push(self, changed: frozenset[int], kept: frozenset[int]) -> None:
        begins = not changed and not kept
        if not self._steps.take(len(self.tree)) and not begins:
            self._is_cut = True
            return
        turned = self.tree.turned(changed)
        more, rest = (0.0, ()) if turned else self.tree.cheapest(changed, kept)
        if more < inf:
            bound = len(changed) + ceil(more - _NEARLY)
            heappush(self._branches, (bound, -len(changed), next(self._orders), changed, kept, rest))
