"""The detector's own rules: time, birth, priority, actions, messages, refusals."""

import json
import pickle
import re
from dataclasses import replace

import pytest

from engine import BatchRefused, ConditionError, Detector, Limits, Refusal, Rule, parse
from engine.language.condition import Leaf
from tests.differential.modes import in_mode


def test_an_action_says_which_rule_fired_and_how_to_treat_it():
    detector = Detector()
    quiet = detector.add_rule(name="quiet", condition="a == 1")
    loud = detector.add_rule(name="loud", condition="a == 1", notify=True)
    assert detector.evaluate({"a": 1}, 0) == [
        {"type": "match", "ruleId": quiet, "name": "quiet", "priority": 1, "notify": False},
        {"type": "notify", "ruleId": loud, "name": "loud", "priority": 2, "notify": True},
    ]


def test_the_id_of_a_rule_is_32_hexadecimal_digits():
    detector = Detector()
    assert re.fullmatch("[0-9a-f]{32}", detector.add_rule("rule", "a == 1"))


def test_what_is_changed_of_a_rule_is_changed_alone():
    detector = Detector()
    rule_id = detector.add_rule("rule", "a == 1  # so", notify=True)
    assert detector.change_rule(rule_id, name="other") == detector.rule(rule_id)
    assert detector.evaluate({"a": 1}, 0) == [
        {"type": "notify", "ruleId": rule_id, "name": "other", "priority": 1, "notify": True}
    ]
    changed = detector.change_rule(rule_id, notify=False)
    assert (changed.name, changed.notify, changed.enabled, changed.source) == (
        "other",
        False,
        True,
        "a == 1  # so",
    )
    assert changed.shadow is False
    assert detector.change_rule(rule_id, condition="a == 2  # or so").source == "a == 2  # or so"


AS_JSON = '{"leaf": {"fact": "a", "op": "eq", "value": 1}}'


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a == 1", None),
        ("a==1", "a==1"),
        (AS_JSON, AS_JSON),
        (json.loads(AS_JSON), None),
        (Leaf("a", "eq", 1), None),
    ],
)
def test_a_text_is_kept_as_it_was_written_unless_it_is_the_canonical_one(given, kept):
    detector = Detector()
    rule = detector.rule(detector.add_rule("rule", given))
    assert (rule.condition, rule.source) == (parse("a == 1"), kept)


def rule(name: str = "rule", priority: int = 1, **given: bool) -> Rule:
    return Rule(id="1" * 32, name=name, condition=parse("a == 1"), priority=priority, **given)


def test_an_action_is_encoded_once_until_its_rule_changes():
    made = rule()
    encoded = made.action_json()
    assert json.loads(encoded) == made.action()
    assert made.action()["type"] == "match"
    assert made.action_json() is encoded
    assert (made, repr(made)) == (rule(), repr(rule()))
    assert json.loads(replace(made, name="other").action_json())["name"] == "other"


@pytest.mark.parametrize("name", ["rule", "\t" * 255, '"' * 255, "é" * 255, "\U0001f600" * 255])
def test_an_action_takes_no_more_bytes_than_is_said(name):
    for notify in (False, True):
        made = rule(name, 2**63 - 1, notify=notify)
        spare_bytes = made.action_bytes_max - len(made.action_json() + b",")
        assert spare_bytes >= 0
        assert len(name.encode()) < 1_000 or spare_bytes < 64
    assert rule(name, shadow=True).action_bytes_max == 0


def test_priorities_are_never_given_twice():
    detector = Detector()
    ids = [detector.add_rule(name=str(n), condition="a == 1") for n in range(3)]
    detector.remove_rule(ids[2])
    ids[2] = detector.add_rule(name="again", condition="a == 1")
    assert [rule.priority for rule in detector.rules()] == [1, 2, 4]
    assert [action["ruleId"] for action in detector.evaluate({"a": 1}, 0)] == ids


def test_a_condition_that_is_refused_changes_nothing():
    detector = Detector()
    rule_id = detector.add_rule(name="r", condition="once a == 1")
    detector.evaluate({"a": 1}, 0)
    before = detector.dump()
    for bad in ("once", "a in [1, 'x']", {"leaf": {}}, Leaf("", "eq", 1), Leaf("a", "like", 1)):
        with pytest.raises(ConditionError):
            detector.change_rule(rule_id, condition=bad, name="other", enabled=False)
        with pytest.raises(ConditionError):
            detector.add_rule(name="x", condition=bad)
    with pytest.raises(Refusal, match="1 to 255"):
        detector.change_rule(rule_id, name="\x00")
    with pytest.raises(Refusal, match="1 to 255"):
        detector.add_rule("", "a == 1")
    assert detector.dump() == before


def test_rules_past_the_limit_are_refused():
    detector = Detector(limits=Limits(rules_max=2))
    detector.add_rule(name="a", condition="a == 1")
    second = detector.add_rule(name="b", condition="a == 1")
    with pytest.raises(Refusal) as caught:
        detector.add_rule(name="c", condition="a == 1")
    assert caught.value.code == 1400
    detector.remove_rule(second)
    detector.add_rule(name="c", condition="a == 1")


@pytest.mark.parametrize("act", ["change_rule", "remove_rule", "rule"])
def test_an_unknown_rule_is_1201(act):
    with pytest.raises(Refusal) as caught:
        getattr(Detector(), act)("0" * 32)
    assert caught.value.code == 1201


def test_a_late_event_is_evaluated_at_the_clock_s_time_and_the_reply_says_how_late():
    detector = Detector()
    detector.add_rule(name="r", condition="once within 0 a == 1")
    detector.evaluate({"a": 1}, 10_000)
    outcome = detector.submit({"a": 0}, 9_999.5)
    assert [rule.name for rule in outcome.fired] == ["r"]
    assert outcome.messages == [
        (2001, "the event came 0.5 ms late and was evaluated at the detector's time"),
    ]


