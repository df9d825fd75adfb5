"""Each row of the language's table, and each rule about names, literals, durations and binding."""

import pickle

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
    InRelation,
    Keyed,
    Leaf,
    Not,
    Previous,
    Ref,
    ScaledFact,
    Since,
    Sum,
)
from engine.language.diagnostics import ConditionError
from engine.language.json.writer import condition_to_document
from engine.language.text.parser import parse
from engine.language.text.printer import format as text_of

A, B = Leaf("a", "eq", 1), Leaf("b", "eq", 2)

WRITTEN_OTHERWISE = {
    "x = 1": "x == 1",
    "x not\n in[ ]": "x not in []",
    "x contains 'v'": 'x contains "v"',
    "x matches '^a'": 'x matches "^a"',
    "x<-5.5": "x < -5.5",
    "x = y": "x == y",
    "((a == 1))": "a == 1",
    "any(a == 1, b == 2)": "a == 1 or b == 2",
    "all(a == 1 or b == 2, c == 3)": "(a == 1 or b == 2) and c == 3",
    "once within [0,0.5] not a == 1": "once within [0s, 500ms] not a == 1",
    "a == 1 since within [ 5m , # least\n 1h ] b == 2": "a == 1 since within [5m, 1h] b == 2",
    "count(a == 1) within 600 < 5": "count(a == 1) within 10m < 5",
    "count((a == 1)) = 5": "count(a == 1) == 5",
    "count(a == 1)\n!= 0 # none": "count(a == 1) != 0",
    "avg(x) == -1*`in`": "avg(x) == -1 * `in`",
}
"""Texts that are not canonical, and those that are; test_printer.py says what these mean."""

CONTEXTUAL = {
    "earlier like 'a'": Leaf("earlier", "matches", "(?s)^a$"),
    "earlier like like 'a'": Earlier(Leaf("like", "matches", "(?s)^a$")),
    "previous icontains ['a', 'b']": Any(
        (Leaf("previous", "matches", "(?i)a"), Leaf("previous", "matches", "(?i)b"))
    ),
    "per k where startswith 'a'": Keyed(Leaf("where", "matches", "(?s)^a"), "k"),
    "previous previous previous == 1": Previous(Previous(Leaf("previous", "eq", 1))),
    "earlier earlier not in [1]": Earlier(Leaf("earlier", "nin", (1,))),
    "previous not previous in [1]": Previous(Not(Leaf("previous", "in", (1,)))),
    "previous(x)": InRelation("previous", (FactArg("x"),)),
    "previous()": InRelation("previous", ()),
    "previous (x, 1)": InRelation("previous", (FactArg("x"), 1)),
    "previous (a == 1)": Previous(A),
    "previous ((a == 1))": Previous(A),
    "previous r(x)": Previous(InRelation("r", (FactArg("x"),))),
    "earlier == 1": Leaf("earlier", "eq", 1),
    "earlier within 5 `within` == 1": EarlierWithin(Leaf("within", "eq", 1), 5),
    "count(x) since b == 2": Since(InRelation("count", (FactArg("x"),)), B),
    "count(r(x)) since b == 2 > 0": CountSince(InRelation("r", (FactArg("x"),)), B, "gt", 0),
    "count(x)": InRelation("count", (FactArg("x"),)),
    "count() and b == 2": All((InRelation("count", ()), B)),
    'sum("a", where)': InRelation("sum", ("a", FactArg("where"))),
    "count(count(x)) > 1": Count(InRelation("count", (FactArg("x"),)), None, "gt", 1),
    "sum(sum) > sum": Sum("sum", None, None, "gt", ScaledFact("sum")),
    "avg(where where where == 1) > 2 * where": Avg(
        "where", Leaf("where", "eq", 1), None, "gt", ScaledFact("where", 2)
    ),
    "distinct(x where where(y)) > 1": Distinct("x", InRelation("where", (FactArg("y"),)), None, "gt", 1),
    "per where where == 1": Keyed(Leaf("where", "eq", 1), "where"),
    "per where where where == 1 a == 1": Keyed(A, "where", Leaf("where", "eq", 1)),
    "per k where(x)": Keyed(InRelation("where", (FactArg("x"),)), "k"),
    "per k where not in [1]": Keyed(Leaf("where", "nin", (1,)), "k"),
    "per count count(a == 1) > 1": Keyed(Count(A, None, "gt", 1), "count"),
    "per previous previous a == 1": Keyed(Previous(A), "previous"),
    "per k where x == previous (a == 1)": Keyed(A, "k", Ref("x", "eq", "previous")),
    "per k where x in count not a == 1": Keyed(Not(A), "k", Ref("x", "in", "count")),
    "x == earlier and earlier a == 1": All((Ref("x", "eq", "earlier"), Earlier(A))),
    "a == 1 since previous == 1": Since(A, Leaf("previous", "eq", 1)),
    "per a.b like == 1": Keyed(Leaf("like", "eq", 1), "a.b"),
    "per k where x in a.b like == 1": Keyed(Leaf("like", "eq", 1), "k", Ref("x", "in", "a.b")),
    "per k where x == $y like like 'a'": Keyed(Leaf("like", "matches", "(?s)^a$"), "k", Ref("x", "eq", "$y")),
    "`count`(a) and `previous` == 1": All((InRelation("count", (FactArg("a"),)), Leaf("previous", "eq", 1))),
    "count.x == 1": Leaf("count.x", "eq", 1),
    "$previous == 1": Leaf("$previous", "eq", 1),
    "r(previous, count, where)": InRelation("r", (FactArg("previous"), FactArg("count"), FactArg("where"))),
}

