"""Decides which sets of predicates an event can change: whether some values turn all of them together.

For each fact of a set, some values are tried: the constants that the rule compares it with, and values
between and beyond them. A text that is not a constant of the rule is assumed to match any patterns and to
contain any texts. A relation is assumed to hold any tuples, and an array to have any elements. The slices of
the event and its contributions to sums stay the same.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import accumulate, islice, pairwise
from math import ceil, floor, isfinite
from typing import Any, Final, NamedTuple

from engine.evaluation.explanation.predicate_tree import PredicateTree, leaves_of
from engine.evaluation.explanation.predicates import Predicates
from engine.language import condition as language
from engine.language.condition import Predicate
from engine.language.forms.table import facts_of
from engine.language.operators import LARGEST
from engine.language.terms import terms_in

VALUES_MAX: Final = 200
"""The maximum number of values tried for a fact."""
EVENTS_MAX: Final = 2_000
"""The maximum number of events tried for a set."""
_ALWAYS_TRIED: Final = 8
"""This many values are tried even if no steps are left."""
_CONSTANTS_EACH: Final = 8
"""The maximum number of elements of a list that are tried."""

_RELATED_MAX: Final = 16
"""The approximate maximum number of facts whose values are tried for one fact."""

_OTHER_TEXT: Final = "\uffff another text"
_OTHER_NUMBER: Final = 0.123456789


_COMPUTED_WITH: Final = (0, 1, 1e9, -1e9)
"""For comparisons of computed numbers: values that leave other numbers unchanged, or exceed most of them."""
_LENGTH_MAX: Final = 10_000
"""The longest text tried for its length."""


class _Value(NamedTuple):
    """A value to try for a fact."""

    value: Any
    truths: Mapping[int, bool]
    """The truths of the predicates that name only this fact."""


class PossibleEvents:
    """The events that differ from one in some facts. `take` uses up steps, and returns if some are left."""

    def __init__(self, tree: PredicateTree, predicates: Predicates, take: Callable[[int], bool]) -> None:
        self._tree, self._predicates, self._take = tree, predicates, take
        self.is_cut = False
        """Whether some events were left out because there were too many."""
        self._leaves = [leaves_of(predicate) for predicate in tree.predicates]
        self._facts = [
            tuple(dict.fromkeys(name for leaf in leaves for name in predicates.names(leaf)))
            for leaves in self._leaves
        ]
        self._free = {number for number, (leaf, *_) in enumerate(self._leaves) if _is_free(leaf)}
        """The predicates that can change with any values of their facts."""
        self._naming: dict[str, list[int]] = {}
        """The predicates that use each fact."""
        for number, facts in enumerate(self._facts):
            if number not in self._free:
                for fact in facts:
                    self._naming.setdefault(fact, []).append(number)

    def allows(self, changed: Collection[int]) -> bool:
        """Return whether there is an event that changes these predicates and turns the verdict.

        It may change other predicates, too, but only facts that these use.
        """
        facts: dict[str, None] = {}
        for number in changed:
            if number not in self._free:
                facts.update(dict.fromkeys(self._facts[number]))
        exact = [self._values(fact, changed, until_exact=True) for fact in facts]
        if all(exact):
            first = [values[0] for values in exact]
            if self._turns(changed, dict(zip(facts, first, strict=True))):
                return True
        values = [self._values(fact, changed) for fact in facts]
        for place, chosen in enumerate(_first_together(values)):
            if (not self._take(len(facts)) and place >= _ALWAYS_TRIED) or place >= EVENTS_MAX:
                self.is_cut = True
                return False
            if self._turns(changed, dict(zip(facts, chosen, strict=True))):
                return True
        return False

    def _turns(self, changed: Collection[int], chosen: Mapping[str, _Value]) -> bool:
        truths = list(self._tree.truths)
        for value in chosen.values():
            for number, truth in value.truths.items():
                truths[number] = truth
        several = {number for fact in chosen for number in self._naming[fact] if len(self._facts[number]) > 1}
        others = self._predicates.replaced({fact: value.value for fact, value in chosen.items()})
        for number in several:
            truths[number] = all(map(others.truth, self._leaves[number]))
        for number in self._free.intersection(changed):
            truths[number] = not truths[number]
        if any(truths[number] is self._tree.truths[number] for number in changed):
            return False
        self._take(len(self._tree))
        return self._tree.truth(truths) is not self._tree.verdict

    def _values(self, fact: str, changed: Collection[int], *, until_exact: bool = False) -> list[_Value]:
        """Return values of a fact that change those of some predicates that use only it, with fewest others.

        With `until_exact`, return only the first value that changes no others, if there is one.
        """
        alone = [number for number in self._naming[fact] if len(self._facts[number]) == 1]
        first = [number for number in alone if number in changed]
        linked = len(alone) < len(self._naming[fact])
        now = self._tree.truths
        found: dict[Any, _Value] = {}
        related = [number for other in self._related(fact) for number in self._naming[other]]
        tried = islice(self._candidates(fact, [*first, *alone, *related], changed), VALUES_MAX)
        for place, (value, is_free) in enumerate(tried):
            if not self._take(len(alone)) and place >= _ALWAYS_TRIED:
                break
            others = self._predicates.replaced({fact: value})
            truths = {number: self._truth(number, others, is_free, changed) for number in alone}
            if all(truths[number] is not now[number] for number in first):
                name = tuple(truths.values()), *([type(value), repr(value)] if linked else [])
                found.setdefault(name, _Value(value, truths))
                if until_exact and not linked and sum(truths[n] is not now[n] for n in alone) == len(first):
                    return [_Value(value, truths)]
        return sorted(found.values(), key=lambda one: sum(one.truths[n] is not now[n] for n in alone))

    def _related(self, fact: str) -> list[str]:
        """Return some facts that predicates relate to a fact, directly or through other facts."""
        found = {fact: None}
        pending = [fact]
        while pending and len(found) < _RELATED_MAX:
            for number in self._naming[pending.pop()]:
                new = [other for other in self._facts[number] if other not in found]
                found.update(dict.fromkeys(new))
                pending += new
        return list(found)[1:]

    def _truth(self, number: int, others: Predicates, is_free: bool, changed: Collection[int]) -> bool:
        leaves = self._leaves[number]
        if is_free and isinstance(leaves[0], language.Leaf) and _is_free_at_texts(leaves[0]):
            return self._tree.truths[number] is not (number in changed)
        return all(map(others.truth, leaves))

    def _candidates(
        self, fact: str, numbers: Sequence[int], changed: Collection[int]
    ) -> Iterator[tuple[Any, bool]]:
        """Yield values, those of the first predicates first, and whether free predicates hold for each."""
        leaves = [leaf for number in dict.fromkeys(numbers) for leaf in self._leaves[number]]
        constants = [constant for leaf in leaves for constant in self._constants(leaf)]
        compared = [leaf for leaf in leaves if isinstance(leaf, language.Compare) and fact in facts_of(leaf)]
        for leaf in compared:
            constants += self._equalling(fact, leaf, (0, 1))
        yield None, False
        for constant in constants[: _CONSTANTS_EACH // 2]:
            yield constant, False
        yield _OTHER_TEXT, True
        yield _OTHER_NUMBER, False
        for constant in constants[_CONSTANTS_EACH // 2 :]:
            yield constant, False
        # Beyond a double's range, only integers have other numbers next to them.
        numbered = sorted(
            {one for one in constants if type(one) is int or (type(one) is float and abs(one) < LARGEST)}
        )
        for low, high in pairwise(numbered):
            yield _between(low, high), False
        for end in (*numbered[:1], *numbered[-1:]):
            yield from ((end - 1, False), (end + 1, False))
        texts = [one for one in constants if type(one) is str]
        if texts:
            yield "", False
        for text in texts:
            yield text + " ", True
        for length in (length for leaf in compared for length in self._equalling(fact, leaf, ("", "a"))):
            for near in (ceil(length), floor(length) - 1, floor(length) + 1):
                if 0 <= near <= _LENGTH_MAX:
                    yield _OTHER_TEXT[0] * near, near > 0
        # An array may have any elements.
        wanted = [
            number
            for number in dict.fromkeys(numbers)
            if self._tree.truths[number] is not (number in changed)
        ]
        held = [leaf for number in wanted for leaf in self._leaves[number]]
        leaves_held = [leaf for leaf in held if isinstance(leaf, language.Leaf) and leaf.op == "contains"]
        yield [leaf.value for leaf in leaves_held], False
        yield from ((True, False), (False, False), ([], False), (self._predicates.value(fact), False))
        yield [_OTHER_TEXT, *[one for one in constants if type(one) is not list]], False
        for number in self._naming[fact]:
            for other in self._facts[number]:
                value = self._predicates.value(other)
                yield value, False
                yield [value], False
                if type(value) is list:
                    yield from ((element, False) for element in value[:_CONSTANTS_EACH])

    def _equalling(self, fact: str, leaf: language.Compare, ends: tuple[Any, Any]) -> list[float]:
        """Return where both sides are equal on the line through two values of a fact, unless it is level.

        This is the number, for a fact in linear arithmetic, or the length of a text.
        """
        first, second = (self._predicates.replaced({fact: end}).difference(leaf) for end in ends)
        if first is None or second is None or first == second:
            return []
        found = first / (first - second)
        return [found] if isfinite(found) else []

    def _constants(self, leaf: Predicate | language.Compare) -> list[Any]:
        """Return the constants that a predicate compares its fact with."""
        match leaf:
            case language.InNetwork(_, tuple() as networks):
                return [text.partition("/")[0] for text in networks[:_CONSTANTS_EACH]]
            case language.Compare(left, _, right):
                terms = (*terms_in(left), *terms_in(right))
                constants = [term for term in terms if isinstance(term, str | int | float)]
                return [*constants, *self._predicates.computed(leaf)[:_CONSTANTS_EACH], *_COMPUTED_WITH]
        if not isinstance(leaf, language.Leaf) or leaf.op == "matches":
            return []
        if not isinstance(leaf.value, tuple):
            return [leaf.value]
        if leaf.op in ("eq", "neq"):
            return [list(leaf.value)]
        return list(leaf.value[:_CONSTANTS_EACH])


def _first_together(values: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield all combinations by the sum of their indices, so the first values of all facts come early."""

    def at(place: int, total: int) -> Iterator[tuple[Any, ...]]:
        if place == len(values):
            yield ()
            return
        ends = range(max(0, total - rest[place + 1]), min(total, len(values[place]) - 1) + 1)
        for index in ends:
            for others in at(place + 1, total - index):
                yield values[place][index], *others

    rest = [*accumulate((len(each) - 1 for each in reversed(values)), initial=0)][::-1]
    if all(values):
        for total in range(rest[0] + 1):
            yield from at(0, total)


def _between(low: float, high: float) -> float:
    try:
        return low / 2 + high / 2
    except OverflowError:
        return int(low) // 2 + int(high) // 2


def _is_free_at_texts(leaf: Predicate | language.Compare) -> bool:
    return isinstance(leaf, language.Leaf) and (
        leaf.op == "matches" or (leaf.op == "contains" and type(leaf.value) is str)
    )


def _is_free(predicate: Predicate | language.Compare) -> bool:
    """Return whether a predicate can change with any values of its facts."""
    match predicate:
        case language.InRelation() | language.Some() | language.InNetwork(_, language.NetworksOf()):
            return True
        case _:
            return False
