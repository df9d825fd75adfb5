"""Members, operators, values, names and windows of a condition: what is taken, and what is refused where."""

import math
from typing import Any as Json

import pytest

from engine.language.condition import FactArg, InRelation, ScaledFact, Sum
from engine.language.diagnostics import ConditionError
from engine.language.json.writer import condition_to_document
from engine.language.validation.document import condition_from_document
from tests.unit.language.validation.documents import OK, violations_of

MAX = 1.7976931348623157e308

VALUES: dict[str, Json] = {
    "string": "x",
    "empty string": "",
    "integer": 1,
    "huge integer": 10**30,
    "number": 1.5,
    "boolean": True,
    "strings": ["a", "b"],
    "numbers": [1, 2.5],
    "no elements": [],
    "one number": [1],
    "reversed numbers": [2, 1],
    "reversed strings": ["b", "a"],
    "equal numbers": [1, 1.0],
    "equal strings": ["a", "a"],
    "three numbers": [1, 2, 3],
    "mixed": [1, "a"],
    "mixed the other way": ["a", 1],
    "booleans": [True, False],
    "number and boolean": [0, True],
    "arrays": [[1]],
    "nulls": [None],
    "null": None,
    "object": {"fact": "b"},
}

_SCALARS = {"string", "empty string", "integer", "huge integer", "number", "boolean"}

_ARRAYS = {"strings", "numbers", "no elements", "one number", "reversed numbers", "reversed strings"}
_ARRAYS |= {"equal numbers", "equal strings", "three numbers"}

TAKEN = {
    "eq": _SCALARS | _ARRAYS,
    "neq": _SCALARS | _ARRAYS,
    "in": _ARRAYS,
    "nin": _ARRAYS,
    "contains": _SCALARS,
    "matches": {"string", "empty string"},
    "between": {"strings", "numbers", "equal numbers", "equal strings"},
}


@pytest.mark.parametrize("op", TAKEN)
@pytest.mark.parametrize("value", VALUES)
def test_an_operator_takes_the_values_of_its_row_and_no_others(op: str, value: str) -> None:
    document = {"leaf": {"fact": "a", "op": op, "value": VALUES[value]}}
    if value in TAKEN[op]:
        assert condition_to_document(condition_from_document(document)) == document
    else:
        ((code, place),) = violations_of(document)
        assert code == 1301
        assert place.startswith("leaf.value")


@pytest.mark.parametrize("op", ["eq", "neq", "in", "nin"])
def test_a_ref_takes_four_operators(op: str) -> None:
    assert violations_of({"ref": {"fact": "a", "op": op, "reference": "b"}}) == []


@pytest.mark.parametrize("op", ["contains", "matches", "between", "EQ", "", "==", 1, None, ["eq"], {"eq": 1}])
def test_a_ref_takes_no_other_operator(op: Json) -> None:
    assert violations_of({"ref": {"fact": "a", "op": op, "reference": "b"}}) == [(1301, "ref.op")]


@pytest.mark.parametrize("op", ["Eq", "", "startswith", 1, None, ["eq"]])
def test_an_unknown_operator_is_reported_and_so_is_a_value_that_no_operator_takes(
    op: Json,
) -> None:
    assert violations_of({"leaf": {"fact": "a", "op": op, "value": 1}}) == [(1301, "leaf.op")]
    assert violations_of({"leaf": {"fact": "a", "op": op, "value": None}}) == [
        (1301, "leaf.op"),
        (1301, "leaf.value"),
    ]


def windowed(window: Json) -> list[Json]:
    return [
        {"once_within": {"inner": OK, "window_secs": window}},
        {"historically_for": {"inner": OK, "window_secs": window}},
        {"since_within": {"left": OK, "right": OK, "window_secs": window}},
        {"earlier_within": {"inner": OK, "window_secs": window}},
        {"count": {"inner": OK, "window_secs": window, "op": "gt", "value": 1}},
        {"distinct": {"fact": "a", "window_secs": window, "op": "gt", "value": 1}},
        {"sum": {"fact": "a", "window_secs": window, "op": "gt", "value": 1}},
        {"avg": {"fact": "a", "window_secs": window, "op": "gt", "value": 1}},
    ]


@pytest.mark.parametrize("window", [0, 0.0, 1, 0.3, 1e300, 10**400])
def test_a_window_is_any_number_of_seconds_that_is_not_negative(window: Json) -> None:
    for document in windowed(window):
        assert violations_of(document) == []


