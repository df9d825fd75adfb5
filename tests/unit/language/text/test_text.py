"""Each row of the language's table, and each rule about names, literals, durations and binding."""

import pickle
from typing import Any as Json

import pytest

from engine.language.diagnostics import ConditionError
from engine.language.json.writer import condition_to_document
from engine.language.text.parser import parse
from engine.language.text.printer import format as text_of

MAX = 1.7976931348623157e308


def leaf(fact: str, op: str, value: Json) -> Json:
    return {"leaf": {"fact": fact, "op": op, "value": value}}


def ref(fact: str, op: str, reference: str) -> Json:
    return {"ref": {"fact": fact, "op": op, "reference": reference}}


A, B, C = leaf("a", "eq", 1), leaf("b", "eq", 2), leaf("c", "eq", 3)

TABLE = {
    'x == "v"': leaf("x", "eq", "v"),
    "x = 1": leaf("x", "eq", 1),
    "x != 1.0": leaf("x", "neq", 1.0),
    "x == true": leaf("x", "eq", True),
    "x != false": leaf("x", "neq", False),
    "x == [1, 2]": leaf("x", "eq", [1, 2]),
    "x != []": leaf("x", "neq", []),
    'x in ["a", "b"]': leaf("x", "in", ["a", "b"]),
    "x not in [1]": leaf("x", "nin", [1]),
    "x in []": leaf("x", "in", []),
    "x not\n in[ ]": leaf("x", "nin", []),
    "x contains 'v'": leaf("x", "contains", "v"),
    "x contains 1": leaf("x", "contains", 1),
    "x contains true": leaf("x", "contains", True),
    "x matches '^a'": leaf("x", "matches", "^a"),
    "x between 1 and 2": leaf("x", "between", [1, 2]),
    'x between "a" and "b"': leaf("x", "between", ["a", "b"]),
    "x >= 5": leaf("x", "between", [5, MAX]),
    "x <= 5": leaf("x", "between", [-MAX, 5]),
    "x > 5": {"all": [leaf("x", "between", [5, MAX]), leaf("x", "neq", 5)]},
    "x<-5.5": {"all": [leaf("x", "between", [-MAX, -5.5]), leaf("x", "neq", -5.5)]},
    "x == y": ref("x", "eq", "y"),
    "x = y": ref("x", "eq", "y"),
    "x != y": ref("x", "neq", "y"),
    "x in $list": ref("x", "in", "$list"),
    "x not in user.lists": ref("x", "nin", "user.lists"),
    'rel(a, "b", 3)': {"in_relation": {"args": [{"fact": "a"}, "b", 3], "relation": "rel"}},
    "rel()": {"in_relation": {"args": [], "relation": "rel"}},
    "`a rel`($user.id, true)": {"in_relation": {"args": [{"fact": "$user.id"}, True], "relation": "a rel"}},
    "a == 1 and b == 2 and c == 3": {"all": [A, B, C]},
    "a == 1 or b == 2 or c == 3": {"any": [A, B, C]},
    "(a == 1 and b == 2) and c == 3": {"all": [{"all": [A, B]}, C]},
    "a == 1 and (b == 2 and c == 3)": {"all": [A, {"all": [B, C]}]},
    "(a == 1 or b == 2) or c == 3": {"any": [{"any": [A, B]}, C]},
    "((a == 1))": A,
    "all(a == 1)": {"all": [A]},
    "any(a == 1, b == 2)": {"any": [A, B]},
    "all(a == 1 or b == 2, c == 3)": {"all": [{"any": [A, B]}, C]},
    "not a == 1": {"not": A},
    "once a == 1": {"once": A},
    "once within 10m a == 1": {"once_within": {"inner": A, "window_secs": 600}},
    "historically a == 1": {"historically": A},
    "historically for 5m a == 1": {"historically_for": {"inner": A, "window_secs": 300}},
    "historically for 5m strong a == 1": {
        "historically_for": {"inner": A, "window_secs": 300, "boundary": "strong"}
    },
    "historically for 5m weak a == 1": {
        "historically_for": {"inner": A, "window_secs": 300, "boundary": "weak"}
    },
    "a == 1 since b == 2": {"since": {"left": A, "right": B}},
    "a == 1 since within 8h b == 2": {"since_within": {"left": A, "right": B, "window_secs": 28800}},
    "per user.id a == 1": {"keyed": {"inner": A, "key": "user.id"}},
    "per $tenant (a == 1 or b == 2)": {"keyed": {"inner": {"any": [A, B]}, "key": "$tenant"}},
    "per k where a == 1 b == 2": {"keyed": {"inner": B, "key": "k", "where": A}},
    "per k where not a == 1 (b == 2 or c == 3)": {
        "keyed": {"inner": {"any": [B, C]}, "key": "k", "where": {"not": A}}
    },
    "per k where (a == 1 or b == 2) c == 3": {"keyed": {"inner": C, "key": "k", "where": {"any": [A, B]}}},
    "per k where per l where a == 1 b == 2 c == 3": {
        "keyed": {"inner": C, "key": "k", "where": {"keyed": {"inner": B, "key": "l", "where": A}}}
    },
    "previous a == 1": {"previous": A},
    "earlier a == 1": {"earlier": A},
    "earlier within 5m a == 1": {"earlier_within": {"inner": A, "window_secs": 300}},
    "once within [5m, 1h] a == 1": {"once_within": {"inner": A, "window_secs": 3600, "min_secs": 300}},
    "once within [0,0.5] not a == 1": {
        "once_within": {"inner": {"not": A}, "window_secs": 0.5, "min_secs": 0}
    },
    "earlier within [300ms, 1s] a == 1": {"earlier_within": {"inner": A, "window_secs": 1, "min_secs": 0.3}},
    "historically for [5m, 1h] a == 1": {
        "historically_for": {"inner": A, "window_secs": 3600, "min_secs": 300}
    },
    "historically for [5m, 1h] weak a == 1": {
        "historically_for": {"inner": A, "window_secs": 3600, "boundary": "weak", "min_secs": 300}
    },
    "a == 1 since within [ 5m , # least\n 1h ] b == 2": {
        "since_within": {"left": A, "right": B, "window_secs": 3600, "min_secs": 300}
    },
    "count(a == 1) since b == 2 >= 3": {"count_since": {"inner": A, "reset": B, "op": "gte", "value": 3}},
    "count(a == 1 or b == 2) since not c == 3 == 0": {
        "count_since": {"inner": {"any": [A, B]}, "reset": {"not": C}, "op": "eq", "value": 0}
    },
    "count(a == 1) since (b == 2 since c == 3) > 1 since b == 2": {
        "since": {
            "left": {
                "count_since": {
                    "inner": A,
                    "reset": {"since": {"left": B, "right": C}},
                    "op": "gt",
                    "value": 1,
                }
            },
            "right": B,
        }
    },
    "count(a == 1) >= 5": {"count": {"inner": A, "op": "gte", "value": 5}},
    "count(a == 1) within 10m > 5": {"count": {"inner": A, "window_secs": 600, "op": "gt", "value": 5}},
    "count(a == 1) within 600 < 5": {"count": {"inner": A, "window_secs": 600, "op": "lt", "value": 5}},
    "count(a == 1 or b == 2) <= 5": {"count": {"inner": {"any": [A, B]}, "op": "lte", "value": 5}},
    "count((a == 1)) = 5": {"count": {"inner": A, "op": "eq", "value": 5}},
    "count(a == 1) == 5": {"count": {"inner": A, "op": "eq", "value": 5}},
    "count(a == 1)\n!= 0 # none": {"count": {"inner": A, "op": "neq", "value": 0}},
    "distinct(x) > 20": {"distinct": {"fact": "x", "op": "gt", "value": 20}},
    "distinct(`a b`) within 1h > 20": {
        "distinct": {"fact": "a b", "window_secs": 3600, "op": "gt", "value": 20}
    },
    "distinct($x.y where a == 1 and b == 2) > 20": {
        "distinct": {"fact": "$x.y", "where": {"all": [A, B]}, "op": "gt", "value": 20}
    },
    "sum(x where a == 1) within 1d > 1000": {
        "sum": {"fact": "x", "where": A, "window_secs": 86_400, "op": "gt", "value": 1000}
    },
    "sum(x) > -1.5": {"sum": {"fact": "x", "op": "gt", "value": -1.5}},
    "sum(x) > y.z": {"sum": {"fact": "x", "op": "gt", "value": {"fact": "y.z"}}},
    "avg(x) within 30d < 0.3 * amount": {
        "avg": {"fact": "x", "window_secs": 2_592_000, "op": "lt", "value": {"fact": "amount", "times": 0.3}}
    },
    "avg(x) == -1*`in`": {"avg": {"fact": "x", "op": "eq", "value": {"fact": "in", "times": -1}}},
}

