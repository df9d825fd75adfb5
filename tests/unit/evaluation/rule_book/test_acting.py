"""The members of a rule that say how it acts: `timed`, `every_secs` and `every_by`."""

from typing import Any

import pytest

from engine import Detector, Refusal
from engine.evaluation.rule_book.changes.many_rules import WantedRule
from engine.evaluation.rules import Rule, rule_as_sent
from engine.language.limits import Limits
from tests.unit.evaluation.rule_book.test_rule_room import SMALL

ACTING: dict[str, Any] = {"timed": True, "every_secs": 600.5, "every_by": ["host", "$zone"]}
DEFAULTS = (False, None, None)


def how(rule: Rule) -> tuple[Any, ...]:
    return rule.timed, rule.every_secs, rule.every_by


def test_a_rule_shows_them_where_they_are_set() -> None:
    detector = Detector()
    plain = detector.rule(detector.add_rule("plain", SMALL, every_secs=0))
    assert how(plain) == DEFAULTS
    assert not ACTING.keys() & rule_as_sent(plain, "").keys()
    acting = detector.rule(detector.add_rule("acting", SMALL, **ACTING))
    assert how(acting) == (True, 600.5, ("host", "$zone"))
    assert ACTING.items() <= rule_as_sent(acting, "").items()
    together = detector.rule(detector.add_rule("together", SMALL, every_secs=1, every_by=[]))
    assert rule_as_sent(together, "")["every_by"] == []


def test_microseconds_are_exact_and_the_names_are_the_keys_of_the_condition_by_default() -> None:
    detector = Detector()
    condition = "per host per $zone (once per rack a == 1) and per host b == 1"
    rule = detector.rule(detector.add_rule("r", condition, every_secs=1.001))
    assert (rule.every_us, rule.every_names) == (1_001_000, ("host", "$zone"))
    assert detector.change_rule(rule.id, every_by=["rack"]).every_names == ("rack",)
    assert detector.change_rule(rule.id, every_secs=0.3).every_us == 300_000
    assert detector.change_rule(rule.id, every_secs=0).every_us == 0


def test_a_change_keeps_what_it_does_not_name() -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", SMALL, **ACTING)
    assert how(detector.change_rule(rule_id, name="renamed")) == (True, 600.5, ("host", "$zone"))
    assert how(detector.change_rule(rule_id, every_secs=7)) == (True, 7, ("host", "$zone"))
    assert how(detector.change_rule(rule_id, every_by=[])) == (True, 7, ())
    assert how(detector.change_rule(rule_id, timed=False)) == (False, 7, ())
    assert how(detector.change_rule(rule_id, every_secs=0)) == DEFAULTS


def test_they_are_saved_and_are_part_of_the_versions_and_stay_with_a_rule_that_is_promoted() -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", SMALL, **ACTING)
    draft_id = detector.add_rule("draft", "a == 2", shadow=True, draft_of=rule_id)
    detector.change_rule(rule_id, every_by=["rack"])
    detector.promote(rule_id)
    for each in (detector, Detector.load(detector.dump(), Detector.STATE_VERSION)):
        assert how(each.rule(rule_id)) == (True, 600.5, ("rack",))
        assert how(each.rule(draft_id)) == DEFAULTS
        *_, first = each.versions.of(each.rule(rule_id), "")
        assert ACTING.items() <= first["rule"].items()


def test_a_change_of_many_rules_gives_what_it_leaves_out_its_default() -> None:
    detector = Detector()
    detector.add_rule("r", SMALL, **ACTING)
    same = detector.rules_change([WantedRule("r", SMALL, **ACTING)])
    assert len(same.unchanged) == 1
    change = detector.rules_change([WantedRule("r", SMALL)])
    assert [how(after) for _, after in change.changed] == [DEFAULTS]
    change = detector.rules_change([WantedRule("new", SMALL, **ACTING)])
    assert [how(rule) for rule in change.created] == [(True, 600.5, ("host", "$zone"))]


NAME = "expected a name of 1 to 1024 characters, and more than a `$`"


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"every_secs": -1}, "every_secs: expected a number from 0 to 1000000000"),
        ({"every_secs": 10**10}, "every_secs: expected a number from 0 to 1000000000"),
        ({"every_secs": float("nan")}, "every_secs: expected a number from 0 to 1000000000"),
        ({"every_secs": True}, "every_secs: expected a number from 0 to 1000000000"),
        ({"every_secs": "1"}, "every_secs: expected a number from 0 to 1000000000"),
        ({"every_secs": 0, "every_by": ["a"]}, "every_by: only a rule with `every_secs` has it"),
        ({"every_secs": 1, "every_by": "a"}, "every_by: expected an array"),
        ({"every_secs": 1, "every_by": ["a"] * 65}, "every_by: expected at most 64 names"),
        ({"every_secs": 1, "every_by": [""]}, f"every_by[0]: {NAME}"),
        ({"every_secs": 1, "every_by": ["a", "$"]}, f"every_by[1]: {NAME}"),
        ({"every_secs": 1, "every_by": ["x" * 1_025]}, f"every_by[0]: {NAME}"),
        ({"every_secs": 1, "every_by": [1]}, f"every_by[0]: {NAME}"),
    ],
)
def test_what_is_past_a_limit_is_refused_and_changes_nothing(members: dict[str, Any], said: str) -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", SMALL)
    before = detector.dump()
    with pytest.raises(Refusal) as adding:
        detector.add_rule("other", SMALL, **members)
    with pytest.raises(Refusal) as changing:
        detector.change_rule(rule_id, **members)
    for refused in (adding, changing):
        assert [(entry.code, entry.message) for entry in refused.value.entries] == [(1001, said)]
    with pytest.raises(Refusal) as putting:
        detector.rules_change([WantedRule("other", SMALL, **members)])
    assert [entry.message for entry in putting.value.entries] == [f"rules[0].{said}"]
    assert detector.dump() == before


def test_every_by_needs_every_secs_in_the_rule_that_is_changed() -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", SMALL)
    with pytest.raises(Refusal, match="only a rule with `every_secs`"):
        detector.change_rule(rule_id, every_by=["a"])
    detector.change_rule(rule_id, every_secs=1)
    assert detector.change_rule(rule_id, every_by=["a"]).every_by == ("a",)


def test_the_names_count_towards_the_rules() -> None:
    detector = Detector(limits=Limits(rules_bytes_max=1_000))
    with pytest.raises(Refusal, match="limit 1000"):
        detector.add_rule("r", SMALL, every_secs=1, every_by=["x" * 1_000])
    detector.add_rule("r", SMALL, every_secs=1, every_by=["x"])
