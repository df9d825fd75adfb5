"""The tables of operators and forms agree with the types, the grammar and the schema of the interface."""

import re
from importlib import resources
from typing import Any

import pytest

from api.schema.condition_schemas import condition_schemas
from engine.language.condition import (
    Condition,
    FactArg,
    FilteredKey,
    InRelation,
    Keyed,
    Leaf,
    children,
    walk,
)
from engine.language.forms.form import Content
from engine.language.forms.table import FORM_OF, FORMS, facts_of, placed_children
from engine.language.json.writer import condition_to_document
from engine.language.operators import INEQUALITIES, OPERATORS
from engine.language.text.parser import parse

GRAMMAR = resources.files("engine.language.text").joinpath("grammar.lark").read_text(encoding="utf-8")


def test_every_class_of_the_union_has_one_form_with_exactly_its_fields() -> None:
    assert set(FORM_OF) == set(Condition.__args__)
    for made, form in FORM_OF.items():
        assert sorted(form.fields) == sorted(made.__match_args__)


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


def test_a_condition_that_is_absent_is_no_child() -> None:
    leaf = parse("a == 1")
    assert children(parse("per k a == 1")) == (leaf,)
    assert children(parse("per k where a == 1 a == 1")) == (leaf, leaf)
    assert children(parse("sum(k) > 1")) == ()
    assert children(parse("sum(k where a == 1) > 1")) == (leaf,)


def test_walk_judges_the_where_of_a_keyed_outside_its_slices() -> None:
    condition = parse("per a where x == 1 per b where y == 2 sum(z where w == 3) > 4")
    assert isinstance(condition, Keyed)
    inner = condition.inner
    assert isinstance(inner, Keyed)
    outside, inside = FilteredKey("a", parse("x == 1")), FilteredKey("b", parse("y == 2"))
    assert list(walk(condition, ("c",))) == [
        (condition, ("c",)),
        (inner, ("c", outside)),
        (inner.inner, ("c", outside, inside)),
        (parse("w == 3"), ("c", outside, inside)),
        (parse("y == 2"), ("c", outside)),
        (parse("x == 1"), ("c",)),
    ]


def test_a_path_of_keys_with_a_where_differs_from_one_without_or_with_another() -> None:
    texts = (
        "per a x == 1",
        "per a where y == 1 x == 1",
        "per a where y == true x == 1",
        "per b where y == 1 x == 1",
    )
    conditions = [parse(text) for text in texts]
    assert len(set(conditions)) == len({dict(walk(c))[parse("x == 1")] for c in conditions}) == len(texts)


def test_a_window_that_may_be_absent_is_exact_where_it_is_present() -> None:
    windows = [parse(f"count(a == 1){window} > 1").window_us for window in ("", " within 0.3", " within 0")]
    assert windows == [None, 300_000, 0]


def test_the_schema_of_the_interface_has_the_same_forms_and_fields() -> None:
    schemas = condition_schemas()
    assert list(schemas["Condition"]["properties"]) == list(FORMS)
    for made, form in FORM_OF.items():
        if not form.is_bare:
            shown = schemas[made.__name__]
            assert list(shown["properties"]) == list(form.fields)
            assert {*shown["properties"]} - {*shown["required"]} == form.optional


def test_the_forms_are_in_the_order_of_the_union() -> None:
    assert tuple(FORM_OF) == Condition.__args__
    assert [form.make for form in FORMS.values()] == [*FORM_OF]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("x == 1", ["x"]),
        ("x in y", ["x", "y"]),
        ('r(x, "a", y)', ["x", "y"]),
        ("distinct(x where y == 1) > 2", ["x"]),
        ("sum(x where z == 1) > 0.5 * y", ["x", "y"]),
        ("count(x == 1) > 2", []),
        ("once x == 1", []),
    ],
)
def test_the_facts_of_a_condition_are_those_that_it_reads_itself(text: str, facts: list[str]) -> None:
    assert facts_of(parse(text)) == facts


def test_each_operator_has_its_terminal_in_the_grammar() -> None:
    terminals = {operator.terminal: operator.text.split()[0] for operator in OPERATORS.values()}
    terminals |= {terminal: text for text, terminal in INEQUALITIES.items()}
    terminals.pop("BETWEEN")  # An anonymous terminal of the grammar.
    for terminal, text in terminals.items():
        assert re.search(rf'^{terminal}: "{text}"', GRAMMAR, re.MULTILINE)


def test_conditions_with_numbers_of_one_hash_have_hashes_of_their_own() -> None:
    numbers = [times * (2**61 - 1) + 5 for times in range(1_000)]
    assert {*map(hash, numbers)} == {5}
    for several in (
        [Leaf("x", "eq", number) for number in numbers],
        [Leaf("x", "in", (1, number)) for number in numbers],
        [InRelation("r", (FactArg("x"), number)) for number in numbers],
    ):
        assert len({*map(hash, several)}) == len(numbers)
    large = 3.0 * 2**70
    assert Leaf("x", "eq", large) == Leaf("x", "eq", int(large))
    assert hash(Leaf("x", "eq", large)) == hash(Leaf("x", "eq", int(large)))
    assert Leaf("x", "eq", 70_000.5) != Leaf("x", "eq", 70_000)