BINDING = {
    "a == 1 or b == 2 and c == 3": "a == 1 or (b == 2 and c == 3)",
    "a == 1 and b == 2 since c == 3": "a == 1 and (b == 2 since c == 3)",
    "a == 1 since b == 2 and c == 3": "(a == 1 since b == 2) and c == 3",
    "not a == 1 and b == 2": "(not a == 1) and b == 2",
    "not a == 1 since b == 2": "(not a == 1) since b == 2",
    "once a == 1 since not b == 2": "(once a == 1) since (not b == 2)",
    "not once historically per k a == 1": "not (once (historically (per k (a == 1))))",
    "per k a == 1 and b == 2": "(per k a == 1) and b == 2",
    "once within 5 a == 1 or b == 2": "(once within 5 (a == 1)) or b == 2",
    "x > 1 and y < 2 and a == 1": "(x > 1) and (y < 2) and a == 1",
    "x between 1 and 2 and a == 1": "(x between 1 and 2) and a == 1",
    "not x not in [1]": "not (x not in [1])",
    "a == 1 since within 5m once b == 2": "a == 1 since within 5m (once b == 2)",
    "previous a == 1 and b == 2": "(previous a == 1) and b == 2",
    "earlier a == 1 since b == 2": "(earlier a == 1) since b == 2",
    "earlier within 5 a == 1 or b == 2": "(earlier within 5 (a == 1)) or b == 2",
    "not previous count(a == 1) > 2 since b == 2": "(not (previous (count(a == 1) > 2))) since b == 2",
    "per k where a == 1 b == 2 since c == 3": "(per k where (a == 1) (b == 2)) since c == 3",
    "per k where a == 1 b == 2 and c == 3": "(per k where (a == 1) (b == 2)) and c == 3",
    "sum(x) > y and a == 1": "(sum(x) > y) and a == 1",
}

NAMES = {
    "user": "user",
    "user.id": "user.id",
    "$user": "$user",
    "$user.id": "$user.id",
    "@timestamp": "@timestamp",
    "process-name.x-1": "process-name.x-1",
    "_a9": "_a9",
    "user.in": "user.in",
    "in.user": "in.user",
    "$in": "$in",
    "$null": "$null",
    "in-x": "in-x",
    "android": "android",
    "user.AND": "user.AND",
    "previous": "previous",
    "earlier": "earlier",
    "count": "count",
    "distinct": "distinct",
    "sum": "sum",
    "avg": "avg",
    "where": "where",
    "exists": "exists",
    "cidr": "cidr",
    "`in`": "in",
    "`AND`": "AND",
    "`null`": "null",
    "`user`": "user",
    "`$user`": "$user",
    "`a b`": "a b",
    "`a``b`": "a`b",
    "````": "`",
    "`a..b`": "a..b",
    "`größe`": "größe",
    "`a\nb`": "a\nb",
    "`\"'#`": "\"'#",
}

LITERALS = {
    "0": 0,
    "-0": 0,
    "-12": -12,
    "1.50": 1.5,
    "1e3": 1000.0,
    "1E+3": 1000.0,
    "-2.5e-3": -0.0025,
    "123456789012345678901234567890": 123456789012345678901234567890,
    "true": True,
    "false": False,
    '""': "",
    '"a\\"b\\\\c\\/d\\b\\f\\n\\r\\t"': 'a"b\\c/d\b\f\n\r\t',
    '"\\u00e9\\ud834\\udd1e"': "é𝄞",
    '"é # no comment"': "é # no comment",
    "''": "",
    "'  a '": "  a ",
    "'\\d+\\.\"x\"'": '\\d+\\."x"',
    "'tab\there'": "tab\there",
    "[]": [],
    "[1,-2.5]": [1, -2.5],
    "[ \"a\" , 'b' ]": ["a", "b"],
}

