"""What the values, modifiers and conditions of Sigma become, and at which events they are true."""

import json
from pathlib import Path
from typing import Any

import pytest

from api.cli.sigma.conversion import Converter
from engine import Detector
from engine.language.text.printer import format as canonical
from tests.unit.cli.sigma.matcher import matcher

MISSING = object()


def converted(folder: Path, detection: dict[str, Any]) -> Any:
    rule = {"title": "rule", "logsource": {"product": "any"}, "detection": detection}
    (folder / "rule.yml").write_text(json.dumps(rule), "utf-8")
    conversion = Converter(keyword_fields=["message"]).convert([str(folder)])
    assert conversion.left_out == []
    return conversion.converted[0]


def verdicts(each: Any, events: list[dict[str, Any]]) -> list[bool]:
    """The verdicts of the engine, which are those of the matcher."""
    detector = Detector()
    detector.add_rule("rule", each.condition)
    found = [bool(detector.evaluate(event, 0)) for event in events]
    matches = matcher(each.rule, ("message",))
    assert found == [matches(event) for event in events]
    return found


@pytest.mark.parametrize(
    ("field", "value", "true", "false"),
    [
        ("x", "Ab.c", ["ab.C"], ["Ab.cd", "abxc", 7, MISSING, ["Ab.c"]]),
        ("x", "a*c?", ["A\nxCd", "acd"], ["ac", "bacd", 5]),
        ("x", r"a\*b", ["A*B"], ["axb"]),
        ("x", r"a\\*b", [r"A\xB"], ["a*b"]),
        ("x", r"C:\dir", [r"c:\DIR"], ["c:dir"]),
        ("x", "*", ["", 0, False, "a", []], [MISSING, None]),
        ("x", "?*", ["a"], ["", 5]),
        ("x", "", [""], ["a", 0, MISSING]),
        ("x", None, [MISSING, None], ["", 0]),
        ("x", [None, "a"], [MISSING, "A"], ["b"]),
        ("x", 3, [3, 3.0, "3"], ["03", 4, True, "3.0"]),
        ("x", "3", [3, "3"], ["03", 4]),
        ("x", "1.5", [1.5, "1.5"], ["1.50"]),
        ("x", "03", ["03"], [3]),
        ("x", 1.5, [1.5, "1.5"], [1]),
        ("x", [3, 4, "a"], [3, "4", "A"], [5, "b"]),
        ("x", True, [True, "TRUE"], [False, 1, "1"]),
        ("x", "false", [False, "False"], [0, True]),
        ("x|cased", "aB", ["aB"], ["ab", 5]),
        ("x|contains|cased", "aB", ["xaBy"], ["xaby", ["aB"]]),
        ("x|startswith|cased", "aB", ["aBy"], ["aby", "xaB"]),
        ("x|contains", ["a.b", "c"], ["xA.By", "C"], ["axb"]),
        ("x|contains|all", ["ab", "c"], ["CxAB"], ["ab", "c"]),
        ("x|startswith", "ab", ["ABc"], ["cab"]),
        ("x|endswith", ["$", "\\"], ["a$", "a\\"], ["$a"]),
        ("x|re", "a+b$", ["xaab"], ["AB", "abc", 7]),
        ("x|re|i", "a+b", ["xAAb"], ["xb"]),
        ("x|re|m", "^b$", ["a\nb\nc"], ["a b"]),
        ("x|re|s", "a.b", ["a\nb"], ["ab"]),
        ("x|re|i|m|s", "^a.b$", ["c\nA\nB\n"], ["cA\nB"]),
        (
            "x|cidr",
            ["10.0.0.0/8", "fe80::/10"],
            ["10.1.2.3", "fe80::1", "::ffff:10.1.2.3"],
            ["11.0.0.1", "10.", 10],
        ),
        ("x|base64", "foo", ["zM9v", "Zm9v"], ["foo"]),
        ("x|base64offset|contains", "foobar", ["..Zm9vYmFy", "xZvb2Jhc", "mb29iYX"], ["foobar"]),
        ("x|wide|base64offset|contains", "ab", ["YQBiA", "EAYg", "hAGIA"], ["YWI"]),
        ("x|utf16|base64", "a", ["//5hAA=="], ["a"]),
        ("x|windash|contains", " -e", ["A -E", "a /e", "a \u2013e"], ["a e"]),
        ("x|windash|contains|all", [" -e", "b"], ["b /e"], ["b", " -e"]),
        ("x|lt", 3, [2, 2.5], [3, 4, "2", MISSING]),
        ("x|lte", 3, [2, 3], [4]),
        ("x|gt", 3, [4], [3, "4", True]),
        ("x|gte", 3, [3, 4], [2]),
        ("x|exists", True, ["", 0, [1]], [MISSING, None]),
        ("x|exists", False, [MISSING, None], ["", 0]),
        ("x|fieldref", "y", ["other"], ["OTHER", MISSING]),
        ("x|neq", "a", ["b", MISSING], ["A"]),
        ("x|contains|neq", ["a", "b"], ["c", MISSING], ["xA"]),
        ("x|year", 2024, ["2024-03-04T09:15:26Z"], ["2023-03-04T09:15:26Z"]),
        ("x|month", 3, ["2024-03-04T09:15:26Z"], ["2024-04-04"]),
        ("x|day", 4, ["2024-03-04 09:15:26"], ["2024-03-14"]),
        ("x|hour", 9, ["2024-03-04 09:15:26"], ["2024-03-04T19:15:26Z"]),
        ("x|minute", [15, 16], ["2024-03-04 09:15:26"], ["2024-03-04T09:17:26Z"]),
        ("a field.with-signs", "b", ["B"], ["c"]),
    ],
)
def test_values_and_modifiers(
    tmp_path: Path, field: str, value: Any, true: list[Any], false: list[Any]
) -> None:
    each = converted(tmp_path, {"selection": {field: value}, "condition": "selection"})
    name = field.partition("|")[0]
    events = [{"y": "other"} | ({} if one is MISSING else {name: one}) for one in [*true, *false]]
    assert verdicts(each, events) == [True] * len(true) + [False] * len(false)