CONTEXTUAL = {
    "previous previous previous == 1": {"previous": {"previous": leaf("previous", "eq", 1)}},
    "earlier earlier not in [1]": {"earlier": leaf("earlier", "nin", [1])},
    "previous not previous in [1]": {"previous": {"not": leaf("previous", "in", [1])}},
    "previous(x)": {"in_relation": {"args": [{"fact": "x"}], "relation": "previous"}},
    "previous()": {"in_relation": {"args": [], "relation": "previous"}},
    "previous (x, 1)": {"in_relation": {"args": [{"fact": "x"}, 1], "relation": "previous"}},
    "previous (a == 1)": {"previous": A},
    "previous ((a == 1))": {"previous": A},
    "previous r(x)": {"previous": {"in_relation": {"args": [{"fact": "x"}], "relation": "r"}}},
    "earlier == 1": leaf("earlier", "eq", 1),
    "earlier within 5 `within` == 1": {
        "earlier_within": {"inner": leaf("within", "eq", 1), "window_secs": 5}
    },
    "count(x) since b == 2": {
        "since": {"left": {"in_relation": {"args": [{"fact": "x"}], "relation": "count"}}, "right": B}
    },
    "count(r(x)) since b == 2 > 0": {
        "count_since": {
            "inner": {"in_relation": {"args": [{"fact": "x"}], "relation": "r"}},
            "reset": B,
            "op": "gt",
            "value": 0,
        }
    },
    "count(x)": {"in_relation": {"args": [{"fact": "x"}], "relation": "count"}},
    "count() and b == 2": {"all": [{"in_relation": {"args": [], "relation": "count"}}, B]},
    'sum("a", where)': {"in_relation": {"args": ["a", {"fact": "where"}], "relation": "sum"}},
    "count(count(x)) > 1": {
        "count": {
            "inner": {"in_relation": {"args": [{"fact": "x"}], "relation": "count"}},
            "op": "gt",
            "value": 1,
        }
    },
    "sum(sum) > sum": {"sum": {"fact": "sum", "op": "gt", "value": {"fact": "sum"}}},
    "avg(where where where == 1) > 2 * where": {
        "avg": {
            "fact": "where",
            "where": leaf("where", "eq", 1),
            "op": "gt",
            "value": {"fact": "where", "times": 2},
        }
    },
    "distinct(x where where(y)) > 1": {
        "distinct": {
            "fact": "x",
            "where": {"in_relation": {"args": [{"fact": "y"}], "relation": "where"}},
            "op": "gt",
            "value": 1,
        }
    },
    "per where where == 1": {"keyed": {"inner": leaf("where", "eq", 1), "key": "where"}},
    "per where where where == 1 a == 1": {
        "keyed": {"inner": A, "key": "where", "where": leaf("where", "eq", 1)}
    },
    "per k where(x)": {
        "keyed": {"inner": {"in_relation": {"args": [{"fact": "x"}], "relation": "where"}}, "key": "k"}
    },
    "per k where not in [1]": {"keyed": {"inner": leaf("where", "nin", [1]), "key": "k"}},
    "per count count(a == 1) > 1": {
        "keyed": {"inner": {"count": {"inner": A, "op": "gt", "value": 1}}, "key": "count"}
    },
    "per previous previous a == 1": {"keyed": {"inner": {"previous": A}, "key": "previous"}},
    "per k where x == previous (a == 1)": {
        "keyed": {"inner": A, "key": "k", "where": ref("x", "eq", "previous")}
    },
    "per k where x in count not a == 1": {
        "keyed": {"inner": {"not": A}, "key": "k", "where": ref("x", "in", "count")}
    },
    "x == earlier and earlier a == 1 since previous == 1": {
        "all": [
            ref("x", "eq", "earlier"),
            {"since": {"left": {"earlier": A}, "right": leaf("previous", "eq", 1)}},
        ]
    },
    "`count`(a) and `previous` == 1": {
        "all": [
            {"in_relation": {"args": [{"fact": "a"}], "relation": "count"}},
            leaf("previous", "eq", 1),
        ]
    },
    "count.x == 1": leaf("count.x", "eq", 1),
    "$previous == 1": leaf("$previous", "eq", 1),
    "r(previous, count, where)": {
        "in_relation": {"args": [{"fact": "previous"}, {"fact": "count"}, {"fact": "where"}], "relation": "r"}
    },
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


@pytest.mark.parametrize("text", TABLE)
def test_each_row_of_the_table_gives_its_condition(text: str) -> None:
    assert condition_to_document(parse(text)) == TABLE[text]
    assert repr(condition_to_document(parse(text))) == repr(TABLE[text])


@pytest.mark.parametrize("text", CONTEXTUAL)
def test_a_word_of_the_additions_is_a_keyword_only_where_one_is_expected(text: str) -> None:
    assert condition_to_document(parse(text)) == CONTEXTUAL[text]
    assert parse(text_of(parse(text))) == parse(text)


@pytest.mark.parametrize("text", [*TABLE, "`a``b`('x', \"y\", `z`, $v.w)"])
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
    assert condition_to_document(parse(f"{text} == 1")) == leaf(name, "eq", 1)
    assert condition_to_document(parse(f"{text}\n== {text}")) == ref(name, "eq", name)
    assert condition_to_document(parse(f"per {text}(a==1)")) == {"keyed": {"inner": A, "key": name}}
    assert condition_to_document(parse(f"sum({text} where {text} == 1) > 2 * {text}")) == {
        "sum": {"fact": name, "where": leaf(name, "eq", 1), "op": "gt", "value": {"fact": name, "times": 2}}
    }
    assert condition_to_document(parse(f"per {text} where {text} == 1 {text} == 2")) == {
        "keyed": {"inner": leaf(name, "eq", 2), "key": name, "where": leaf(name, "eq", 1)}
    }
    assert condition_to_document(parse(f"r({text})")) == {
        "in_relation": {"args": [{"fact": name}], "relation": "r"}
    }


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
    assert condition_to_document(parse(text)) == A


@pytest.mark.parametrize("blank", ["\xa0", "\f", "\v", "\u2028", "\ufeff", "\x00"])
def test_only_space_tab_and_line_ends_are_blank(blank: str) -> None:
    with pytest.raises(ConditionError) as refused:
        parse(f"a{blank}== 1")
    assert refused.value.code == 1300