@pytest.mark.parametrize(
    "window", [-1, -0.001, "5", True, None, [5], math.nan, math.inf, -math.inf, 10**4000]
)
def test_nothing_else_is_a_window(window: Json) -> None:
    for document in windowed(window):
        ((member, _),) = document.items()
        assert violations_of(document) == [(1301, f"{member}.window_secs")]


def bounded(window: Json, least: Json) -> list[Json]:
    return [
        {"once_within": {"inner": OK, "window_secs": window, "min_secs": least}},
        {"historically_for": {"inner": OK, "window_secs": window, "boundary": "weak", "min_secs": least}},
        {"since_within": {"left": OK, "right": OK, "min_secs": least, "window_secs": window}},
        {"earlier_within": {"inner": OK, "min_secs": least, "window_secs": window}},
    ]


@pytest.mark.parametrize(
    ("window", "least"),
    [(1, 0), (0.3, -0.0), (257, 256), (2.57, 2.56), (1e-6, 0), (2e-6, 1e-6), (1e300, 9.9e299), (10**400, 9)],
)
def test_a_least_age_is_less_than_the_window_and_at_most_256_times_the_rest(
    window: Json, least: Json
) -> None:
    for document in bounded(window, least):
        assert violations_of(document) == []
        assert condition_to_document(condition_from_document(document)) == document


@pytest.mark.parametrize(
    ("window", "least"),
    [
        *((5, least) for least in (-1, "1", True, None, [1], math.nan, math.inf, 5, 5.0, 6)),
        *((257, 256.01), (2.57, 2.560001), (256, 255.1), (0, 0), (1e-7, 0), (1, 0.9999999), (1e300, 1e300)),
    ],
)
def test_nothing_else_is_a_least_age(window: Json, least: Json) -> None:
    for document in bounded(window, least):
        ((member, _),) = document.items()
        assert violations_of(document) == [(1301, f"{member}.min_secs")]


def test_strong_takes_no_least_age_and_a_wrong_window_is_told_once() -> None:
    strong = {"inner": OK, "window_secs": 5, "boundary": "strong", "min_secs": 0}
    assert violations_of({"historically_for": strong}) == [(1301, "historically_for.min_secs")]
    for window in (-1, "5", True, math.inf):
        for document in bounded(window, 1):
            ((member, _),) = document.items()
            assert violations_of(document) == [(1301, f"{member}.window_secs")]
    for other in ("count", "distinct"):
        given = {"inner": OK} if other == "count" else {"fact": "a"}
        wrong = {other: {**given, "window_secs": 5, "min_secs": 1, "op": "gt", "value": 1}}
        assert violations_of(wrong) == [(1301, f"{other}.min_secs")]


@pytest.mark.parametrize("boundary", ["Weak", "", "both", None, 1, True, ["weak"]])
def test_a_boundary_is_weak_strong_or_absent(boundary: Json) -> None:
    def document(**boundary: Json) -> Json:
        return {"historically_for": {"inner": OK, "window_secs": 1, **boundary}}

    for given in ({}, {"boundary": "weak"}, {"boundary": "strong"}):
        assert condition_to_document(condition_from_document(document(**given))) == document(**given)
    assert violations_of(document(boundary=boundary)) == [(1301, "historically_for.boundary")]


@pytest.mark.parametrize("name", ["", "$", 1, None, True, ["a"], {"fact": "a"}, "\ud800"])
def test_a_name_is_a_string_that_is_neither_empty_nor_a_bare_dollar(name: Json) -> None:
    for place, document in {
        "leaf.fact": {"leaf": {"fact": name, "op": "eq", "value": 1}},
        "ref.fact": {"ref": {"fact": name, "op": "eq", "reference": "b"}},
        "ref.reference": {"ref": {"fact": "b", "op": "eq", "reference": name}},
        "keyed.key": {"keyed": {"inner": OK, "key": name}},
        "distinct.fact": {"distinct": {"fact": name, "op": "gt", "value": 1}},
        "sum.fact": {"sum": {"fact": name, "op": "gt", "value": 1}},
        "avg.value.fact": {"avg": {"fact": "a", "op": "gt", "value": {"fact": name}}},
        "in_relation.args[0].fact": {"in_relation": {"args": [{"fact": name}], "relation": "r"}},
    }.items():
        assert violations_of(document) == [(1301, place)]


