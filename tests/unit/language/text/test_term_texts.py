"""Comparisons of terms in text: what they are read as, how they are written, and what stays what it was."""

from typing import Any

import pytest

from engine.language.condition import Any as AnyOf
from engine.language.condition import (
    Avg,
    Compare,
    Condition,
    Count,
    CountSince,
    FactArg,
    InRelation,
    Keyed,
    Leaf,
    Ref,
    ScaledFact,
    Sum,
)
from engine.language.diagnostics import ConditionError
from engine.language.forms.terms import TERM_WORDS
from engine.language.terms import (
    Abs,
    Add,
    Age,
    AvgTerm,
    Clock,
    CountTerm,
    Div,
    Fact,
    Last,
    Length,
    MaxTerm,
    MinTerm,
    Mul,
    Now,
    Prev,
    Sub,
    SumTerm,
    Term,
    Time,
)
from engine.language.text.parser import parse
from engine.language.text.printer import format as text_of

A, B = Leaf("a", "eq", 1), Leaf("b", "eq", 2)
X, Y, Z = Fact("x"), Fact("y"), Fact("z")

TERMS: dict[str, Term] = {
    "5": 5,
    '"DE"': "DE",
    "true": True,
    "$x": Fact("$x"),
    "user.id": Fact("user.id"),
    "`a b`": Fact("a b"),
    "x + y": Add((X, Y)),
    "x + y + z": Add((X, Y, Z)),
    "(x + y) + z": Add((Add((X, Y)), Z)),
    # A word that may be a name or a call adds nothing to what stands before it.
    "y * 2 * abs(x)": Mul((Y, 2, Abs(X))),
    "y + 2 + abs(x)": Add((Y, 2, Abs(X))),
    "y * 2 * age(a == 1) * abs(x)": Mul((Y, 2, Age(A), Abs(X))),
    "x + (y + z)": Add((X, Add((Y, Z)))),
    "x - y - z": Sub((Sub((X, Y)), Z)),
    "x - (y - z)": Sub((X, Sub((Y, Z)))),
    "x + y - z + 1 + 2": Add((Sub((Add((X, Y)), Z)), 1, 2)),
    "x * y * z": Mul((X, Y, Z)),
    "(x * y) * z": Mul((Mul((X, Y)), Z)),
    "x / y / z * 2": Mul((Div((Div((X, Y)), Z)), 2)),
    "x + y * z": Add((X, Mul((Y, Z)))),
    "(x + y) * z": Mul((Add((X, Y)), Z)),
    "x - y / (z - 1)": Sub((X, Div((Y, Sub((Z, 1)))))),
    "x - -5": Sub((X, -5)),
    "1.5 * x": Mul((1.5, X)),
    "abs(x - y)": Abs(Sub((X, Y))),
    "prev($x)": Prev("$x"),
    "last(x)": Last("x"),
    "last(x where a == 1 or b == 2)": Last("x", AnyOf((A, B))),
    "length(x)": Length("x"),
    "now()": Now(),
    "time(x)": Time("x"),
    "hour()": Clock("hour"),
    'minute("UTC")': Clock("minute", "UTC"),
    'clock("America/St_Johns")': Clock("clock", "America/St_Johns"),
    "age(a == 1)": Age(A),
    "count(a == 1)": CountTerm(A),
    "count(r(x)) within 5m": CountTerm(InRelation("r", (FactArg("x"),)), 300),
    "sum(x) within 300ms": SumTerm("x", None, 0.3),
    "avg(x where a == 1) within 1d": AvgTerm("x", A, 86400),
    "min(x)": MinTerm("x"),
    "max(count)": MaxTerm("count"),
    "abs(abs(prev(x)))": Abs(Abs(Prev("x"))),
}
EARLIER: dict[str, Term] = {
    "earlier count(a == 1)": CountTerm(A, None, True),
    "3 * earlier avg(x) within 30d": Mul((3, AvgTerm("x", None, 2592000, True))),
    "(earlier min(x) + 1) * 2": Mul((Add((MinTerm("x", None, None, True), 1)), 2)),
}


