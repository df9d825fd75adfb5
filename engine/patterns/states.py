"""How many states RE2's automaton has for an expression, counted up to where it no longer matters.

A state of RE2 is the list of the places that a match may have come to, the preferred ones first: of matches
that begin at different characters the earlier one, of repetitions the longer, or the shorter where they are
lazy. Thompson's construction (1968), and lists of places as in Cox, "Regular Expression Matching: the Virtual
Machine Approach" (2009), over the letters that the expression tells apart.
"""

from collections.abc import Callable
from itertools import chain
from typing import Final, NamedTuple, assert_never

from engine.patterns.syntax import (
    POINT_MAX,
    Assertion,
    Char,
    Choice,
    Class,
    Opaque,
    Ranges,
    Repeat,
    Sequence,
    Tree,
    folded,
    merged,
)

STATES_MAX: Final = 400
"""Expressions of at most so many states are harmless: as many of RE2's own, and more, fit into its memory."""

STEPS_MAX: Final = 25_000
"""What counting may take: some milliseconds. What takes more is said to have more than STATES_MAX states."""

_Ordered = Callable[[dict[int, None]], list[int]]
"""Puts the places of a state in the order in which RE2 keeps them."""

_END: Final = 0
"""The node at which a match is complete."""


class Counted(NamedTuple):
    """How many states there are, any number above STATES_MAX for more, and how many steps it took to tell."""

    states: int
    steps: int


def states(tree: Tree) -> Counted:
    """Count the states that a search through a text has."""
    return _counted(tree, list, backwards=False)


def states_backwards(tree: Tree) -> Counted:
    """Count those of the search from a match's end to its beginning, for which the order is no matter."""
    return _counted(tree, sorted, backwards=True)


def _counted(tree: Tree, ordered: "_Ordered", *, backwards: bool) -> Counted:
    spent = _Steps()
    try:
        found = _Automaton(tree, spent, backwards=backwards).count(ordered)
    except _TooManyStepsError:
        found = STATES_MAX + 1
    return Counted(found, min(spent.count, STEPS_MAX))


class _TooManyStepsError(Exception):
    """The states were not counted to their end."""


class _Steps:
    """How many steps a count has taken so far."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def spend(self, steps: int) -> None:
        """Take some more. Raises _TooManyStepsError past STEPS_MAX."""
        self.count += steps
        if self.count > STEPS_MAX:
            raise _TooManyStepsError


class _Automaton:
    """Nodes that take a letter, and nodes that branch; both know the nodes that come next, preferred first.

    Assertions are taken as holding.
    """

    def __init__(self, tree: Tree, steps: _Steps, *, backwards: bool) -> None:
        self._spend = steps.spend
        self._backwards = backwards
        self._next: list[tuple[int, ...]] = [()]
        self._ranges: list[Ranges | None] = [None]
        self._closures: dict[int, tuple[int, ...]] = {}
        branches = tree.parts if isinstance(tree, Choice) else (tree,)
        starts = [(self._build(branch, _END), branch) for branch in branches]
        self._first = self._together([start for start, _ in starts])
        anywhere = [start for start, branch in starts if not (backwards or _is_anchored(branch))]
        self._restarting = self._together(anywhere)

    def count(self, ordered: "_Ordered") -> int:
        """Count the lists of nodes that have just taken a letter."""
        letters = [letter.__contains__ for letter in self._letters()]
        known: set[tuple[int, ...]] = set()
        waiting = [self._first]
        while waiting and len(known) <= STATES_MAX:
            reached = waiting.pop()
            self._spend((len(reached) // 4 + 1) * len(letters))
            # Only letters that take different places lead to different lists.
            for taken in dict.fromkeys(tuple(filter(letter, reached)) for letter in letters):
                self._spend(len(taken))
                if taken not in known:
                    known.add(taken)
                    after = chain.from_iterable(map(self._closure, taken))
                    waiting.append(tuple(ordered(dict.fromkeys(chain(after, self._restarting)))))
        return min(len(known), STATES_MAX + 1)

    def _together(self, starts: list[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(self._reachable((start,)) for start in starts)))

    def _closure(self, node: int) -> tuple[int, ...]:
        """Give the nodes that may take the letter after the one that this node takes."""
        known = self._closures.get(node)
        if known is None:
            known = self._closures[node] = self._reachable(self._next[node])
        self._spend(len(known))
        return known

    def _reachable(self, starts: tuple[int, ...]) -> tuple[int, ...]:
        """Give the nodes that take a letter and are reached without one, the preferred first."""
        seen: set[int] = set()
        found: list[int] = []
        waiting = list(reversed(starts))
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            self._spend(1)
            if self._ranges[node] is not None:
                found.append(node)
            else:
                waiting.extend(reversed(self._next[node]))
        return tuple(found)

    def _node(self, ranges: Ranges | None, *after: int) -> int:
        self._spend(1)
        self._ranges.append(ranges)
        self._next.append(after)
        return len(self._next) - 1

    def _build(self, tree: Tree, after: int) -> int:
        """Give the node at which a tree begins that is followed by another node."""
        match tree:
            case Char():
                point = ((tree.point, tree.point),)
                return self._node(folded(point) if tree.fold else point, after)
            case Class():
                return self._node(tree.ranges, after)
            case Opaque():
                return self._node(((0, POINT_MAX),), after)
            case Assertion():
                return after
            case Sequence():
                for part in tree.parts if self._backwards else reversed(tree.parts):
                    after = self._build(part, after)
                return after
            case Choice():
                return self._node(None, *(self._build(part, after) for part in tree.parts))
            case Repeat():
                return self._repeated(tree, after)
            case _:
                assert_never(tree)

    def _repeated(self, tree: Repeat, after: int) -> int:
        """Write out the copies as RE2 does: each optional one stands within the one before it."""
        end = after
        if tree.most is None:
            loop = self._node(None)
            body = self._build(tree.part, loop)
            self._next[loop] = (after, body) if tree.lazy else (body, after)
            after = body if tree.least else loop
        else:
            for _ in range(tree.most - tree.least):
                body = self._build(tree.part, after)
                after = self._node(None, *((end, body) if tree.lazy else (body, end)))
        for _ in range(tree.least - (tree.most is None and tree.least > 0)):
            after = self._build(tree.part, after)
        return after

    def _letters(self) -> list[frozenset[int]]:
        """Give the nodes that take a letter, for each kind of letter that the expression tells apart."""
        changes: dict[int, list[int]] = {}
        for node, ranges in enumerate(self._ranges):
            self._spend(len(ranges or ()))
            for start, end in merged(ranges or ()):
                changes.setdefault(start, []).append(node)
                changes.setdefault(end + 1, []).append(node)
        taking: set[int] = set()
        kinds: dict[frozenset[int], None] = {frozenset(): None}
        for point in sorted(changes):
            self._spend(len(taking))
            taking.symmetric_difference_update(changes[point])
            kinds[frozenset(taking)] = None
        return list(kinds)


def _is_anchored(tree: Tree) -> bool:
    """Tell whether a match begins at the text's first character; in doubt not."""
    match tree:
        case Assertion():
            return tree.text_start
        case Sequence():
            return bool(tree.parts) and _is_anchored(tree.parts[0])
        case _:
            return False
