"""The canonical text: what it looks like, and that the oddest names, numbers and windows survive it."""

from itertools import pairwise

import pytest

from engine.language.condition import (
    All,
    Any,
    Avg,
    Count,
    CountSince,
    Distinct,
    Earlier,
    EarlierWithin,
    FactArg,
    Historically,
    HistoricallyFor,
    InRelation,
    Keyed,
    Leaf,
    Not,
    Once,
    OnceWithin,
    Previous,
    Ref,
    ScaledFact,
    Since,
    SinceWithin,
    Sum,
)
from engine.language.limits import Limits
from engine.language.text.parser import parse
from engine.language.text.printer import format as text_of
from tests.worlds.conditions import MAX, ODD_NAMES, ODD_NUMBERS, PATTERNS, WINDOWS

ROOMY = Limits(text_bytes_max=10**6)
A, B, C = Leaf("a", "eq", 1), Leaf("b", "eq", 2), Leaf("c", "eq", 3)

TEXTS = {
    'x == "v"': Leaf("x", "eq", "v"),
    "x != 1.0": Leaf("x", "neq", 1.0),
    "x == true": Leaf("x", "eq", True),
    'x in ["a", "b"]': Leaf("x", "in", ("a", "b")),
    "x not in []": Leaf("x", "nin", ()),
    "x contains false": Leaf("x", "contains", False),
    r"x matches '@(tmp|trash)mail\.'": Leaf("x", "matches", r"@(tmp|trash)mail\."),
    "x == '\"'": Leaf("x", "eq", '"'),
    'x == "\'"': Leaf("x", "eq", "'"),
    r'''x == "'\"\\"''': Leaf("x", "eq", "'\"\\"),
    r'x == "\n\u0000\u007f\u2028\u202e\\"': Leaf("x", "eq", "\n\x00\x7f\u2028\u202e\\"),
    'x == "é名𝄞"': Leaf("x", "eq", "é名𝄞"),
    "x between 1 and 2.5": Leaf("x", "between", (1, 2.5)),
    'x between "a" and "b"': Leaf("x", "between", ("a", "b")),
    "x >= 5": Leaf("x", "between", (5, MAX)),
    "x <= 5": Leaf("x", "between", (-MAX, 5)),
    f"x >= {-MAX!r}": Leaf("x", "between", (-MAX, MAX)),
    f"x >= {MAX!r}": Leaf("x", "between", (MAX, int(MAX))),
    "x > 5": All((Leaf("x", "between", (5, MAX)), Leaf("x", "neq", 5))),
    "x < 5": All((Leaf("x", "between", (-MAX, 5)), Leaf("x", "neq", 5.0))),
    "x >= 5 and x != 6": All((Leaf("x", "between", (5, MAX)), Leaf("x", "neq", 6))),
    "x >= 5 and y != 5": All((Leaf("x", "between", (5, MAX)), Leaf("y", "neq", 5))),
    "x >= 1 and x != true": All((Leaf("x", "between", (1, MAX)), Leaf("x", "neq", True))),
    'x >= 1 and x != "1"': All((Leaf("x", "between", (1, MAX)), Leaf("x", "neq", "1"))),
    "x != 5 and x >= 5": All((Leaf("x", "neq", 5), Leaf("x", "between", (5, MAX)))),
    "x >= 5 or x != 5": Any((Leaf("x", "between", (5, MAX)), Leaf("x", "neq", 5))),
    "x > 5 and x < 7": All(
        (
            All((Leaf("x", "between", (5, MAX)), Leaf("x", "neq", 5))),
            All((Leaf("x", "between", (-MAX, 7)), Leaf("x", "neq", 7))),
        )
    ),
    "not x > 5": Not(All((Leaf("x", "between", (5, MAX)), Leaf("x", "neq", 5)))),
    "x == y.z": Ref("x", "eq", "y.z"),
    "$x not in `in`": Ref("$x", "nin", "in"),
    'rel(a, "b", 3, true)': InRelation("rel", (FactArg("a"), "b", 3, True)),
    "`a.b`(`a b`)": InRelation("a.b", (FactArg("a b"),)),
    "`$r`()": InRelation("$r", ()),
    "a == 1 and b == 2 and c == 3": All((A, B, C)),
    "all(a == 1)": All((A,)),
    "any(a == 1 or b == 2)": Any((Any((A, B)),)),
    "(a == 1 and b == 2) and c == 3": All((All((A, B)), C)),
    "(a == 1 or b == 2) or c == 3": Any((Any((A, B)), C)),
    "a == 1 and b == 2 or c == 3": Any((All((A, B)), C)),
    "a == 1 and (b == 2 or c == 3)": All((A, Any((B, C)))),
    "not (a == 1 and b == 2)": Not(All((A, B))),
    "not not a == 1": Not(Not(A)),
    "once (a == 1 since b == 2)": Once(Since(A, B)),
    "(a == 1 since b == 2) since c == 3": Since(Since(A, B), C),
    "a == 1 since (b == 2 since c == 3)": Since(A, Since(B, C)),
    "a == 1 since not b == 2 and c == 3": All((Since(A, Not(B)), C)),
    "a == 1 since within 8h b == 2": SinceWithin(A, B, 28_800),
    "historically once within 10m a == 1": Historically(OnceWithin(A, 600)),
    "historically for 5m a == 1": HistoricallyFor(A, 300),
    "historically for 5m weak a == 1": HistoricallyFor(A, 300, "weak"),
    "historically for 5m strong (a == 1 or b == 2)": HistoricallyFor(Any((A, B)), 300, "strong"),
    "per `a b` per $k a == 1": Keyed(Keyed(A, "$k"), "a b"),
    "per where where a == 1 b == 2": Keyed(B, "where", A),
    "per k where (a == 1 or b == 2) (a == 1 and b == 2)": Keyed(All((A, B)), "k", Any((A, B))),
    "per k where not a == 1 (a == 1 since b == 2)": Keyed(Since(A, B), "k", Not(A)),
    "per k where (a == 1 since b == 2) c == 3": Keyed(C, "k", Since(A, B)),
    "per k where x > 5 b == 2": Keyed(B, "k", All((Leaf("x", "between", (5, MAX)), Leaf("x", "neq", 5)))),
    "previous (a == 1 and b == 2)": Previous(All((A, B))),
    "previous not earlier a == 1": Previous(Not(Earlier(A))),
    "earlier within 5m (a == 1 or b == 2)": EarlierWithin(Any((A, B)), 300),
    "previous a == 1 since b == 2": Since(Previous(A), B),
    "count(a == 1 and b == 2) within 10m >= 5": Count(All((A, B)), 600, "gte", 5),
    "not count(a == 1) == 0": Not(Count(A, None, "eq", 0)),
    "count(a == 1) != 1 since count(a == 1) <= 2": Since(Count(A, None, "neq", 1), Count(A, None, "lte", 2)),
    "distinct(`in`) within 90s > 20": Distinct("in", None, 90, "gt", 20),
    "distinct(distinct where a == 1 or b == 2) < 20": Distinct("distinct", Any((A, B)), None, "lt", 20),
    "sum(x where a == 1 since b == 2) within 0s > 1000": Sum("x", Since(A, B), 0, "gt", 1000),
    "sum(x) > y.z": Sum("x", None, None, "gt", ScaledFact("y.z")),
    "avg($x) within 30d < 1 * `a b`": Avg("$x", None, 2_592_000, "lt", ScaledFact("a b", 1)),
    "avg(x) == -1e-07 * x": Avg("x", None, None, "eq", ScaledFact("x", -1e-7)),
    "avg(x) > 1e+300": Avg("x", None, None, "gt", 1e300),
    "x == [1, 2]": Leaf("x", "eq", (1, 2)),
    'x contains "v"': Leaf("x", "contains", "v"),
    "x < -5.5": All((Leaf("x", "between", (-MAX, -5.5)), Leaf("x", "neq", -5.5))),
    "x in $list": Ref("x", "in", "$list"),
    "a == 1 or b == 2 or c == 3": Any((A, B, C)),
    "a == 1 and (b == 2 and c == 3)": All((A, All((B, C)))),
    "once a == 1": Once(A),
    "historically a == 1": Historically(A),
    "per k where per l where a == 1 b == 2 c == 3": Keyed(C, "k", Keyed(B, "l", A)),
    "earlier within 5m a == 1": EarlierWithin(A, 300),
    "once within [5m, 1h] a == 1": OnceWithin(A, 3600, 300),
    "once within [0s, 500ms] not a == 1": OnceWithin(Not(A), 0.5, 0),
    "earlier within [300ms, 1s] a == 1": EarlierWithin(A, 1, 0.3),
    "historically for [5m, 1h] a == 1": HistoricallyFor(A, 3600, None, 300),
    "historically for [5m, 1h] weak a == 1": HistoricallyFor(A, 3600, "weak", 300),
    "a == 1 since within [5m, 1h] b == 2": SinceWithin(A, B, 3600, 300),
    "count(a == 1) since b == 2 >= 3": CountSince(A, B, "gte", 3),
    "count(a == 1 or b == 2) since not c == 3 == 0": CountSince(Any((A, B)), Not(C), "eq", 0),
    "count(a == 1) since (b == 2 since c == 3) > 1 since b == 2": Since(
        CountSince(A, Since(B, C), "gt", 1), B
    ),
    "distinct($x.y where a == 1 and b == 2) > 20": Distinct("$x.y", All((A, B)), None, "gt", 20),
    "sum(x where a == 1) within 1d > 1000": Sum("x", A, 86400, "gt", 1000),
    "avg(x) within 30d < 0.3 * amount": Avg("x", None, 2592000, "lt", ScaledFact("amount", 0.3)),
    "avg(x) == -1 * `in`": Avg("x", None, None, "eq", ScaledFact("in", -1)),
}

