"""Conditions as they come and go: violations in order, types that are kept, what JSON cannot say."""

import math
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any as Json

import pytest

from engine.language.condition import HistoricallyFor, InRelation, Leaf
from engine.language.diagnostics import ConditionError
from engine.language.json.writer import condition_to_document
from engine.language.limits import Limits
from engine.language.text.parser import parse
from engine.language.text.printer import format as text_of
from engine.language.validation.document import condition_from_document, condition_from_json
from tests.unit.language.validation.documents import OK, violations_of


def test_violations_are_reported_together_in_document_order() -> None:
    document = {
        "any": [
            {"leaf": {"op": "matches", "value": "(", "fact": ""}},
            {"leef": 1, "leaf": {"fact": "a", "op": "between", "value": [2, 1]}},
            OK,
            {"since": {"right": {"not": []}, "left": {"once": {"keyed": {"key": "$", "inner": 5}}}}},
        ]
    }
    assert violations_of(document) == [
        (1302, "any[0].leaf.value"),
        (1301, "any[0].leaf.fact"),
        (1301, "any[1]"),
        (1301, "any[1].leef"),
        (1301, "any[1].leaf.value"),
        (1301, "any[3].since.right.not"),
        (1301, "any[3].since.left.once.keyed.key"),
        (1301, "any[3].since.left.once.keyed.inner"),
    ]


def test_a_misspelled_word_is_reported_with_a_suggestion() -> None:
    with pytest.raises(ConditionError) as refused:
        condition_from_document(
            {"historicaly": OK, "historically_for": {"inner": OK, "window_sec": 5, "boundary": "strnog"}}
        )
    assert [entry.message for entry in refused.value.entries] == [
        "condition: expected exactly one member, got `historicaly` and `historically_for`",
        "historicaly: unknown member; did you mean `historically`?",
        "historically_for.window_sec: unknown member; did you mean `window_secs`?",
        "historically_for.boundary: expected `weak` or `strong`, got `strnog`; did you mean `strong`?",
        "historically_for: missing member `window_secs`",
    ]


def test_an_odd_name_of_a_member_stands_in_its_place_quoted_and_cut_short() -> None:
    with pytest.raises(ConditionError) as refused:
        condition_from_document({"a.b": 1, "x" * 500 + "-": 2, "\n": 3, 5: 4})
    places = [entry.message.split(": ")[0] for entry in refused.value.entries]
    assert places == ["condition", "[`a.b`]", f"[`{'x' * 59}…`]", "[`\ufffd`]", "[`5`]"]


def test_equality_of_conditions_keeps_types_apart_as_json_does() -> None:
    def leaf(value: Json) -> Json:
        return condition_from_document({"leaf": {"fact": "a", "op": "eq", "value": value}})

    def historically_for(**more: Json) -> Json:
        return condition_from_document({"historically_for": {"inner": OK, "window_secs": 1, **more}})

    assert leaf(1) == leaf(1.0)
    assert leaf([1, 2]) == leaf([1.0, 2])
    assert hash(leaf(1)) == hash(leaf(1.0))
    for other in (True, "1", [1], 2**53 + 1.0):
        assert leaf(1) != leaf(other)
    assert leaf(2**53 + 1) != leaf(2.0**53)
    assert InRelation("r", (True,)) == InRelation("r", (True,)) != InRelation("r", (1,))
    assert historically_for() != historically_for(boundary="weak")
    assert historically_for() != historically_for(min_secs=0) == historically_for(min_secs=0.0)
    assert historically_for(min_secs=0.5) != historically_for(min_secs=0.25)
    assert isinstance(historically_for(), HistoricallyFor)


@pytest.mark.parametrize(
    ("shuffled", "written"),
    [
        (
            {"count": {"value": 1, "op": "gt", "window_secs": 5, "inner": OK}},
            ["inner", "window_secs", "op", "value"],
        ),
        (
            {"avg": {"value": 1, "op": "gt", "window_secs": 5, "where": OK, "fact": "a"}},
            ["fact", "where", "window_secs", "op", "value"],
        ),
        ({"keyed": {"where": OK, "key": "k", "inner": OK}}, ["inner", "key", "where"]),
        (
            {"historically_for": {"min_secs": 1, "boundary": "weak", "window_secs": 5, "inner": OK}},
            ["inner", "window_secs", "boundary", "min_secs"],
        ),
        (
            {"count_since": {"value": 1, "op": "gt", "reset": OK, "inner": OK}},
            ["inner", "reset", "op", "value"],
        ),
    ],
)
def test_members_of_additions_are_in_the_documented_order(shuffled: Json, written: list[str]) -> None:
    [content] = condition_to_document(condition_from_document(shuffled)).values()
    assert list(content) == written


