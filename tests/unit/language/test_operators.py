"""The tables of operators and forms agree with the Condition types and with the grammar."""

import re
from dataclasses import fields
from importlib import resources

import pytest

from engine.language.condition import Condition, Keyed, Leaf, children, walk
from engine.language.operators import FORM_OF, INEQUALITIES, OPERATORS, Content, placed_children
from engine.language.text.parser import parse

GRAMMAR = resources.files("engine.language.text").joinpath("grammar.lark").read_text(encoding="utf-8")


def test_every_class_of_the_union_has_one_form_with_exactly_its_fields() -> None:
    assert set(FORM_OF) == set(Condition.__args__)
    for made, form in FORM_OF.items():
        assert sorted(form.fields) == sorted(field.name for field in fields(made))


@pytest.mark.parametrize("made", FORM_OF)
def test_the_children_of_a_form_are_its_fields_that_hold_conditions(made: type[Condition]) -> None:
    inner = Leaf("a", "eq", 1)
    values = {Content.CONDITION: inner, Content.CONDITIONS: (inner, inner), Content.WINDOW: 1}
    held = FORM_OF[made].fields.values()
    condition = made(
        *[values.get(content, "x") for content in map(FORM_OF[made].fields.get, made.__match_args__)]
    )
    expected = sum({Content.CONDITION: 1, Content.CONDITIONS: 2}.get(content, 0) for content in held)
    assert children(condition) == (inner,) * expected
    assert [child for _, child in placed_children(condition)] == [inner] * expected


def test_walk_gives_outer_conditions_first_with_the_keys_around_them() -> None:
    condition = parse("per a (x == 1 and per b y == 2) or z == 3")
    first, last = children(condition)
    assert isinstance(first, Keyed)
    leaf, inner = children(first.inner)
    assert list(walk(condition)) == [
        (condition, ()),
        (first, ()),
        (first.inner, ("a",)),
        (leaf, ("a",)),
        (inner, ("a",)),
        (children(inner)[0], ("a", "b")),
        (last, ()),
    ]


def test_each_operator_has_its_terminal_in_the_grammar() -> None:
    terminals = {operator.terminal: operator.text.split()[0] for operator in OPERATORS.values()}
    terminals |= {terminal: text for text, terminal in INEQUALITIES.items()}
    terminals.pop("BETWEEN")  # An anonymous terminal of the grammar.
    for terminal, text in terminals.items():
        assert re.search(rf'^{terminal}: "{text}"', GRAMMAR, re.MULTILINE)