@pytest.mark.parametrize("name", ["$a", "$$", " ", ".", "a..b", "null", "\n"])
def test_any_other_string_is_a_name(name: str) -> None:
    assert violations_of({"leaf": {"fact": name, "op": "eq", "value": 1}}) == []
    assert violations_of({"keyed": {"inner": OK, "key": name}}) == []


@pytest.mark.parametrize("relation", ["", 1, None, ["r"], "\udfff"])
def test_the_name_of_a_relation_is_a_string_that_is_not_empty(relation: Json) -> None:
    assert violations_of({"in_relation": {"args": [], "relation": "$"}}) == []
    assert violations_of({"in_relation": {"args": [], "relation": relation}}) == [
        (1301, "in_relation.relation")
    ]


@pytest.mark.parametrize(
    ("argument", "place"),
    [
        (None, ""),
        ([], ""),
        ([1], ""),
        ({}, ""),
        ({"fact": "a", "x": 1}, ".x"),
        ({"name": "a"}, ".name"),
        (math.nan, ""),
        ("\ud800", ""),
    ],
)
def test_an_argument_is_a_fact_or_a_scalar(argument: Json, place: str) -> None:
    violations = violations_of({"in_relation": {"args": ["s", 1, True, argument], "relation": "r"}})
    assert violations[0] == (1301, f"in_relation.args[3]{place}")


def test_arguments_are_an_array_that_may_be_empty() -> None:
    assert condition_from_document({"in_relation": {"args": [], "relation": "r"}}) == InRelation("r", ())
    condition = condition_from_document({"in_relation": {"relation": "r", "args": [{"fact": "$a"}, "$a"]}})
    assert condition == InRelation("r", (FactArg("$a"), "$a"))
    for arguments in (None, {}, "a", {"fact": "a"}):
        assert violations_of({"in_relation": {"args": arguments, "relation": "r"}}) == [
            (1301, "in_relation.args")
        ]


@pytest.mark.parametrize("document", [None, 1, "a == 1", True, [OK], [], {}])
def test_a_condition_is_an_object_with_one_member(document: Json) -> None:
    assert violations_of(document) == [(1301, "condition")]
    assert violations_of({"not": document}) == [(1301, "not")]
    assert violations_of({"all": [OK, document]}) == [(1301, "all[1]")]


@pytest.mark.parametrize("member", ["leafs", "ALL", "and", "", "Count", "per", "Not"])
def test_a_member_that_is_not_listed_is_refused(member: str) -> None:
    ((code, place),) = violations_of({member: OK})
    assert code == 1301
    assert place == (member or "[``]")


@pytest.mark.parametrize("member", ["all", "any"])
def test_all_and_any_have_at_least_one_member(member: str) -> None:
    assert violations_of({member: [OK]}) == []
    for content in ([], {}, None, OK, "a == 1"):
        assert violations_of({member: content}) == [(1301, member)]


CONTENTS: Json = {
    "leaf": {"fact": "a", "op": "eq", "value": 1},
    "ref": {"fact": "a", "op": "eq", "reference": "b"},
    "in_relation": {"args": [1], "relation": "r"},
    "since": {"left": OK, "right": OK},
    "once_within": {"inner": OK, "window_secs": 1},
    "historically_for": {"inner": OK, "window_secs": 1},
    "since_within": {"left": OK, "right": OK, "window_secs": 1},
    "keyed": {"inner": OK, "key": "k"},
    "earlier_within": {"inner": OK, "window_secs": 1},
    "count": {"inner": OK, "op": "gt", "value": 1},
    "count_since": {"inner": OK, "reset": OK, "op": "gt", "value": 1},
    "distinct": {"fact": "a", "op": "gt", "value": 1},
    "sum": {"fact": "a", "op": "gt", "value": 1},
    "avg": {"fact": "a", "op": "gt", "value": 1},
}


@pytest.mark.parametrize("member", CONTENTS)
def test_no_field_may_be_missing_and_none_added(member: str) -> None:
    content = CONTENTS[member]
    assert violations_of({member: content}) == []
    for name in content:
        less = {key: value for key, value in content.items() if key != name}
        assert violations_of({member: less}) == [(1301, member)]
        misspelt = {key + "s" * (key == name): value for key, value in content.items()}
        assert violations_of({member: misspelt}) == [(1301, f"{member}.{name}s"), (1301, member)]
    assert violations_of({member: {**content, "boundarys": "weak"}}) == [(1301, f"{member}.boundarys")]
    for wrong in (None, [], [content], "x", 1):
        assert violations_of({member: wrong}) == [(1301, member)]


