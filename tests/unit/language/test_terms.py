"""Terms in JSON: their forms, their places, what is invalid in them, and how large they may be."""

import json
from dataclasses import fields
from typing import Any, get_args

import pytest

from api.schema.condition_schemas import condition_schemas
from engine.language.condition import Compare, children, walk
from engine.language.diagnostics import ConditionError
from engine.language.forms.table import facts_of, placed_children, placed_terms
from engine.language.forms.terms import TERM_FORM_OF, TERM_FORMS
from engine.language.json.writer import condition_to_document
from engine.language.limits import Limits
from engine.language.nodes import TermNode
from engine.language.terms import Add, Fact, Sub, Term, looks_back
from engine.language.text.parser import parse

X = {"fact": "x"}
A = {"leaf": {"fact": "a", "op": "eq", "value": 1}}
ONE_OF_EACH: dict[str, Any] = {
    "fact": "x",
    "prev": "x",
    "last": {"fact": "x", "where": A},
    "add": [X, 1, "a"],
    "mul": [X, 1.5],
    "sub": [X, {"prev": "x"}],
    "div": [X, True],
    "abs": {"abs": X},
    "length": "x",
    "now": {},
    "time": "x",
    "clock": {"part": "hour", "zone": "Europe/Berlin"},
    "age": A,
    "count": {"inner": A, "window_secs": 60, "earlier": True},
    "sum": {"fact": "x", "where": A, "window_secs": 60, "earlier": True},
    "avg": {"fact": "x", "where": A, "window_secs": 0.5},
    "min": {"fact": "x", "where": A},
    "max": {"fact": "x"},
}


def comparison(left: object, right: object = 1) -> dict[str, Any]:
    return {"compare": {"left": left, "op": "gt", "right": right}}


def compared(left: object, right: object = 1) -> Compare:
    condition = parse(comparison(left, right))
    assert isinstance(condition, Compare)
    return condition


def errors(document: object) -> list[str]:
    with pytest.raises(ConditionError) as refused:
        parse(json.dumps(document))
    return [f"{entry.code} {entry.message}" for entry in refused.value.entries]


def test_every_class_of_the_union_has_one_form_with_exactly_its_fields() -> None:
    made = [each for each in get_args(Term) if issubclass(each, TermNode)]
    assert [*TERM_FORM_OF] == made == [form.make for form in TERM_FORMS.values()]
    for make, form in TERM_FORM_OF.items():
        assert sorted(form.fields) == sorted(field.name for field in fields(make))


def test_the_schema_of_the_interface_has_the_same_forms_and_fields() -> None:
    schemas = condition_schemas()
    assert list(schemas["ComputedTerm"]["properties"]) == list(TERM_FORMS)
    for made, form in TERM_FORM_OF.items():
        if not form.is_bare:
            shown = schemas[made.__name__]
            assert list(shown["properties"]) == list(form.fields)
            assert {*shown["properties"]} - {*shown["required"]} == form.optional


@pytest.mark.parametrize("name", TERM_FORMS)
def test_a_term_is_written_as_it_was_read(name: str) -> None:
    document = comparison({name: ONE_OF_EACH[name]}, {"add": [{name: ONE_OF_EACH[name]}, 1]})
    condition = parse(document)
    assert condition_to_document(condition) == document
    assert parse(json.dumps(document)) == condition == parse(document)
    assert hash(parse(document)) == hash(condition)


@pytest.mark.parametrize("scalar", [1, 1.0, -0.5, "DE", "", True, False, 10**40])
def test_a_scalar_is_a_term(scalar: object) -> None:
    document = comparison(scalar, scalar)
    assert json.dumps(condition_to_document(parse(document))) == json.dumps(document)


def test_terms_are_equal_if_their_values_are_types_included() -> None:
    assert compared({"add": [X, 1]}) == compared({"add": [X, 1.0]}) != compared({"add": [X, True]})
    assert compared({"add": [X, X]}) != compared({"mul": [X, X]})


