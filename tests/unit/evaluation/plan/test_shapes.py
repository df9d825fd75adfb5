"""Shapes are structure: they contain no code, and rules that differ in names and values have equal ones."""

import random
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from engine import parse
from engine.evaluation.dispatch.compilation.memory_access import RowWriter
from engine.evaluation.times import Regime
from engine.evaluation.plan.ir import Abstraction
from engine.evaluation.requirements import OPERATORS, requirements_of
from engine.evaluation.plan.shapes import Predicate, Shape, Test
from engine.language.condition import Condition
from engine.language.operators import COMPARISONS
from tests.worlds.scripts import World

WORDS = {"and", "or", "inner", "left", "right", "number", "sum", "mean"}
WORDS |= {*get_args(Test), *OPERATORS, *COMPARISONS}


def shape_of(condition: Condition) -> Shape:
    memories = dict.fromkeys(requirements_of(condition).memories, (None, Regime.SEEN, False))
    return Abstraction(lambda _, pattern: pattern).shape(condition, 0, memories)


def atoms(part: Any) -> Iterator[Any]:
    """Give all that a shape consists of."""
    if isinstance(part, tuple):
        for member in part:
            yield from atoms(member)
    else:
        yield part


def test_a_shape_consists_of_numbers_and_of_the_words_of_closed_sets() -> None:
    world, found = World(random.Random(1).choice), set[Any]()
    for condition in (parse("a > 5 or a < 5"), *(world.condition(4) for _ in range(1000))):
        found |= {(type(atom), atom) for atom in atoms(shape_of(condition))}
    words = {atom for of, atom in found if of is str}
    assert {of for of, _ in found} == {str, int, bool, Regime, type(None)}
    # They take more arguments or numbers than there are here, and rows of which something is known.
    assert words == WORDS - {"related by many", "among many numbers", "true"}


@pytest.mark.parametrize("test", get_args(Test))
def test_every_test_is_written_as_an_expression(test: Test) -> None:
    text = RowWriter((), {}).verdict(Predicate(test, (0, 1), (0, 1), arguments=(True, False)))
    compile(text, test, "eval")


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("a == 5", 'b == "x"', True),
        ("a == 5", "a == 1", False),
        ("a == 5", "a != 5", False),
        ("count(a == 5) within 1s > 2", "count(b == 7) within 9s >= 8", True),
        ("count(a == 5) within 1s >= 1", "count(a == 5) within 1s >= 0", False),
        ("count(a == 5) >= 2", "count(a == 5) < 2", False),
        ("per u sum(a) within 1s > 2", "per v sum(b) within 2s > 3.5", True),
        ("sum(a) within 1s > 2", "avg(a) within 1s > 2", False),
        ("sum(a) within 1s > 2", "sum(a) within 1s > 2 * b", False),
        ("once within 1s a == 5", "once within 2s b == 7", True),
        ("once a == 5", "historically a == 5", False),
    ],
)
def test_rules_that_differ_in_names_and_values_alone_have_equal_shapes(
    one: str, other: str, *, alike: bool
) -> None:
    first, second = shape_of(parse(one)), shape_of(parse(other))
    assert (first == second) is alike
    assert len({first, second}) == 2 - alike