def test_a_mapping_and_a_tuple_do_as_well_as_a_dict_and_a_list() -> None:
    document = MappingProxyType({"all": (MappingProxyType(OK),)})
    assert parse(document) == condition_from_document({"all": [OK]})
    assert condition_from_document({"leaf": {"fact": "a", "op": "in", "value": (1, 2)}}) == Leaf(
        "a", "in", (1, 2)
    )


@pytest.mark.parametrize(
    "value", [object(), {1}, b"x", 1j, math.nan, math.inf, "\ud800", 10**4000, -(10**4000)]
)
def test_what_json_cannot_say_is_refused_from_callers_in_process(value: Json) -> None:
    assert violations_of({"leaf": {"fact": "a", "op": "eq", "value": value}}) == [(1301, "leaf.value")]
    assert violations_of({"in_relation": {"args": [value], "relation": "r"}}) == [
        (1301, "in_relation.args[0]")
    ]


def test_a_text_that_utf8_cannot_encode_is_refused_where_it_stands() -> None:
    def placed(op: str, value: Json) -> list[tuple[int, str]]:
        return violations_of({"leaf": {"fact": "a", "op": op, "value": value}})

    assert placed("in", ["a", "\ud800"]) == [(1301, "leaf.value[1]")]
    assert placed("matches", "\ud800") == [(1301, "leaf.value")]


def test_the_digits_of_an_integer_are_bounded_exactly() -> None:
    def document(value: int) -> Json:
        return {"leaf": {"fact": "a", "op": "eq", "value": value}}

    limits = Limits(digits_max=5)
    assert violations_of(document(99_999), limits) == violations_of(document(-99_999), limits) == []
    assert violations_of(document(100_000), limits) == [(1301, "leaf.value")]


def test_patterns_are_refused_with_the_reason_that_re2_gives() -> None:
    for pattern, reason in {
        "(": "missing ): (",
        "[z-a]": "invalid character class range: z-a",
        "(?=x)": "invalid perl operator: (?=",
        r"\1": r"invalid escape sequence: \1",
        "a{1001}": "invalid repetition size: {1001}",
        "é(": "missing ): é(",
        "(" * 1_000: f"missing ): {'(' * 148}…",
    }.items():
        with pytest.raises(ConditionError) as refused:
            condition_from_document({"leaf": {"fact": "a", "op": "matches", "value": pattern}})
        (entry,) = refused.value.entries
        assert entry == (1302, f"leaf.value: the regular expression is refused: {reason}")


def test_only_json_is_read_from_json_text() -> None:
    assert condition_from_json(b'{"leaf":{"fact":"a","op":"eq","value":1}}') == condition_from_document(OK)
    for text in ("a == 1", "", "null", "1", "[]", '"a == 1"'):
        with pytest.raises(ConditionError):
            condition_from_json(text)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b'{"a": "\xff"}', "line 1, column 8"),
        (b'{\n"\xc3\xa9": "\xed\xa0\x80"}', "line 2, column 7"),
        (b"\xff\xfe{", "line 1, column 1"),
        (b"\xef\xbb\xbf{}", "line 1, column 1"),
    ],
)
def test_bytes_that_are_not_utf8_are_not_json(data: bytes, place: str) -> None:
    with pytest.raises(ConditionError) as refused:
        condition_from_json(data)
    assert refused.value.code == 1300
    assert refused.value.entries[0].message.startswith(f"{place}: expected ")


def test_the_place_of_a_whole_document_is_its_first_character() -> None:
    with pytest.raises(ConditionError, match=r"got none \(line 3, column 2\)"):
        condition_from_json("\n\n {}")


def test_of_duplicate_members_the_last_counts() -> None:
    text = '{"not": 1, "leaf": {"fact": "b", "fact": "a", "op": "eq", "value": 0, "value": 1}, "not": 2}'
    with pytest.raises(ConditionError):
        parse(text)
    assert parse(text.replace('"not": 1, ', "").replace(', "not": 2', "")) == condition_from_document(OK)


class _Colour(IntEnum):
    RED = 1


class _Word(StrEnum):
    EQ = "eq"
    A = "a"


class _Ratio(float):
    def __repr__(self) -> str:
        return "a ratio"


def test_subclasses_of_numbers_and_strings_become_plain_ones() -> None:
    given = {"leaf": {"fact": _Word.A, "op": _Word.EQ, "value": [_Colour.RED, _Ratio(0.5)]}}
    condition = condition_from_document({"keyed": {"key": _Word.A, "inner": given}})
    assert text_of(condition) == "per a a == [1, 0.5]"
    assert "_" not in repr(condition_to_document(condition))