def test_conditions_in_terms_have_their_places_and_are_children() -> None:
    condition = compared(
        {"add": [X, {"count": {"inner": A}}, {"abs": {"age": {"not": A}}}]},
        {"sub": [{"last": {"fact": "y", "where": A}}, {"sum": {"fact": "z"}}]},
    )
    leaf = parse(A)
    assert dict(placed_children(condition)) == {
        "compare.left.add[1].count.inner": leaf,
        "compare.left.add[2].abs.age": parse({"not": A}),
        "compare.right.sub[0].last.where": leaf,
    }
    assert children(condition) == tuple(child for _, child in placed_children(condition))
    inside = ("a", "b")
    assert [(type(node).__name__, keys) for node, keys in walk(condition, inside)] == [
        ("Compare", inside),
        ("Leaf", inside),
        ("Not", inside),
        ("Leaf", inside),
        ("Leaf", inside),
    ]
    assert facts_of(condition) == ["x", "y", "z"]


def test_each_term_inside_a_condition_has_its_place() -> None:
    condition = compared({"add": [X, {"sub": [{"prev": "x"}, 1]}]}, {"count": {"inner": comparison(X)}})
    places = {place: type(term) for place, term in placed_terms(condition)}
    assert {place: places[place] for place in [*places][:3]} == {
        "compare.left": Add,
        "compare.left.add[0]": Fact,
        "compare.left.add[1]": Sub,
    }
    assert [*places][3:] == ["compare.left.add[1].sub[0]", "compare.right"]


@pytest.mark.parametrize("name", TERM_FORMS)
def test_the_terms_that_look_back_are_those_of_other_events(name: str) -> None:
    looking = {"prev", "last", "age", "count", "sum", "avg", "min", "max"}
    # The example of `sub` has a `prev` in it.
    expected = name in looking | {"sub"}
    assert looks_back(compared({name: ONE_OF_EACH[name]}).left) is expected
    assert looks_back(compared({"div": [1, {"abs": {name: ONE_OF_EACH[name]}}]}).left) is expected


@pytest.mark.parametrize(
    ("left", "error"),
    [
        (None, ": expected a term: a string, a num"),
        ([X], ": expected a term: a string, a num"),
        ({}, ": expected exactly one member, got none"),
        ({"fact": "x", "prev": "x"}, ": expected exactly one member, got `fact` and `prev`"),
        ({"lenght": "x"}, ".lenght: unknown member; did you mean `length`?"),
        (A, ".leaf: unknown member"),
        ({"fact": "$"}, ".fact: expected a name after the `$`"),
        ({"prev": ""}, ".prev: expected a name, got an empty string"),
        ({"length": X}, ".length: expected a string, got an object"),
        ({"last": "x"}, ".last: expected an object with `fact` and `where`, got a string"),
        ({"last": {}}, ".last: missing member `fact`"),
        ({"add": X}, ".add: expected an array of 2 to 64 terms, got an object"),
        ({"add": []}, ".add: expected 2 to 64 terms, got none"),
        ({"mul": [1]}, ".mul: expected 2 to 64 terms, got 1"),
        ({"sub": [1, 2, 3]}, ".sub: expected two terms, got 3"),
        ({"div": [1, [2]]}, ".div[1]: expected a term: a string, a num"),
        ({"abs": {"abs": None}}, ".abs.abs: expected a term: a string, a num"),
        ({"now": None}, ".now: expected an empty object, got null"),
        ({"now": {"zone": "UTC"}}, ".now.zone: unknown member"),
        ({"clock": {}}, ".clock: missing member `part`"),
        ({"clock": {"part": "hours"}}, ".clock.part: expected `hour`, `minute`, "),
        (
            {"clock": {"part": "day", "zone": "europe/berlni"}},
            ".clock.zone: expected the name of a time zone, ",
        ),
        (
            {"clock": {"part": "day", "zone": "../etc/passwd"}},
            ".clock.zone: expected the name of a time zone, as in `Europe/Berlin`, got `../etc/passwd`",
        ),
        (
            {"clock": {"part": "day", "zone": "localtime"}},
            ".clock.zone: expected the name of a time zone, as in `Europe/Berlin`, got `localtime`",
        ),
        ({"clock": {"part": "day", "zone": 1}}, ".clock.zone: expected a string, got a number"),
        (
            {"age": {"leaf": {"fact": "a", "op": "is", "value": 1}}},
            ".age.leaf.op: expected `eq`, `neq`, `in`,",
        ),
        ({"count": {"inner": A, "op": "gt", "value": 1}}, ".count.op: unknown member"),
        (
            {"count": {"inner": A, "earlier": False}},
            ".count.earlier: expected `true`, or no such member, got `false`",
        ),
        (
            {"sum": {"fact": "x", "earlier": 1}},
            ".sum.earlier: expected `true`, or no such member, got a number",
        ),
        (
            {"min": {"fact": "x", "window_secs": -1}},
            ".min.window_secs: expected a number of seconds that is not negative",
        ),
    ],
)
def test_what_is_invalid_has_its_place(left: object, error: str) -> None:
    first, *_ = errors(comparison(left))
    assert first.startswith(f"1301 compare.left{error}")
    assert "(line 1, column " in first