@pytest.mark.parametrize("text", TERMS | EARLIER)
def test_a_term_on_the_right_is_read_and_written(text: str) -> None:
    condition = Compare(Add((X, 1)), "lt", (TERMS | EARLIER)[text])
    assert parse(f"x + 1 < {text}") == condition
    assert text_of(condition) == f"x + 1 < {text}"


@pytest.mark.parametrize("text", TERMS)
def test_a_term_on_the_left_is_read_and_written(text: str) -> None:
    condition = Compare(TERMS[text], "gte", Add((X, 1)))
    assert parse(f"{text} >= x + 1") == condition
    assert text_of(condition) == f"{text} >= x + 1"


@pytest.mark.parametrize("text", TERMS | EARLIER)
def test_a_term_in_compare_is_read(text: str) -> None:
    assert parse(f"compare({text} == {text})") == Compare(
        (TERMS | EARLIER)[text], "eq", (TERMS | EARLIER)[text]
    )


@pytest.mark.parametrize("term", EARLIER.values())
def test_a_term_that_begins_with_earlier_stands_in_compare_on_the_left(term: Term) -> None:
    condition = Compare(Sub((term, 1)) if isinstance(term, CountTerm) else term, "gt", X)
    text = text_of(condition)
    assert parse(text) == condition
    assert text.startswith("compare(") is isinstance(term, CountTerm) or text.startswith(("3 *", "compare(("))


OLDER: dict[str, Condition] = {
    "x == 5": Leaf("x", "eq", 5),
    "x != true": Leaf("x", "neq", True),
    "x > 5": parse({"all": [
        {"leaf": {"fact": "x", "op": "between", "value": [5, 1.7976931348623157e308]}},
        {"leaf": {"fact": "x", "op": "neq", "value": 5}},
    ]}),
    "x <= 5": Leaf("x", "between", (-1.7976931348623157e308, 5)),
    "x == y": Ref("x", "eq", "y"),
    "x in [1, 2]": Leaf("x", "in", (1, 2)),
    "x between 1 and 2": Leaf("x", "between", (1, 2)),
    "count(a == 1) within 5m >= 5": Count(A, 300, "gte", 5),
    "count(a == 1) since b == 2 > 5": CountSince(A, B, "gt", 5),
    "sum(x) > 5": Sum("x", None, None, "gt", 5),
    "sum(x) > y": Sum("x", None, None, "gt", ScaledFact("y")),
    "avg(x) within 30d < 0.3 * y": Avg("x", None, 2592000, "lt", ScaledFact("y", 0.3)),
    "prev(x)": InRelation("prev", (FactArg("x"),)),
    "hour()": InRelation("hour", ()),
    "compare(x)": InRelation("compare", (FactArg("x"),)),
    "compare == prev": Ref("compare", "eq", "prev"),
    "now > 5 and age < 3": parse("`now` > 5 and `age` < 3"),
}  # fmt: skip


@pytest.mark.parametrize("text", OLDER)
def test_what_an_older_member_says_stays_that_member(text: str) -> None:
    assert parse(text) == OLDER[text]
    assert text_of(OLDER[text]) == text


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("x == 5", X, 5),
        ("x > 5", X, 5),
        ("x != y", X, Y),
        ("count(a == 1) >= 5", CountTerm(A), 5),
        ("sum(x) > y", SumTerm("x"), Y),
        ("avg(x) > 0.5 * y", AvgTerm("x"), Mul((0.5, Y))),
    ],
)
def test_compare_is_always_a_comparison_of_terms(text: str, left: Term, right: Term) -> None:
    condition = parse(f"compare({text})")
    assert isinstance(condition, Compare)
    assert (condition.left, condition.right) == (left, right)
    assert text_of(condition) == f"compare({text})"
    assert parse(text) != condition


@pytest.mark.parametrize(
    "text",
    [
        "x > y",
        'x > "a"',
        "x >= true",
        "5 < x",
        "true == x",
        "x == y + 1",
        "count(a == 1) > x",
        "count(a == 1) > 0.1 * count(b == 2)",
        "sum(x) > y * 2",
        "sum(x) > 2 * 3",
        "avg(x) > 0.3 * prev(y)",
        "avg(x) > y + 1",
        "min(x) > 5",
        "max(x) == y",
        "last(x) == y",
    ],
)
def test_what_no_older_member_says_is_a_comparison(text: str) -> None:
    assert isinstance(parse(text), Compare)
    assert text_of(parse(text)) == text


