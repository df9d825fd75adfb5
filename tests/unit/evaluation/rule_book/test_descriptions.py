"""Rules carry a description and labels; their actions repeat the labels."""

import json
from typing import Any

import pytest

from engine import Detector, Refusal
from engine.language.limits import Limits
from tests.unit.evaluation.rule_book.test_rule_room import SMALL

LABELS = {"severity": "high", "level": 7, "share": 0.5, "urgent": True, "large": 10**30}


def labelled(**members: Any) -> tuple[Detector, str]:
    detector = Detector()
    return detector, detector.add_rule("r", SMALL, **{"description": "why", "labels": LABELS} | members)


def test_an_action_repeats_the_labels_of_its_rule_and_not_the_description() -> None:
    detector, _ = labelled()
    [action] = detector.evaluate({"a": 1}, 1)
    assert action["labels"] == LABELS
    assert "description" not in action
    [rule] = detector.submit({"a": 1}, 2).fired
    assert json.loads(rule.action_json()) == action


def test_an_action_without_labels_is_what_it_was() -> None:
    detector, _ = labelled(labels={})
    [action] = detector.evaluate({"a": 1}, 1)
    assert list(action) == ["type", "ruleId", "name", "priority", "notify"]


def test_a_change_replaces_what_it_names_and_keeps_the_history() -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", "once a == 1", description="why", labels=LABELS)
    detector.evaluate({"a": 1}, 1)
    assert detector.change_rule(rule_id, labels={"level": 8}).description == "why"
    assert detector.change_rule(rule_id, description="").labels == {"level": 8}
    assert detector.change_rule(rule_id, name="renamed").labels == {"level": 8}
    [action] = detector.evaluate({}, 2)
    assert action["labels"] == {"level": 8}
    assert not detector.change_rule(rule_id, labels={}).labels


def test_they_are_saved_and_belong_to_the_rule_and_not_to_its_condition() -> None:
    detector, rule_id = labelled()
    draft_id = detector.add_rule("draft", "a == 2", shadow=True, draft_of=rule_id)
    detector.promote(rule_id)
    restored = Detector.load(detector.dump(), Detector.STATE_VERSION)
    for each in (detector, restored):
        assert (each.rule(rule_id).description, each.rule(rule_id).labels) == ("why", LABELS)
        assert (each.rule(draft_id).description, each.rule(draft_id).labels) == ("", {})


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"description": "x" * 4_097}, "description: expected at most 4096 characters"),
        ({"labels": {"": 1}}, "labels: expected names of 1 to 64 characters"),
        ({"labels": {"x" * 65: 1}}, "labels: expected names of 1 to 64 characters"),
        ({"labels": {"a": "x" * 1_025}}, "labels.a: expected at most 1024 characters"),
        ({"labels": {"a": None}}, "labels.a: expected a string, a number or a boolean"),
        ({"labels": {"a": [1]}}, "labels.a: expected a string, a number or a boolean"),
        ({"labels": {"a": float("nan")}}, "labels.a: expected a finite number"),
        ({"labels": {f"n{number}": 1 for number in range(65)}}, "labels: expected at most 64 members"),
    ],
)
def test_what_is_past_a_limit_is_refused_and_changes_nothing(members: dict[str, Any], said: str) -> None:
    detector, rule_id = labelled()
    before = detector.dump()
    with pytest.raises(Refusal) as adding:
        detector.add_rule("other", SMALL, **members)
    with pytest.raises(Refusal) as changing:
        detector.change_rule(rule_id, **members)
    for refused in (adding, changing):
        assert [(entry.code, entry.message) for entry in refused.value.entries] == [(1001, said)]
    assert detector.dump() == before


def test_the_largest_ones_are_accepted() -> None:
    labels = {f"{number:064}": "x" * 1_024 for number in range(64)}
    detector, rule_id = labelled(description="é" * 4_096, labels=labels)
    assert detector.rule(rule_id).labels == labels


def test_they_count_towards_the_rules_and_the_labels_towards_the_answers() -> None:
    detector = Detector(limits=Limits(rules_bytes_max=1_000))
    with pytest.raises(Refusal, match="limit 1000"):
        detector.add_rule("r", SMALL, description="x" * 1_000)
    with pytest.raises(Refusal, match="limit 1000"):
        detector.add_rule("r", SMALL, labels={"a": "x" * 1_000})
    detector.add_rule("r", SMALL)
    worst = detector.answer_bytes_worst
    detector.add_rule("r", SMALL, labels={"a": "x" * 500})
    assert detector.answer_bytes_worst > 2 * worst + 500
