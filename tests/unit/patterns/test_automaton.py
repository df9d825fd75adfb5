"""The number of states is that of the textbook's automaton, and the steps of counting them have a bound."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.patterns import automaton
from engine.patterns.automaton import Counted, counted
from engine.patterns.syntax.cost import places
from engine.patterns.syntax.reader import read
from engine.patterns.syntax.tree import Assertion, Choice, Class, Repeat, Sequence, Text, Tree

STATES = 3_000
"""No expression of these tests has so many."""


@dataclass
class Glushkov:
    """The sets of Glushkov (1961): the first places, the last ones, and those that follow each place."""

    letters: list[set[str]] = field(default_factory=list)
    follow: list[set[int]] = field(default_factory=list)

    def build(self, tree: Tree) -> tuple[set[int], set[int], bool]:
        """Return the first places of a tree, its last ones, and whether it matches the empty text."""
        match tree:
            case Text(text, _):
                return self.build_all([self.place({letter}) for letter in text])
            case Class(ranges):
                points = {chr(point) for low, high in ranges for point in range(low, min(high, 0x7F) + 1)}
                return self.place(points)
            case Sequence(parts):
                return self.build_all([self.build(part) for part in parts])
            case Choice(parts):
                firsts, lasts, empties = zip(*(self.build(part) for part in parts), strict=True)
                return set().union(*firsts), set().union(*lasts), any(empties)
            case Repeat(part, least, None):
                copies = [self.build(part) for _ in range(max(least, 1))]
                first, last, empty = copies[-1]
                self.connect(last, first)
                copies[-1] = first, last, empty or not least
                return self.build_all(copies)
            case Repeat(part, least, int() as most):
                copies = [self.build(part) for _ in range(least)]
                rest = self.build_all([])
                for _ in range(least, most):
                    rest = *self.build_all([self.build(part), rest])[:2], True
                return self.build_all([*copies, rest])
        raise AssertionError(tree)

    def place(self, letters: set[str]) -> tuple[set[int], set[int], bool]:
        self.letters.append(letters)
        self.follow.append(set())
        return {len(self.follow) - 1}, {len(self.follow) - 1}, False

    def build_all(self, parts: list[tuple[set[int], set[int], bool]]) -> tuple[set[int], set[int], bool]:
        """Put parts one behind the other."""
        first, last, empty = set[int](), set[int](), True
        for next_first, next_last, next_empty in parts:
            self.connect(last, next_first)
            first |= next_first if empty else set()
            last = next_last | (last if next_empty else set())
            empty = empty and next_empty
        return first, last, empty

    def connect(self, lasts: set[int], firsts: set[int]) -> None:
        for last in lasts:
            self.follow[last] |= firsts


def states_of(branches: list[tuple[Tree, bool]]) -> int:
    """Count the sets of places that texts reach; a branch that is anchored begins at their start alone."""
    glushkov = Glushkov()
    built = [(glushkov.build(tree)[0], anchored) for tree, anchored in branches]
    start = set().union(*(first for first, _ in built))
    again = set().union(*(first for first, anchored in built if not anchored))
    known = set[frozenset[int]]()
    waiting = [start]
    while waiting:
        reached = waiting.pop()
        # One letter more stands for those that no place accepts.
        for letter in [*map(chr, range(0x80)), ""]:
            taken = frozenset(place for place in reached if letter in glushkov.letters[place])
            if taken not in known:
                known.add(taken)
                waiting.append(again.union(*(glushkov.follow[place] for place in taken)))
    return len(known)


def states(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> int:
    """Count the states as the product does."""
    low, high = 0, STATES
    while low < high:
        middle = (low + high) // 2
        # An expression may have one state more for each place.
        monkeypatch.setattr(automaton, "STATES_MAX", middle - places_of(tree) - 1)
        low, high = (middle + 1, high) if counted(tree).explodes else (low, middle)
    return low


def places_of(tree: Tree) -> int:
    """Count the places as they are written out: without the copies that may be left out."""
    match tree:
        case Sequence(parts) | Choice(parts):
            return sum(map(places_of, parts))
        case Repeat(part, least, most):
            return places_of(part) * (max(least, 1) if most is None else most)
        case _:
            return places(tree)


letters = st.builds(lambda text: Text(text, fold=False), st.text("ab", min_size=1, max_size=3))
classes = st.sampled_from([Class(((97, 98),)), Class(((98, 99),)), Class(((0, 0x10FFFF),))])
counts = st.sampled_from([(0, None), (1, None), (2, None), (0, 1), (0, 2), (1, 3), (2, 2), (0, 0)])
trees = st.recursive(
    letters | classes,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: Sequence(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Choice(tuple(parts))),
        st.builds(lambda part, times: Repeat(part, *times), inner, counts),
    ),
    max_leaves=5,
)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?:x(?:a|b)c)+b",
        "(?:x(?:a+)c)+b",
        "(?:ab|a)+b",
        "(?:aab|ab)*b",
        "a{3,}b",
        "(?:a?b){3,}a",
        "(?:a|b)*a(?:a|b){3}",
        "(?:ab?){2,4}b",
        "(?:a{2,}b)+",
        "a{0}b",
        "(?:ab){0,2}c",
        "(?:a(?:a|b)b)+",
        "(?:a[ab]+c)+",
        "a[ab]{3,}c",
        "a[ab]{3}c",
        "a[ab]{1,3}c",
    ],
)
def test_repetitions_have_the_states_of_the_textbook(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = known(pattern)
    assert states(tree, monkeypatch) == states_of([(tree, False)])
    assert states(Sequence((START, tree)), monkeypatch) == states_of([(tree, True)])


START = Assertion(True, word=False)


@given(st.lists(st.tuples(trees, st.booleans()), min_size=1, max_size=2))
def test_the_states_are_those_of_the_textbook(branches: list[tuple[Tree, bool]]) -> None:
    parts = tuple(Sequence((START, tree)) if anchored else tree for tree, anchored in branches)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(automaton, "STEPS_MAX", 10**6)
        counted_states = states(parts[0] if len(parts) == 1 else Choice(parts), monkeypatch)
    assert counted_states == states_of(branches)


@pytest.mark.parametrize(
    ("pattern", "explodes"),
    [
        # An unknown set may hold any of the letters.
        (r"\pL.{9}c", True),
        ("..{9}c", False),
        (r"^\pL.{9}c", False),
        # Each branch begins where it may.
        ("^[ab].{9}c|^d", False),
        ("^[ab].{9}c|d", False),
        ("^d|[ab].{9}c", True),
    ],
)
def test_what_may_begin_anywhere_explodes_where_it_may_have_begun_often(pattern: str, explodes: bool) -> None:
    assert counted(known(pattern)).explodes is explodes


@pytest.mark.parametrize(
    ("pattern", "conditions"),
    [
        (r"(?:\ba)*b", 1),
        (r"(?:\ba){2}b", 2),
        (r"(?:\ba){1,2}b", 2),
        (r"\b(?:a)*b$", 0),
        (r"(?:(?:\ba|c)\B)+b", 2),
    ],
)
def test_each_assertion_in_a_repetition_leaves_a_quarter_of_the_states(
    pattern: str, conditions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = states(known(pattern.replace(r"\b", "").replace(r"\B", "")), monkeypatch)
    assert states(known(pattern), monkeypatch) == without << (2 * conditions)


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        # Two places, a range for each, a step for the beginning, and one for each of the three states.
        ("ab", 2 + 2 + 1 + 3),
        # The place of a repetition branches.
        ("a+", 1 + 1 + 1 + 2 + 1),
        # An unknown set may take the letters of none, of all places, and of the first alone.
        (r"\pLa", 2 + 2 + 3 + 1 + 4),
        # Each state takes a step more for eight letters.
        ("abcdefgh", 8 + 8 + 2 * (1 + 9)),
    ],
)
def test_the_steps_are_counted_and_bounded(pattern: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted(known(pattern)) == Counted(False, steps)
    monkeypatch.setattr(automaton, "STEPS_MAX", steps)
    assert counted(known(pattern)) == Counted(False, steps)
    monkeypatch.setattr(automaton, "STEPS_MAX", steps - 1)
    assert counted(known(pattern)) == Counted(True, steps - 1)


@pytest.mark.parametrize(
    "pattern", ["((((a|b)?){40}x?){40}y?){9}q", "(" + "|".join("abcdefgh") * 9 + "){30,90}x"]
)
def test_counting_ends_where_it_would_take_too_long(pattern: str) -> None:
    assert counted(known(pattern)) == Counted(True, automaton.STEPS_MAX)


def known(pattern: str) -> Tree:
    tree = read(pattern)
    assert tree is not None
    return tree