def test_all_that_is_invalid_is_told_in_order() -> None:
    document = {"compare": {"left": {"add": [{"abs": None}, {"fact": 1}]}, "op": ">", "right": None}}
    assert [error.split(":")[0] for error in errors(document)] == [
        "1301 compare.left.add[0].abs",
        "1301 compare.left.add[1].fact",
        "1301 compare.op",
        "1301 compare.right",
    ]


def test_numbers_from_the_same_process_are_finite() -> None:
    with pytest.raises(ConditionError, match=r"compare\.left\.add\[1\]: expected a finite number"):
        parse(comparison({"add": [1, float("inf")]}))


def test_only_the_first_unknown_zones_are_compared_with_all() -> None:
    zones = [{"clock": {"part": "hour", "zone": "Europe/Berlni"}}] * 60
    told = errors(comparison({"add": zones}))
    assert [error.endswith("; did you mean `Europe/Berlin`? (line 1, column 80)") for error in told[:1]]
    assert [("did you mean" in error) for error in told] == [True] * 10 + [False] * 50


def nested(depth: int) -> dict[str, Any]:
    """Return a comparison of this depth. The comparison and a fact have depth 1 each."""
    term: object = X
    for _ in range(depth - 2):
        term = {"abs": term}
    return comparison(term)


@pytest.mark.parametrize("as_read", [json.dumps, dict])
def test_terms_count_towards_the_depth(as_read: Any) -> None:
    parse(as_read(nested(64)))
    with pytest.raises(ConditionError, match="the condition is nested more than 64 levels deep") as refused:
        parse(as_read(nested(65)))
    assert refused.value.code == 1303


def test_terms_count_towards_the_size() -> None:
    limits = Limits(nodes_max=5)
    parse(comparison({"add": [X, 1]}), limits)
    with pytest.raises(ConditionError, match="more than 5 conditions and terms in it") as refused:
        parse(comparison({"add": [X, 1, 2]}), limits)
    assert refused.value.code == 1303
    with pytest.raises(ConditionError, match="more than 5 conditions and terms in it"):
        parse(comparison({"count": {"inner": {"all": [A, A, A]}}}), limits)


@pytest.mark.parametrize("name", ["add", "mul"])
def test_a_term_has_at_most_64_operands(name: str) -> None:
    parse(comparison({name: [X] * 64}))
    too_many = comparison({"abs": {name: [None] * 65}})
    assert errors(too_many) == ["1303 a term has 65 operands; at most 64 are allowed"]