DURATIONS = {
    "0": 0,
    "90": 90,
    "1.5": 1.5,
    "1e2": 100.0,
    "5s": 5,
    "2.50s": 2.5,
    "5m": 300,
    "1.5m": 90,
    "8h": 28_800,
    "1d": 86_400,
    "2w": 1_209_600,
    "300ms": 0.3,
    "1001ms": 1.001,
    "2000ms": 2,
    "0.1ms": 0.0001,
    "1e3ms": 1,
    "0.05m": 3,
    "0.7h": 2520,
    "1e-1s": 0.1,
    "1e-99999999999999999999m": 0,
    "0e99999999999999999999m": 0,
}


@pytest.mark.parametrize("text", WRITTEN_OTHERWISE)
def test_a_text_may_be_written_otherwise(text: str) -> None:
    assert parse(text) == parse(WRITTEN_OTHERWISE[text])
    assert text_of(parse(text)) == WRITTEN_OTHERWISE[text]


@pytest.mark.parametrize("text", CONTEXTUAL)
def test_a_word_of_the_additions_is_a_keyword_only_where_one_is_expected(text: str) -> None:
    assert parse(text) == CONTEXTUAL[text]
    assert parse(text_of(parse(text))) == parse(text)


@pytest.mark.parametrize("text", [*CONTEXTUAL, "`a``b`('x', \"y\", `z`, $v.w)"])
def test_a_condition_holds_plain_values_and_nothing_of_the_parser(text: str) -> None:
    pickled = pickle.dumps(parse(text))
    assert b"engine.language.condition" in pickled
    assert b"lark" not in pickled
    assert b"located" not in pickled


@pytest.mark.parametrize("text", BINDING)
def test_what_binds_tighter_needs_no_parentheses(text: str) -> None:
    assert parse(text) == parse(BINDING[text])


@pytest.mark.parametrize("text", NAMES)
def test_a_name_may_stand_wherever_a_fact_is_named(text: str) -> None:
    name = NAMES[text]
    one = Leaf(name, "eq", 1)
    assert parse(f"{text} == 1") == one
    assert parse(f"{text}\n== {text}") == Ref(name, "eq", name)
    assert parse(f"per {text}(a==1)") == Keyed(A, name)
    assert parse(f"sum({text} where {text} == 1) > 2 * {text}") == Sum(
        name, one, None, "gt", ScaledFact(name, 2)
    )
    assert parse(f"per {text} where {text} == 1 {text} == 2") == Keyed(Leaf(name, "eq", 2), name, one)
    assert parse(f"r({text})") == InRelation("r", (FactArg(name),))


@pytest.mark.parametrize("text", ["owns", "@x-1", "count", "`in`", "`a.b`", "`$a`", "`$`", "`a``b`"])
def test_the_name_of_a_relation_is_taken_literally(text: str) -> None:
    name = text.strip("`").replace("``", "`")
    assert condition_to_document(parse(f"{text}(1)")) == {"in_relation": {"args": [1], "relation": name}}


@pytest.mark.parametrize("text", ["a.b(1)", "$a(1)", "in(1)", "ALL(1)", "null(1)"])
def test_no_other_name_of_a_relation_stands_without_backquotes(text: str) -> None:
    with pytest.raises(ConditionError) as refused:
        parse(text)
    assert refused.value.code == 1300


@pytest.mark.parametrize("text", LITERALS)
def test_a_literal_is_the_json_value_that_it_shows(text: str) -> None:
    value = condition_to_document(parse(f"x == {text}"))["leaf"]["value"]
    assert repr(value) == repr(LITERALS[text])


@pytest.mark.parametrize("text", DURATIONS)
def test_a_duration_is_read_in_exact_decimals(text: str) -> None:
    for form, member in (
        ("once within {} a == 1", "once_within"),
        ("historically for {} a == 1", "historically_for"),
        ("a == 1 since within {} b == 2", "since_within"),
    ):
        window = condition_to_document(parse(form.format(text)))[member]["window_secs"]
        assert repr(window) == repr(DURATIONS[text])


@pytest.mark.parametrize(
    "text",
    [
        "a==1#x",
        "# first\na == 1 # second\n# third",
        "\r\n\ta\r\n==\r\n1\r\n",
        "(a==1)",
        "a == 1 # it's \"unclosed `",
    ],
)
def test_blanks_and_comments_mean_nothing(text: str) -> None:
    assert parse(text) == A


@pytest.mark.parametrize("blank", ["\xa0", "\f", "\v", "\u2028", "\ufeff", "\x00"])
def test_only_space_tab_and_line_ends_are_blank(blank: str) -> None:
    with pytest.raises(ConditionError) as refused:
        parse(f"a{blank}== 1")
    assert refused.value.code == 1300
