"""Conditions past a bound are refused with 1303 alone; up to the bound they are accepted."""

import json
from typing import Any as Json

import pytest

from engine.language.diagnostics import ConditionError
from engine.language.json.writer import condition_to_document
from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.language.text.parser import parse
from engine.language.text.printer import format as text_of
from engine.language.validation.document import (
    condition_from_document,
    condition_from_json,
    condition_from_stored,
)

LEAF: Json = {"leaf": {"fact": "a", "op": "eq", "value": 1}}


def nested(levels: int, innermost: Json = LEAF) -> Json:
    document = innermost
    for _ in range(levels):
        document = {"not": document}
    return document


def codes_of(source: Json, limits: Limits = DEFAULT_LIMITS) -> list[int]:
    try:
        parse(source, limits)
    except ConditionError as error:
        return [entry.code for entry in error.entries]
    return []


def test_the_text_is_bounded_in_bytes_of_utf8() -> None:
    for text in ('a == "{}"', '{{"leaf": {{"fact": "a", "op": "eq", "value": "{}"}}}}'):
        room = 64 * 1024 - len(text.format(""))
        assert codes_of(text.format("x" * room)) == []
        assert codes_of(text.format("x" * (room + 1))) == [1303]
        assert codes_of(text.format("é" * (room // 2))) == []
        assert codes_of(text.format("é" * (room // 2 + 1))) == [1303]
        assert codes_of(text.format("\ud800" * (room // 3))) == [1300]
        assert codes_of(text.format("\ud800" * (room // 3 + 1))) == [1303]


def test_the_defaults_of_a_detector_are_those_that_are_documented() -> None:
    limits = DEFAULT_LIMITS
    assert (limits.late_ms_max, limits.ahead_ms_max) == (5 * 60_000, 60_000)
    assert (limits.body_depth_max, limits.body_values_max) == (64, 1_000_000)
    assert limits.event_values_max == 250_000
    assert (limits.digits_max, limits.batch_events_max) == (4_000, 10_000)
    assert (limits.rules_max, limits.keys_max) == (100_000, 1_000_000)
    assert (limits.answer_bytes_max, limits.state_bytes_max) == (67_108_864, 1_073_741_824)


def test_patterns_of_stored_conditions_are_not_judged_again() -> None:
    """A later version may refuse patterns that a rule of an earlier one has."""
    document = {"leaf": {"fact": "a", "op": "matches", "value": "("}}
    assert condition_to_document(condition_from_stored(document)) == document
    assert codes_of(document) == [1302]


def test_blanks_and_comments_count_as_text() -> None:
    assert codes_of("a == 1" + " " * 65_530) == []
    assert codes_of("a == 1" + " " * 65_531) == [1303]
    assert codes_of("#" * 65_537) == [1303]


@pytest.mark.parametrize("text", ["%" * 70_000, "{" + "x" * 70_000, "\x00" * 70_000, "'" * 70_000])
def test_a_text_that_is_too_long_is_not_read(text: str) -> None:
    assert codes_of(text) == [1303]


def test_bytes_are_held_to_the_same_bound() -> None:
    for data in (b"{" + b" " * 65_536, b"{" + b"\xff" * 65_536):
        with pytest.raises(ConditionError) as refused:
            condition_from_json(data)
        assert refused.value.code == 1303


def test_of_bytes_that_are_not_utf8_all_count() -> None:
    data = b'{"abcdefgh": "\xff\xff"}'
    for bytes_max, code in ((len(data), 1300), (len(data) - 1, 1303)):
        with pytest.raises(ConditionError) as refused:
            condition_from_json(data, Limits(text_bytes_max=bytes_max))
        assert refused.value.code == code


def test_the_check_of_a_size_stops_at_the_first_excess() -> None:
    too_deep = nested(64)
    for document, said in (
        ({"any": [too_deep, *[LEAF] * 2_000]}, "more than 2000 conditions"),
        ({"any": [*[LEAF] * 2_000, too_deep]}, "more than 64 levels deep"),
    ):
        with pytest.raises(ConditionError, match=said):
            condition_from_document(document)


def test_depth_64_is_allowed_and_65_is_not() -> None:
    assert codes_of(nested(63)) == codes_of(json.dumps(nested(63))) == codes_of("not " * 63 + "a == 1") == []
    for source in (nested(64), json.dumps(nested(64)), "not " * 64 + "a == 1"):
        assert codes_of(source) == [1303]
    for text in ("count({}) since a == 1 > 0", "count(a == 1) since {} > 0", "once within [1, 2] {}"):
        assert codes_of(text.format("not " * 62 + "a == 1")) == []
        assert codes_of(text.format("not " * 63 + "a == 1")) == [1303]
        # However it ends.
        assert codes_of(text.format("not " * 63 + "a ==")) == [1303]
        assert codes_of(text.format("not " * 61 + "a ==")) == [1300]


def test_parentheses_are_no_depth() -> None:
    assert codes_of("(" * 10_000 + "a == 1" + ")" * 10_000) == []


def test_what_a_comparison_stands_for_counts() -> None:
    assert codes_of("not " * 62 + "a > 1") == []
    assert codes_of("not " * 63 + "a > 1") == [1303]
    assert codes_of(" or ".join(["a > 1"] * 3), Limits(nodes_max=10)) == []
    assert codes_of(" or ".join(["a > 1"] * 3), Limits(nodes_max=9)) == [1303]


@pytest.mark.slow
def test_nodes_2000_are_allowed_and_2001_are_not() -> None:
    for count, codes in ((1_999, []), (2_000, [1303])):
        document = {"any": [LEAF] * count}
        for source in (document, json.dumps(document), " or ".join(["a == 1"] * count)):
            assert codes_of(source, Limits(text_bytes_max=10**6)) == codes


def test_a_document_that_is_too_large_gets_no_other_error() -> None:
    for document in (
        nested(64, {"leaf": 1}),
        {"all": [{}, {"leef": 1}, nested(64)]},
        {"all": [None] * 2_000},
        {"leef": 1, "all": [nested(64)]},
        {"all": [nested(64, 5)], "since": {"left": {}, "x": 1}},
        {"since_within": {"left": nested(63), "window_secs": -1}},
        {"keyed": {"inner": nested(63)}},
    ):
        assert codes_of(document) == codes_of(json.dumps(document)) == [1303]


@pytest.mark.slow
def test_json_of_any_nesting_is_answered() -> None:
    assert codes_of('{"not":' * 9_000) == [1303]
    assert codes_of('{"not":' * 64 + "garbage") == [1303]
    assert codes_of('{"not":' * 60 + "garbage") == [1300]
    assert codes_of('{"leaf":' + "[" * 60_000) == [1303]
    assert codes_of('{"leaf":' + "[" * 200 + "]" * 200 + "}") == [1303]
    # As deep as 63 conditions with two levels each around a leaf of four.
    assert codes_of('{"leaf":' + "[" * 129 + "]" * 129 + "}") == [1301]
    assert codes_of('{"leaf":' + "[" * 130 + "]" * 130 + "}") == [1303]
    assert codes_of('{"x":' * 12_000) == [1303]


def test_a_document_of_any_nesting_is_answered() -> None:
    assert codes_of(nested(100_000)) == [1303]
    deep: Json = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ConditionError) as refused:
        condition_from_document({"leaf": {"fact": "a", "op": "eq", "value": deep}})
    assert refused.value.code == 1301
    while deep:
        deep = deep.pop()


@pytest.mark.parametrize(
    "text",
    [
        "not " * 100 + "garbage garbage",
        "all(" * 64 + "a == 1 b",
        "(not " * 64 + "a == 1" + ")" * 64 + " xx",
        "a == 1 since within 5m (" * 64 + "5",
        "(" + "not " * 64 + "a == 1 and %",
        "not " * 63 + "a == 1 and %",
        "any(a == 1, b == 2, " + "not " * 63 + "a == 1, a == 1 %",
        "not " * 63 + "a == 1 or b == 2 or %",
        "not " * 64 + "a == 1e999",
        "not " * 64 + "a == '",
        "not " * 64 + "a == 1 AND",
        "earlier within 5m " * 64 + "%",
        "per k where " + "not " * 63 + "a == 1 b == %",
        "sum(x where " + "not " * 63 + "a == 1) > 5 %",
        "sum(x where " + "not " * 63 + "a == 1 %",
        "count(" + "not " * 63 + "a == 1 %",
    ],
)
def test_too_deep_takes_precedence_over_unreadable(text: str) -> None:
    assert codes_of(text) == [1303]


@pytest.mark.parametrize(
    "text",
    [
        "not " * 63 + "%",
        "x not " * 64,
        "not " * 62 + "x not %",
        "not " * 62 + "a == 1 and %",
        "b == 2 and (" * 63 + "%",
        "b == 2 or a == 1 or (" * 63 + "%",
        "per not " * 64,
        "% " + "not " * 100 + "a == 1",
        "previous " * 64 + "%",
        "previous not " * 32 + "%",
        "not " * 63 + "sum(x) > 5 %",
        "not " * 63 + "sum(x %",
        "not " * 63 + "previous(x %",
        "not " * 63 + "previous not %",
        "not " * 63 + "count(x %",
        "not " * 62 + "count(a == 1) > 5 %",
        "not " * 62 + "sum(x where a == 1) > 5 %",
        "not " * 62 + "sum(x where %",
        "not " * 62 + "per k where a == 1 %",
        "per k where a == 1 " * 63 + "%",
        "count > 5 and " * 70 + "%",
        "where not in [1] and " * 70 + "%",
    ],
)
def test_nothing_that_an_ending_could_save_is_too_deep(text: str) -> None:
    assert codes_of(text) == [1300]


def test_a_not_that_may_belong_to_not_in_is_no_depth() -> None:
    assert codes_of("not %", Limits(depth_max=1)) == [1303]
    assert codes_of("x not %", Limits(depth_max=1)) == [1300]


def test_the_largest_condition_prints_and_reads_back() -> None:
    document = nested(62, {"any": [LEAF] * 1_900})
    condition = parse(document)
    assert parse(text_of(condition)) == condition
    assert condition_to_document(condition) == document
