"""Explanations as plain data: what a document has, and what it leaves out where there is nothing to say."""

from collections.abc import Mapping
from typing import Any

import pytest

from engine import Detector, explain
from engine.evaluation.explanation.nodes import rule_document
from engine.evaluation.times import milliseconds


def document_of(
    condition: str, fields: Mapping[str, Any], *before: Mapping[str, Any], **options: bool
) -> Any:
    """Return the document of a rule at an event at 10 s, after others at 0 s, 1 s and so on."""
    detector = Detector()
    detector.add_rule("name", condition, rule_id="an id", **options)
    for number, earlier in enumerate(before):
        detector.evaluate(earlier, 1_000 * number)
    (explained,) = explain(detector, fields, 10_000).rules
    return rule_document(explained)


def test_a_rule_has_its_names_its_verdict_and_why_not() -> None:
    node = {"text": "a == 1", "verdict": False, "values": {"a": 2}}
    expected = {"ruleId": "an id", "name": "name", "verdict": False, "node": node, "why_not": ["a == 1"]}
    assert document_of("a == 1", {"a": 2}) == expected
    assert document_of("a == 1", {"a": 2}, shadow=True) == {**expected, "shadow": True}


def test_a_timed_rule_says_when_it_fires_if_nothing_else_comes() -> None:
    silent, beat = "per host (not once within 5m exists beat)", {"host": "a", "beat": 1}
    assert document_of(silent, beat, timed=True)["fires_ms"] == 310_000.001
    for fields, changed in ((beat, {}), ({"beat": 1}, {"timed": True}), ({"host": "a"}, {"timed": True})):
        assert "fires_ms" not in document_of(silent, fields, **changed)


def test_a_rule_that_the_past_decides_has_no_reason_why_not() -> None:
    member = {"text": "a == 1", "verdict": False}
    node = {"text": "previous a == 1", "verdict": False, "nodes": [member]}
    assert document_of("previous a == 1", {}) == {
        "ruleId": "an id",
        "name": "name",
        "verdict": False,
        "node": node,
    }


def test_a_node_has_what_it_found() -> None:
    once = {
        "text": "once within 1m a == 1",
        "verdict": True,
        "nodes": [{"text": "a == 1", "verdict": False, "values": {"a": 2}}],
        "witness_ms": 1_000,
        "until_ms": 61_000,
    }
    keyed = {
        "text": "per user once within 1m a == 1",
        "verdict": True,
        "nodes": [once],
        "key": {"user": 7},
        "until_ms": 61_000,
    }
    before = {"user": 7, "a": 0}, {"user": 7, "a": 1}
    assert document_of("per user once within 1m a == 1", {"user": 7, "a": 2}, *before)["node"] == keyed


@pytest.mark.parametrize(
    ("numbers", "found"), [((), {"found": 0}), ((2, 3), {"found": 5}), ((1e308, 1e308), {})]
)
def test_a_sum_has_its_number_if_json_can_write_it(
    numbers: tuple[float, ...], found: dict[str, float]
) -> None:
    before = [{"a": number} for number in numbers]
    node = document_of("sum(a) > 9", {}, *before)["node"]
    assert {name: node[name] for name in node if name == "found"} == found


def test_a_node_has_its_note() -> None:
    node = document_of("a == 1", {"a": "1"})["node"]
    assert node["note"] == '`a` is the string "1", compared with the number 1'


@pytest.mark.parametrize(("time_us", "time_ms"), [(0, 0), (1_500, 1.5), (-2_000, -2)])
def test_times_are_whole_milliseconds_where_they_can_be(time_us: int, time_ms: float) -> None:
    found = milliseconds(time_us)
    assert (found, type(found)) == (time_ms, type(time_ms))
