"""The tables of operators and forms agree with the types, the grammar and the schema of the interface."""

import re
from dataclasses import fields
from importlib import resources
from typing import Any, get_args, get_type_hints

import pytest
from msgspec import structs

from api.schema import messages
from engine.language.condition import Condition, Keyed, Leaf, children, walk
from engine.language.json.writer import condition_to_document
from engine.language.operators import FORM_OF, FORMS, INEQUALITIES, OPERATORS, Content, placed_children
from engine.language.text.parser import parse

GRAMMAR = resources.files("engine.language.text").joinpath("grammar.lark").read_text(encoding="utf-8")


def test_every_class_of_the_union_has_one_form_with_exactly_its_fields() -> None:
    assert set(FORM_OF) == set(Condition.__args__)
    for made, form in FORM_OF.items():
        assert sorted(form.fields) == sorted(field.name for field in fields(made))


@pytest.mark.parametrize("made", FORM_OF)
def test_the_children_of_a_form_are_its_fields_that_hold_conditions(made: type[Condition]) -> None:
    """In document order, and each after its path in the document."""
    values: dict[str, object] = {}
    inner: dict[str, Leaf] = {}
    for field, content in FORM_OF[made].fields.items():
        leaves = tuple(Leaf(field, "eq", number) for number in range(2))
        values[field] = {Content.CONDITION: leaves[0], Content.CONDITIONS: leaves}.get(content, "x")
        if content is Content.CONDITION:
            inner[field] = leaves[0]
        elif content is Content.CONDITIONS:
            inner |= {f"{field}[{index}]": leaf for index, leaf in enumerate(leaves)}
    condition = made(**values)
    assert children(condition) == tuple(inner.values())
    assert [child for _, child in placed_children(condition)] == list(inner.values())
    document = condition_to_document(condition)
    for path, child in placed_children(condition):
        at: Any = document
        for name, index in re.findall(r"(\w+)|\[(\d)\]", path):
            at = at[name or int(index)]
        assert at == condition_to_document(child)


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


def test_the_schema_of_the_interface_has_the_same_forms_fields_and_operators() -> None:
    assert [field.encode_name for field in structs.fields(messages.Condition)] == list(FORMS)
    for made, form in FORM_OF.items():
        if not form.is_bare:
            shown = getattr(messages, made.__name__)
            assert [field.name for field in structs.fields(shown)] == list(form.fields)
            assert {field.name for field in structs.fields(shown) if not field.required} == form.optional
    assert get_args(get_type_hints(messages.Leaf)["op"]) == tuple(OPERATORS)
    assert get_args(get_type_hints(messages.Ref)["op"]) == tuple(
        name for name, operator in OPERATORS.items() if operator.compares_facts
    )


def test_each_operator_has_its_terminal_in_the_grammar() -> None:
    terminals = {operator.terminal: operator.text.split()[0] for operator in OPERATORS.values()}
    terminals |= {terminal: text for text, terminal in INEQUALITIES.items()}
    terminals.pop("BETWEEN")  # An anonymous terminal of the grammar.
    for terminal, text in terminals.items():
        assert re.search(rf'^{terminal}: "{text}"', GRAMMAR, re.MULTILINE)