def test_an_event_is_late_up_to_the_bound_and_refused_past_it():
    detector = Detector(limits=Limits(late_ms_max=1_000))
    detector.evaluate({}, 5_000)
    assert [entry.code for entry in detector.submit({}, 4_000).messages] == [2001]
    before = detector.dump()
    with pytest.raises(Refusal, match="new detector") as caught:
        detector.evaluate({}, 3_999.999)
    assert caught.value.code == 1402
    assert detector.dump() == before


def test_a_time_in_seconds_is_refused_with_the_unit():
    detector = Detector()
    detector.evaluate({}, 1_709_542_860_000)
    with pytest.raises(Refusal, match=r"to a new detector$"):
        detector.evaluate({}, 1_609_542_860_000)
    with pytest.raises(Refusal, match=r"new detector; timestamp_ms counts milliseconds, not seconds$"):
        detector.evaluate({}, 1_709_542_861)
    # Somewhat more than 30 years are taken for the wrong unit.
    with pytest.raises(Refusal, match=r"to a new detector$"):
        detector.evaluate({}, 709_542_860_000)
    with pytest.raises(Refusal, match=r"not seconds$"):
        detector.evaluate({}, 709_542_859_999.999)


def test_an_event_from_the_future_is_refused_and_drags_no_clock():
    detector = Detector(limits=Limits(ahead_ms_max=1_000), now_us=lambda: 5_000_000)
    detector.evaluate({}, 6_000)
    before = detector.dump()
    with pytest.raises(Refusal) as caught:
        detector.evaluate({}, 6_000.001)
    assert caught.value.code == 1402
    assert detector.dump() == before


def test_a_refused_event_in_evaluate_many_says_where_in_other_processes_too():
    detector = Detector()
    detector.add_rule(name="r", condition="a == 1")
    events = [({"a": 1}, 1_000_000, None), ({"a": 1}, 0, None), ({"a": 1}, 1_000_000, None)]
    with pytest.raises(BatchRefused) as caught:
        detector.evaluate_many(events)
    assert (caught.value.index, len(caught.value.results)) == (1, 1)
    assert detector.events_seen == 1
    told = pickle.loads(pickle.dumps(caught.value))
    assert (told.entries, told.index, told.results) == (
        caught.value.entries,
        1,
        caught.value.results,
    )


def test_a_relation_that_nobody_sent_is_warned_about_once_whether_or_not_it_was_asked():
    detector = Detector()
    detector.add_rule(name="r", condition="a == 1 and (owns(user) or owns(host) or other())")
    outcome = detector.submit({"a": 2}, 0, {"other": []})
    assert [entry.code for entry in outcome.messages] == [2003]
    assert "`owns`" in outcome.messages[0].message
    detector.change_rule(detector.rules()[0].id, enabled=False)
    assert detector.submit({"a": 2}, 1).messages == []


def test_a_text_too_long_for_patterns_matches_nothing_and_is_warned_about():
    detector = Detector(limits=Limits(pattern_text_chars_max=10))
    detector.add_rule(name="r", condition="t matches 'x' and $u matches 'x'")
    assert len(detector.submit({"t": "x" * 10}, 0, {"u": "x"}).fired) == 1
    outcome = detector.submit({"t": "x" * 11}, 0, {"u": "x"})
    assert outcome.fired == ()
    assert [entry.code for entry in outcome.messages] == [2004]


def test_a_large_pattern_is_tried_on_shorter_texts_only_and_that_is_warned_about():
    detector = Detector(limits=Limits(pattern_work_max=1_000))
    detector.add_rule(name="small", condition="t matches 'b$'")
    detector.add_rule(name="large", condition="t matches '[ac].{50}b$'")
    names = [rule.name for rule in detector.submit({"t": "aé" * 10 + "b"}, 0).fired]
    assert names == ["small"]
    outcome = detector.submit({"t": "aé" * 10 + "b"}, 0)
    ((code, message),) = outcome.messages
    assert code == 2004
    assert message.startswith("`t` has 21 characters; the largest of its patterns is tried on at most ")
    assert detector.submit({"t": "ab"}, 0).messages == []


def test_nothing_is_said_of_texts_for_patterns_that_are_gone():
    detector = Detector(limits=Limits(pattern_text_chars_max=3))
    rule_id = detector.add_rule(name="r", condition="t matches 'a'")
    detector.add_rule(name="other", condition="u matches 'a'")
    assert [entry.code for entry in detector.submit({"t": "aaaa"}, 0).messages] == [2004]
    detector.remove_rule(rule_id)
    assert detector.submit({"t": "aaaa"}, 1).messages == []


def test_messages_come_in_order_of_their_codes():
    detector = Detector()
    detector.add_rule(name="r", condition="owns(user)")
    detector.evaluate({}, 10)
    assert [entry.code for entry in detector.submit({}, 9).messages] == [2001, 2003]


@pytest.mark.parametrize("mode", ["fused", "indexed"])
@pytest.mark.parametrize("name", ["t", "$t"])
def test_what_slow_patterns_may_cost_is_bounded_at_every_event(name, mode):
    with in_mode(mode):
        detector = Detector(limits=Limits(pattern_event_work_max=200))
        detector.add_rule(name="r", condition=f"{name} matches '[ab].{{8}}c|x[ab]{{9}}'")
        for time_ms, count in enumerate((1, 2, 1)):
            values = {"t": "a12345678c" * count}
            events = ({}, time_ms, values) if name.startswith("$") else (values, time_ms, None)
            assert bool(detector.evaluate(*events)) is (count == 1)
