"""Any input gives a condition or a ConditionError that points into the input."""

import json
import re
from typing import Any as Json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.language.condition import Condition
from engine.language.diagnostics import ConditionError, Entry, edit_distance
from engine.language.json.reader import JsonReader, NotJson
from engine.language.json.writer import condition_to_document
from engine.language.limits import Limits
from engine.language.text.parser import parse
from engine.language.text.printer import format as text_of
from engine.language.validation.document import condition_from_document, condition_from_json
from tests.worlds.conditions import PIECES, conditions, nearly_texts, small_conditions

CODES = {1300, 1301, 1302, 1303}
PLACE = re.compile(r"line (\d+), column (\d+)")
MEMBERS = (
    *("leaf", "ref", "in_relation", "all", "any", "not", "once", "historically", "since", "once_within"),
    *("historically_for", "since_within", "keyed", "fact", "op", "value", "reference", "args", "relation"),
    *("left", "right", "inner", "window_secs", "boundary", "key", "x", ""),
)
json_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(),
    st.sampled_from(("eq", "between", "matches", "", "$", "(", "a", "weak")),
)
json_values = st.recursive(
    json_scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4)
    ),
    max_leaves=12,
)


def entries_of(source: Json) -> tuple[Entry, ...]:
    """Return the errors of a source, none if it is a condition."""
    try:
        read = condition_from_json(source) if isinstance(source, bytes) else parse(source)
    except ConditionError as error:
        return error.entries
    assert parse(condition_to_document(read)) == read
    return ()


def check(text: str) -> None:
    """Check the form of the errors of a text."""
    lines = text.split("\n")
    for code, message in entries_of(text):
        assert code in CODES
        message.encode()
        if code == 1303:
            assert len(entries_of(text)) == 1
            continue
        place = PLACE.search(message)
        assert place, message
        line, column = map(int, place.groups())
        assert 1 <= line <= len(lines)
        assert 1 <= column <= len(lines[line - 1]) + 1
        if code == 1300:
            sentence, shown, caret = message.split("\n")
            assert sentence.startswith(f"{place[0]}: expected ")
            assert len(shown) <= 170
            assert caret.endswith("^")


def mutated(data: st.DataObject, text: str) -> str:
    """Damage a text in a few places."""
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(at, min(len(text), at + 4)))
        text = text[:at] + data.draw(st.sampled_from(("", "", *PIECES))) + text[until:]
    return text


@given(st.text())
def test_any_text_is_answered(text: str) -> None:
    check(text)


@given(nearly_texts)
def test_any_words_of_the_language_are_answered(text: str) -> None:
    check(text)


@given(conditions, st.data())
def test_any_damage_to_a_valid_text_is_answered(condition: Condition, data: st.DataObject) -> None:
    check(mutated(data, text_of(condition)))


@given(conditions, st.data())
def test_any_damage_to_valid_json_is_answered(condition: Condition, data: st.DataObject) -> None:
    check("{" + mutated(data, json.dumps(condition_to_document(condition)))[1:])


@given(st.binary())
def test_any_bytes_are_answered(data: bytes) -> None:
    for code, _ in entries_of(data):
        assert code in CODES


@given(json_values)
def test_any_document_is_answered_and_every_place_is_in_it(document: Json) -> None:
    try:
        condition_from_document(document)
    except ConditionError as error:
        for code, message in error.entries:
            assert code in {1301, 1302}
            path = message.split(": ")[0]
            at = document
            for name, quoted, index in re.findall(
                r"(\w+)|\[`(.*?)`\]|\[(\d+)\]", "" if path == "condition" else path
            ):
                at = at[int(name or index)] if (name or index).isdecimal() else at[name or quoted]


@given(small_conditions, st.data())
def test_violations_in_several_places_are_all_reported_in_document_order(
    condition: Condition, data: st.DataObject
) -> None:
    document = json.loads(json.dumps(condition_to_document(condition)))
    planted = []

    def plant(value: Json, path: str) -> None:
        match value:
            case dict():
                for name in value:
                    at = f"{path}.{name}" if path else name
                    wrong = {"op": "eqq", "window_secs": -1, "key": "", "relation": 5}.get(name)
                    if wrong is not None and data.draw(st.booleans()):
                        value[name] = wrong
                        planted.append(at)
                    else:
                        plant(value[name], at)
            case list():
                for index, element in enumerate(value):
                    plant(element, f"{path}[{index}]")

    plant(document, "")
    for source in (document, json.dumps(document)):
        assert [message.split(": ")[0] for _, message in entries_of(source)] == planted


@given(
    st.one_of(json_values.map(json.dumps), st.text('[]{},:"\\u0019aeE.-+ \n\ttrufalsn', max_size=12)),
    st.data(),
)
def test_json_is_read_as_the_standard_library_reads_it(text: str, data: st.DataObject) -> None:
    text = mutated(data, text) if data.draw(st.booleans()) else text

    def refused(constant: str) -> Json:
        raise ValueError(constant)

    def finite(literal: str) -> float:
        return refused(literal) if abs(float(literal)) == float("inf") else float(literal)

    try:
        expected = json.loads(text, parse_constant=refused, parse_float=finite)
        json.dumps(expected, ensure_ascii=False).encode()
    except ValueError:
        expected = ValueError
    if expected is ValueError:
        with pytest.raises(NotJson) as refused:
            JsonReader(text, Limits()).read()
        assert 0 <= refused.value.offset <= len(text)
    else:
        assert repr(JsonReader(text, Limits()).read()) == repr(expected)


words = st.text("abc", max_size=5)


@given(words, words)
def test_one_typo_is_one_apart(word: str, other: str) -> None:
    typos = {word[:i] + word[i + 1 :] for i in range(len(word))}
    typos |= {
        word[:i] + letter + word[i + n :] for i in range(len(word) + 1) for letter in "abc" for n in (0, 1)
    }
    typos |= {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(len(word) - 1)}
    assert (edit_distance(word, other) == 0) == (word == other)
    assert (edit_distance(word, other) <= 1) == (other in typos | {word})
    assert edit_distance(word, other) == edit_distance(other, word)
