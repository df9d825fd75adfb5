"""Counts the states of an expression's automaton, up to the number from which it explodes.

This is the determinized Glushkov automaton (1961). It has one place for each character once repetitions are
written out. A state is the set of places that partial matches have reached. Sets are bits of integers. Most
places lead only to the next one, which is a shift, as in Navarro and Raffinot, "Fast and Simple Character
Classes and Bounded Gaps Pattern Matching" (2003).
"""

from typing import Final, NamedTuple, assert_never

from engine.patterns.syntax.characters import POINT_MAX, Ranges, folded, merged
from engine.patterns.syntax.tree import Assertion, Choice, Class, Opaque, Repeat, Sequence, Text, Tree

STATES_MAX: Final = 400
"""An expression with at most this many states, plus one for each place, is harmless: they fit into RE2's
memory for it."""

STEPS_MAX: Final = 10_000
"""The maximum number of counting steps, about 5 ms. An expression that takes more counts as exploding."""

_LETTERS_A_STEP: Final = 8
_END: Final = 1
"""The set with only the first place, which stands for a complete match."""


class Counted(NamedTuple):
    """Whether an expression explodes, and the number of steps to decide it."""

    explodes: bool
    """Whether a text can make RE2 build a state for nearly each of its bytes."""
    steps: int


def counted(tree: Tree) -> Counted:
    """Count the states of a search that disregards the order of preference."""
    automaton = _Automaton()
    try:
        explodes = automaton.explodes(tree)
    except _NotCountedError:
        explodes = True
    return Counted(explodes, min(automaton.steps, STEPS_MAX))


class _NotCountedError(Exception):
    """Counting the states takes more than STEPS_MAX."""


class _Automaton:
    """Places by number, each with the set of places that may follow. Assertions count as true."""

    def __init__(self) -> None:
        self.steps = 0
        self._following: list[int] = [0]
        self._ranges: list[Ranges] = [()]
        self._unknown: list[int] = []
        """Places that accept an unknown set of letters."""
        self._conditions = 0
        """The number of assertions inside repetitions."""

    def explodes(self, tree: Tree) -> bool:
        """Return whether there are too many states to be harmless."""
        branches = tree.parts if isinstance(tree, Choice) else (tree,)
        first = restarting = 0
        for branch in branches:
            starts = self._build(branch, _END, repeated=False)
            first |= starts
            restarting |= 0 if _is_anchored(branch) else starts
        # Each repeated assertion can multiply the states by four: it may hold or not, before and after.
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
        """Add the places of a tree that is followed by `after`. Return its first places."""
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
        """Write out the copies like RE2: each optional copy is nested in the previous one."""
        end, least = after, tree.least
        if tree.most is None:
            start = len(self._following)
            after = self._build(tree.part, end, repeated=True)
            # The places that end the last copy also lead back to its start.
            for place in range(start, len(self._following)):
                if self._following[place] & end:
                    self._following[place] |= after
            after |= 0 if least else end
            least -= 1
        else:
            for _ in range(tree.most - least):
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
        """Return the set of places that accept a letter, for each class of letters."""
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
    """Return whether a match can only begin at the start of the text. False if unknown."""
    match tree:
        case Assertion():
            return tree.text_start
        case Sequence():
            return bool(tree.parts) and _is_anchored(tree.parts[0])
        case _:
            return False