WINDOW_TEXTS = {
    0: "0s",
    1: "1s",
    59: "59s",
    60: "1m",
    61: "61s",
    90: "90s",
    300.0: "5m",
    3_600: "1h",
    5_400: "90m",
    86_400: "1d",
    90_000: "25h",
    604_800: "1w",
    1_209_600: "2w",
    691_200: "8d",
    0.001: "1ms",
    0.3: "300ms",
    0.0005: "0.0005s",
    1.001: "1.001s",
    90.5: "90.5s",
    0.1 + 0.2: "0.30000000000000004s",
    1e-7: "1e-07s",
    1e22: "10000000000000000000000s",
    1e23: "1e+23s",
    1e300: "1e+300s",
    60 * 10**30: "1000000000000000000000000000000m",
}

SPEC_EXAMPLES = (
    'amount > 1000 and country not in ["DE", "FR"]',
    'per user.id (once within 10m (action == "login" and ok == false)) and action == "transfer"',
    "per host (historically for 5m strong cpu between 90 and 100)",
    '(not action == "logout") since within 8h action == "login"',
    r"owns(user.id, account.id) and ip in $blocklist and email matches '@(tmp|trash)mail\.'",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_condition_has_this_text(text: str) -> None:
    assert text_of(TEXTS[text]) == text
    assert parse(text) == TEXTS[text]


@pytest.mark.parametrize("window", WINDOW_TEXTS)
def test_a_window_is_written_in_the_largest_unit_that_makes_it_an_integer(window: float) -> None:
    text = text_of(OnceWithin(A, window))
    assert text == f"once within {WINDOW_TEXTS[window]} a == 1"
    assert parse(text) == OnceWithin(A, window)


@pytest.mark.parametrize("text", SPEC_EXAMPLES)
def test_the_text_of_a_text_is_stable(text: str) -> None:
    once = text_of(parse(text))
    assert parse(once) == parse(text)
    assert text_of(parse(once)) == once


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_the_oddest_names_survive_wherever_a_name_stands(name: str) -> None:
    condition = Keyed(
        All((Ref(name, "in", name), Leaf(name, "eq", name), InRelation(name, (FactArg(name), name)))), name
    )
    assert parse(text_of(condition)) == condition
    relation = InRelation(name, (FactArg(name),))
    for inner in (relation, Not(relation), Previous(relation), Leaf(name, "nin", ()), Ref(name, "in", name)):
        summed = Sum(name, inner, None, "gt", ScaledFact(name, 2))
        for part in (inner, Previous(inner), Earlier(inner), Count(inner, None, "gt", 1), summed):
            keyed = Keyed(part, name, part)
            assert parse(text_of(keyed)) == keyed


@pytest.mark.parametrize("number", ODD_NUMBERS, ids=lambda number: repr(number)[:20])
def test_the_oddest_numbers_survive_and_keep_their_type(number: float) -> None:
    read = parse(text_of(Leaf("a", "eq", (number, 1))), ROOMY)
    assert isinstance(read, Leaf)
    assert repr(read.value) == repr((number, 1))


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: repr(window)[:20])
def test_the_oddest_windows_survive(window: float) -> None:
    condition = HistoricallyFor(SinceWithin(A, B, window), window, "strong")
    assert parse(text_of(condition)) == condition


@pytest.mark.parametrize("pattern", PATTERNS, ids=ascii)
def test_the_oddest_strings_survive(pattern: str) -> None:
    condition = Leaf("a", "matches", pattern)
    assert parse(text_of(condition)) == condition


def test_no_two_of_the_odd_names_are_written_alike() -> None:
    texts = sorted(text_of(Leaf(name, "eq", 1)) for name in ODD_NAMES)
    assert all(one != other for one, other in pairwise(texts))