@pytest.mark.parametrize("member", ["not", "once", "historically", "previous", "earlier"])
def test_what_stands_within_is_a_condition(member: str) -> None:
    assert violations_of({member: OK}) == []
    for wrong in (None, [OK], {}, 1):
        assert violations_of({member: wrong}) == [(1301, member)]


def compared(member: str, **members: Json) -> Json:
    content = {"inner": OK} if member == "count" else {"fact": "a"}
    return {member: content | {"op": "gt", "value": 1} | members}


AGGREGATES = ("count", "distinct", "sum", "avg")


@pytest.mark.parametrize("member", AGGREGATES)
def test_an_aggregate_has_one_of_six_operators(member: str) -> None:
    for op in ("gt", "gte", "lt", "lte", "eq", "neq"):
        document = compared(member, op=op)
        assert condition_to_document(condition_from_document(document)) == document
    for op in (">", ">=", "==", "GT", "", "in", "nin", "between", 1, None, ["gt"]):
        assert violations_of(compared(member, op=op)) == [(1301, f"{member}.op")]


@pytest.mark.parametrize("member", ["count", "distinct"])
def test_a_count_is_compared_with_a_whole_number_up_to_ten_thousand(member: str) -> None:
    for value in (0, 1, 10_000):
        document = compared(member, value=value)
        assert condition_to_document(condition_from_document(document)) == document
    wrong = (-1, 10_001, 10**5_000, -(10**5_000), 1.0, 5.5, math.nan, "5", True, None, [5], {"fact": "b"})
    for value in wrong:
        assert violations_of(compared(member, value=value)) == [(1301, f"{member}.value")]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("5", "a string"),
        (True, "a boolean"),
        (5.5, "`5.5`"),
        (-(10**19), f"`-{10**19}`"),
        (2**64 - 1, "`18446744073709551615`"),
        (2**64, "`an integer of many digits`"),
        (-(10**5_000), "`an integer of many digits`"),
    ],
    ids=lambda part: str(part)[:30] if isinstance(part, str) else "",
)
def test_what_a_count_cannot_be_compared_with_is_told(value: Json, told: str) -> None:
    with pytest.raises(ConditionError) as refused:
        condition_from_document(compared("count", value=value))
    assert str(refused.value) == f"count.value: expected a whole number from 0 to 10000, got {told}"


@pytest.mark.parametrize("member", ["sum", "avg"])
def test_a_sum_is_compared_with_a_number_or_a_fact(member: str) -> None:
    good = (0, -1, 1.5, 10**300, 10**3_000, {"fact": "$b"}, {"fact": "b", "times": -0.3})
    for value in (*good, {"fact": "b", "times": 1}, {"fact": "b", "times": int(MAX)}):
        document = compared(member, value=value)
        assert repr(condition_to_document(condition_from_document(document))) == repr(document)
    for value in ("5", True, None, [5], math.nan, 10**4_000):
        assert violations_of(compared(member, value=value)) == [(1301, f"{member}.value")]
    for times in ("5", True, None, [5], math.inf, int(MAX) + 1, -(10**309), {"fact": "c"}):
        document = compared(member, value={"fact": "b", "times": times})
        assert violations_of(document) == [(1301, f"{member}.value.times")]
    for value, place in (({}, ""), ({"times": 2}, ""), ({"fact": "b", "time": 2}, ".time")):
        assert violations_of(compared(member, value=value))[0] == (1301, f"{member}.value{place}")


@pytest.mark.parametrize("member", ["distinct", "sum", "avg", "keyed"])
def test_where_is_a_condition_if_it_is_there(member: str) -> None:
    document = {"keyed": {"inner": OK, "key": "k"}} if member == "keyed" else compared(member)
    without = condition_from_document(document)
    document[member]["where"] = OK
    condition = condition_from_document(document)
    assert condition != without
    assert condition_to_document(condition) == document
    for wrong in (None, [OK], {}, "a == 1", True):
        document[member]["where"] = wrong
        assert violations_of(document) == [(1301, f"{member}.where")]


def test_a_scaled_fact_without_a_factor_is_another_condition_than_one_times_it() -> None:
    plain, once = (
        condition_from_document(compared("sum", value={"fact": "b"} | times)) for times in ({}, {"times": 1})
    )
    assert plain != once
    assert isinstance(plain, Sum)
    assert isinstance(once, Sum)
    assert plain.value == ScaledFact("b")
    assert once.value == ScaledFact("b", 1.0)
    assert ScaledFact("b").factor == ScaledFact("b", 1).factor == 1
