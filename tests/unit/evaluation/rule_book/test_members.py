"""What a rule has beside its condition: texts and labels, and how it acts."""

import json
from typing import Any

import pytest

from engine import Detector, Refusal
from engine.evaluation.rule_book.changes.many_rules import WantedRule
from engine.evaluation.rules import Rule, rule_as_sent

LABELS = {"severity": "high", "level": 7, "share": 0.5, "urgent": True, "large": 10**30}
TOLD: dict[str, Any] = {"description": "why", "labels": LABELS}
ACTING: dict[str, Any] = {"timed": True, "every_secs": 600.5, "every_by": ["host", "$zone"]}
ALL = TOLD | ACTING


def members(rule: Rule) -> dict[str, Any]:
    """Return what a caller is sent of them."""
    return {name: value for name, value in rule_as_sent(rule, "").items() if name in ALL}


def test_an_action_repeats_the_labels_of_its_rule_and_not_the_description() -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", "a == 1", **TOLD)
    [action] = detector.evaluate({"a": 1}, 1)
    assert action["labels"] == LABELS
    assert "description" not in action
    [rule] = detector.submit({"a": 1}, 2).fired
    assert json.loads(rule.action_json()) == action
    detector.change_rule(rule_id, labels={})
    [action] = detector.evaluate({"a": 1}, 1)
    assert list(action) == ["type", "ruleId", "name", "priority", "notify"]


def test_a_change_replaces_what_it_names_and_keeps_the_rest_and_the_history() -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", "once a == 1", **ALL)
    detector.evaluate({"a": 1}, 1)
    expected = dict(ALL)
    for change in (
        *({"name": "renamed"}, {"labels": {"level": 8}}, {"description": ""}, {"every_secs": 7}),
        *({"every_by": []}, {"timed": False}, {"labels": {}}),
    ):
        expected |= change
        rule = detector.change_rule(rule_id, **change)
        told = {name: value for name, value in expected.items() if value or name == "every_by"}
        assert members(rule) == {name: value for name, value in told.items() if name != "name"}
    assert len(detector.evaluate({}, 2)) == 1
    assert members(detector.change_rule(rule_id, every_secs=0)) == {}


def test_microseconds_are_exact_and_the_names_are_the_keys_of_the_condition_by_default() -> None:
    detector = Detector()
    condition = "per host per $zone (once per rack a == 1) and per host b == 1"
    rule = detector.rule(detector.add_rule("r", condition, every_secs=1.001))
    assert (rule.every_us, rule.every_names) == (1_001_000, ("host", "$zone"))
    assert detector.change_rule(rule.id, every_by=["rack"]).every_names == ("rack",)
    assert detector.change_rule(rule.id, every_secs=0.3).every_us == 300_000
    assert detector.change_rule(rule.id, every_secs=0).every_us == 0


def test_they_are_saved_are_part_of_versions_and_belong_to_the_rule_and_not_to_its_condition() -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", "a == 1", **ALL)
    draft_id = detector.add_rule("draft", "a == 2", shadow=True, draft_of=rule_id)
    detector.change_rule(rule_id, every_by=["rack"])
    detector.promote(rule_id)
    for each in (detector, Detector.load(detector.dump(), Detector.STATE_VERSION)):
        assert members(each.rule(rule_id)) == ALL | {"every_by": ["rack"]}
        assert members(each.rule(draft_id)) == {}
        *_, first = each.versions.of(each.rule(rule_id), "")
        assert ALL.items() <= first["rule"].items()


def test_a_change_of_many_rules_gives_what_it_leaves_out_its_default() -> None:
    detector = Detector()
    detector.add_rule("r", "a == 1", **ALL)
    assert len(detector.rules_change([WantedRule("r", "a == 1", **ALL)]).unchanged) == 1
    [(_, after)] = detector.rules_change([WantedRule("r", "a == 1")]).changed
    assert members(after) == {}
    [rule] = detector.rules_change([WantedRule("new", "a == 1", **ALL)]).created
    assert members(rule) == ALL


NAME = "expected a name of 1 to 1024 characters, and more than a `$`"
SECS = "every_secs: expected a number from 0 to 1000000000"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"description": "x" * 4_097}, "description: expected at most 4096 characters"),
        ({"labels": {"": 1}}, "labels: expected names of 1 to 64 characters"),
        ({"labels": {"x" * 65: 1}}, "labels: expected names of 1 to 64 characters"),
        ({"labels": {"a": "x" * 1_025}}, "labels.a: expected at most 1024 characters"),
        ({"labels": {"a": None}}, "labels.a: expected a string, a number or a boolean"),
        ({"labels": {"a": [1]}}, "labels.a: expected a string, a number or a boolean"),
        ({"labels": {"a": float("nan")}}, "labels.a: expected a finite number"),
        ({"labels": {f"n{number}": 1 for number in range(65)}}, "labels: expected at most 64 members"),
        ({"every_secs": -1}, SECS),
        ({"every_secs": 10**10}, SECS),
        ({"every_secs": float("nan")}, SECS),
        ({"every_secs": True}, SECS),
        ({"every_secs": "1"}, SECS),
        ({"every_by": ["a"]}, "every_by: only a rule with `every_secs` has it"),
        ({"every_secs": 0, "every_by": ["a"]}, "every_by: only a rule with `every_secs` has it"),
        ({"every_secs": 1, "every_by": "a"}, "every_by: expected an array"),
        ({"every_secs": 1, "every_by": ["a"] * 65}, "every_by: expected at most 64 names"),
        ({"every_secs": 1, "every_by": [""]}, f"every_by[0]: {NAME}"),
        ({"every_secs": 1, "every_by": ["a", "$"]}, f"every_by[1]: {NAME}"),
        ({"every_secs": 1, "every_by": ["x" * 1_025]}, f"every_by[0]: {NAME}"),
        ({"every_secs": 1, "every_by": [1]}, f"every_by[0]: {NAME}"),
    ],
)
def test_what_is_past_a_limit_is_refused_and_changes_nothing(given: dict[str, Any], said: str) -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", "a == 1")
    before = detector.dump()
    with pytest.raises(Refusal) as adding:
        detector.add_rule("other", "a == 1", **given)
    with pytest.raises(Refusal) as changing:
        detector.change_rule(rule_id, **given)
    for refused in (adding, changing):
        assert [(entry.code, entry.message) for entry in refused.value.entries] == [(1001, said)]
    with pytest.raises(Refusal) as putting:
        detector.rules_change([WantedRule("other", "a == 1", **given)])
    assert [entry.message for entry in putting.value.entries] == [f"rules[0].{said}"]
    assert detector.dump() == before


def test_the_largest_ones_are_accepted_and_labels_count_towards_the_answers() -> None:
    detector = Detector()
    detector.add_rule("r", "a == 1")
    worst = detector.rule_set.answer_bytes_worst
    labels = {f"{number:064}": "x" * 1_024 for number in range(64)}
    rule_id = detector.add_rule("large", "a == 1", description="é" * 4_096, labels=labels)
    assert detector.rule(rule_id).labels == labels
    assert detector.rule_set.answer_bytes_worst > 2 * worst + 64 * 1_024


def test_a_name_in_place_of_an_id_is_answered_with_the_id() -> None:
    detector = Detector()
    rule_id = detector.add_rule("hot", "x == 1")
    with pytest.raises(Refusal, match=f"; the rule of that name has the id `{rule_id}`"):
        detector.remove_rule("hot")
    with pytest.raises(Refusal, match=r"no rule `cold` in this detector$"):
        detector.remove_rule("cold")