SELECTIONS = {
    "one": {"a": "x", "b": ["y", "z"]},
    "two": [{"a": "u"}, {"b|startswith": "v", "c": 1}],
    "words": ["alpha", "be?a"],
    "all_words": {"|all": ["alpha", "gamma"]},
}
EVENTS: list[dict[str, Any]] = [
    {"a": "X", "b": "Z"},
    {"a": "x", "b": "v", "c": 1},
    {"a": "U"},
    {"b": "vw", "c": "1"},
    {"message": "the ALPHA"},
    {"message": "beta and gamma"},
    {"message": "alpha gamma", "a": "u"},
    {},
]


@pytest.mark.parametrize(
    ("condition", "true"),
    [
        ("one", [0]),
        ("two", [1, 2, 3, 6]),
        ("not one and two", [1, 2, 3, 6]),
        ("one or words", [0, 4, 5, 6]),
        ("1 of t*", [1, 2, 3, 6]),
        ("any of them", [0, 1, 2, 3, 4, 5, 6]),
        ("all of *words", [6]),
        ("not (1 of them)", [7]),
        ("all_words and not all of them", [6]),
        (["one", "all_words"], [0, 6]),
    ],
)
def test_conditions(tmp_path: Path, condition: Any, true: list[int]) -> None:
    each = converted(tmp_path, {**SELECTIONS, "condition": condition})
    assert [place for place, verdict in enumerate(verdicts(each, EVENTS)) if verdict] == true


def test_what_is_asked_of_one_field_in_one_form_is_joined(tmp_path: Path) -> None:
    detection = {
        "selection": {"EventID": [4624, 4625], "x|contains": ["a", "b", "a"], "hash": ["1", "2"]},
        "filter": [{"ip|cidr": "10.0.0.0/8"}, {"ip|cidr": "127.0.0.0/8"}, {"ip": "-"}],
        "condition": "selection and not filter",
    }
    text = canonical(converted(tmp_path, detection).condition)
    assert 'EventID in [4624, 4625] or EventID in ["4624", "4625"]' in text
    assert 'ip in network ["10.0.0.0/8", "127.0.0.0/8"] or ip == "-"' in text
    assert 'x icontains ["a", "b"]' in text


def test_a_condition_is_laid_out_by_its_parts(tmp_path: Path) -> None:
    detection = {
        "selection": {"a": 1, "b|gt": 5, "c": "1-1"},
        "filter": {"d": None},
        "condition": "selection and not filter",
    }
    text = converted(tmp_path, detection).text
    assert text.splitlines() == ['(a == 1 or a == "1")', "and b > 5", 'and c == "1-1"', "and not missing d"]
