"""Counts the states of an expression's automaton, up to where their number no longer matters.

A state is the set of the places that the matches under way have come to: Glushkov's automaton (1961), one
place for each character once repetitions are written out, made deterministic. Sets are the bits of integers,
and most places lead to the next one alone, which is a shift, as in Navarro and Raffinot, "Fast and Simple
Character Classes and Bounded Gaps Pattern Matching" (2003).
"""

from typing import Final, NamedTuple, assert_never

from engine.patterns.syntax import (
    POINT_MAX,
    Assertion,
    Choice,
    Class,
    Opaque,
    Ranges,
    Repeat,
    Sequence,
    Text,
    Tree,
    folded,
    merged,
)

STATES_MAX: Final = 400
"""An expression with at most so many states, and one more for each place, is harmless: they fit into the
memory that RE2 is given for it."""

STEPS_MAX: Final = 10_000
"""Bounds the work of counting, to some 5 ms. An expression that takes more counts as exploding."""

_LETTERS_A_STEP: Final = 8
_END: Final = 0
"""The place that stands for a complete match."""


class Counted(NamedTuple):
    """Whether an expression explodes, and how many steps it took to tell."""

    explodes: bool
    """Whether some text may have RE2 build a state for nearly each of its bytes."""
    steps: int


def counted(tree: Tree) -> Counted:
    """Count the states of a search for an expression, without regard to the order of preference."""
    automaton = _Automaton()
    try:
        explodes = automaton.explodes(tree)
    except _NotCountedError:
        explodes = True
    return Counted(explodes, min(automaton.steps, STEPS_MAX))


class _NotCountedError(Exception):
    """The states are not counted within STEPS_MAX."""


class _Automaton:
    """Places by number, each with the set of places that may come next. Assertions count as true."""

    def __init__(self) -> None:
        self.steps = 0
        self._following: list[int] = [0]
        self._ranges: list[Ranges] = [()]
        self._unknown: list[int] = []
        """Places that take some letters, of which it is not known which."""
        self._conditions = 0
        """How many assertions are repeated."""

    def explodes(self, tree: Tree) -> bool:
        """Tell whether there are more states than are harmless."""
        branches = tree.parts if isinstance(tree, Choice) else (tree,)
        first = restarting = 0
        for branch in branches:
            starts = self._build(branch, 1 << _END, repeated=False)
            first |= starts
            restarting |= 0 if _is_anchored(branch) else starts
        # Where an assertion that is repeated may hold or not, before a match and behind it, states differ.
        states_max = (STATES_MAX + len(self._following)) >> (2 * self._conditions)
        letters = self._letters()
        stepping = sum(
            1 << place for place, after in enumerate(self._following) if place and after == 1 << (place - 1)
        )
        known: set[int] = set()
        waiting = [first]
        while waiting and len(known) <= states_max:
            reached = waiting.pop()
            self._spend(1 + len(letters) // _LETTERS_A_STEP)
            for taken in {reached & letter for letter in letters} - known:
                known.add(taken)
                after = (taken & stepping) >> 1 | restarting
                branching = taken & ~stepping
                self._spend(branching.bit_count())
                while branching:
                    place = branching.bit_length() - 1
                    after |= self._following[place]
                    branching ^= 1 << place
                waiting.append(after)
        return len(known) > states_max

    def _build(self, tree: Tree, after: int, *, repeated: bool) -> int:
        """Give the places that begin a tree which the places of `after` follow."""
        match tree:
            case Text(text, fold):
                for letter in reversed(text):
                    point = ((ord(letter), ord(letter)),)
                    after = self._place(folded(point) if fold else point, after)
                return after
            case Class(ranges):
                return self._place(ranges, after)
            case Opaque():
                place = self._place(((0, POINT_MAX),), after)
                self._unknown.append(place)
                return place
            case Assertion():
                self._conditions += repeated
                return after
            case Sequence(parts):
                for part in reversed(parts):
                    after = self._build(part, after, repeated=repeated)
                return after
            case Choice(parts):
                first = 0
                for part in parts:
                    first |= self._build(part, after, repeated=repeated)
                return first
            case Repeat():
                return self._repeated(tree, after)
            case _:
                assert_never(tree)

    def _repeated(self, tree: Repeat, after: int) -> int:
        """Write out the copies as RE2 does: each optional one stands within the one before it."""
        end, least = after, tree.least
        if tree.most is None:
            start = len(self._following)
            after = self._build(tree.part, end, repeated=True)
            # What leads out of the last copy leads back to its beginning as well.
            for place in range(start, len(self._following)):
                if self._following[place] & end:
                    self._following[place] |= after
            after |= 0 if least else end
            least -= 1
        for _ in range((tree.most or 0) - least if tree.most is not None else 0):
            after = self._build(tree.part, after, repeated=True) | end
        for _ in range(least):
            after = self._build(tree.part, after, repeated=True)
        return after

    def _place(self, ranges: Ranges, after: int) -> int:
        self._spend(1)
        self._ranges.append(ranges)
        self._following.append(after)
        return 1 << (len(self._following) - 1)

    def _letters(self) -> list[int]:
        """Give the places that take a letter, for each kind of letter that the expression tells apart."""
        alike: dict[Ranges, int] = {}
        for place, ranges in enumerate(self._ranges):
            alike[ranges] = alike.get(ranges, 0) | 1 << place
        changes: dict[int, int] = {}
        for ranges, places in alike.items():
            self._spend(len(ranges))
            for start, end in merged(ranges):
                for point in (start, end + 1):
                    changes[point] = changes.get(point, 0) ^ places
        taking, kinds = 0, {0}
        for point in sorted(changes):
            taking ^= changes[point]
            kinds.add(taking)
        for place in self._unknown:
            self._spend(len(kinds))
            kinds |= {kind & ~place for kind in kinds}
        return list(kinds)

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > STEPS_MAX:
            raise _NotCountedError


def _is_anchored(tree: Tree) -> bool:
    """Tell whether a match can begin at the text's first character only; in doubt, it can elsewhere."""
    match tree:
        case Assertion():
            return tree.text_start
        case Sequence():
            return bool(tree.parts) and _is_anchored(tree.parts[0])
        case _:
            return False