def test_a_range_and_a_list_of_a_term_are_several_comparisons() -> None:
    both = parse("hour() between 9 and 17")
    assert both == parse({"all": [
        {"compare": {"left": {"clock": {"part": "hour"}}, "op": op, "right": value}}
        for op, value in (("gte", 9), ("lte", 17))
    ]})  # fmt: skip
    listed = parse("x + 1 in [1, 2.5]")
    assert listed == AnyOf((Compare(Add((X, 1)), "eq", 1), Compare(Add((X, 1)), "eq", 2.5)))
    assert [text_of(both), text_of(listed)] == ["hour() between 9 and 17", "x + 1 in [1, 2.5]"]
    assert text_of(parse("any(hour() == 1)")) == "hour() in [1]"
    assert text_of(parse("hour() >= 9 and hour() <= x")) == "hour() >= 9 and hour() <= x"


FORMER: dict[str, dict[str, Any]] = {
    "per k where x == count (b == 2)": {"where": Ref("x", "eq", "count"), "inner": B},
    "per k where x == prev (b == 2)": {"where": Ref("x", "eq", "prev"), "inner": B},
    "per k where x == earlier count(b == 2) > 5": {
        "where": Ref("x", "eq", "earlier"),
        "inner": Count(B, None, "gt", 5),
    },
    "per k where sum(x) > 2 * age (b == 2)": {
        "where": Sum("x", None, None, "gt", ScaledFact("age", 2)),
        "inner": B,
    },
}


@pytest.mark.parametrize("text", FORMER)
def test_behind_per_where_a_word_before_a_condition_in_parentheses_stays_a_name(text: str) -> None:
    assert parse(text) == Keyed(key="k", **FORMER[text])


@pytest.mark.parametrize(
    "text",
    [
        "per k where (x == count(a == 1)) b == 2",
        "per k where (not x > age(a == 1)) b == 2",
        "per k where compare(x == y) b == 2",
        "per k where hour() in [1] b == 2",
        "per k where x == prev b == 2",
    ],
)
def test_a_comparison_behind_per_where_is_written_in_parentheses(text: str) -> None:
    assert text_of(parse(text)) == text
    assert isinstance(parse(text), Keyed)


def test_a_term_of_a_fact_needs_no_parentheses_behind_per_where() -> None:
    assert parse("per k where x != prev(x) (b == 2)") == parse("per k where (x != prev(x)) b == 2")


def test_the_words_of_terms_are_names_where_no_term_is_expected() -> None:
    for word in ({*TERM_WORDS} - {"count", "sum", "avg"}) | {"compare"}:
        assert parse(f"{word} == 1") == Leaf(word, "eq", 1)
        assert parse(f"{word}(x) and {word} in {word}") == parse(f"`{word}`(x) and `{word}` in `{word}`")
        assert parse(f"{word} - 1 > {word} / 2") == Compare(Sub((Fact(word), 1)), "gt", Div((Fact(word), 2)))
        assert parse(f"per {word} where {word} == 1 {word}(x)") == parse(
            f"per `{word}` where `{word}` == 1 `{word}`(x)"
        )


def test_a_long_sum_is_refused_in_time_as_too_large() -> None:
    for text in ("x + " * 3_000, "x - " * 3_000, "x * y + " * 1_500):
        with pytest.raises(ConditionError) as refused:
            parse(f"{text}x > 1")
        assert refused.value.code == 1303


@pytest.mark.slow
@pytest.mark.parametrize("opened", ["abs(", "(x + ", "age(a == 1 and age(", "x > count(", "max(x where not "])
def test_deep_terms_are_refused_as_too_deep_even_if_they_are_not_finished(opened: str) -> None:
    with pytest.raises(ConditionError) as refused:
        parse(opened * 4_000)
    assert refused.value.code == 1303
