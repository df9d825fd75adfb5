"""Rules that notify leave their firings in the detector's feed."""

import json
from typing import Any

import numpy as np
import pytest

from engine import Detector
from engine.evaluation.explanation import firings as explained
from engine.evaluation.facts.shown import VALUE_CHARS_MAX
from engine.evaluation.firings import recorder
from engine.evaluation.kernel import rule_set
from engine.language.limits import Limits

START_MS = 1_700_000_000_000


@pytest.fixture(params=["one function", "indexed"], autouse=True)
def _dispatch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "indexed":
        monkeypatch.setattr(rule_set, "INDEXED_FROM", 0)
        monkeypatch.setattr(rule_set, "FUSED_BELOW", 0)


def firings(detector: Detector, after: int = 0) -> list[dict[str, Any]]:
    return [json.loads(one) for one in detector.feed.page(after, 10**6).firings]


def test_a_firing_says_which_rule_fired_when_and_for_which_keys() -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", "per user.id (x > 1)", notify=True, labels={"level": 10**30})
    detector.add_rule("silent", "x > 1")
    detector.evaluate({"x": 2, "user": {"id": "ann"}}, START_MS + 0.5)
    detector.evaluate({"x": 1, "user": {"id": "ann"}}, START_MS + 1)
    assert firings(detector) == [
        {
            "seq": 1,
            "time_ms": START_MS + 0.5,
            "ruleId": rule_id,
            "name": "r",
            "priority": 1,
            "keys": {"user.id": "ann"},
            "labels": {"level": 10**30},
            "why": {"version": 1, "condition": "per user.id x > 1"},
        }
    ]


def test_firings_of_one_event_are_in_order_of_priority_and_numbered_on() -> None:
    detector = Detector()
    for name in ("a", "b", "c"):
        detector.add_rule(name, "x > 1", notify=name != "b")
    detector.evaluate_many([({"x": x}, START_MS + x, None) for x in (2, 1, 3)])
    found = [(one["seq"], one["name"], one["time_ms"] - START_MS) for one in firings(detector)]
    assert found == [(1, "a", 2), (2, "c", 2), (3, "a", 3), (4, "c", 3)]


def test_a_late_event_has_the_time_of_the_clock() -> None:
    detector = Detector()
    detector.add_rule("r", "x == 1", notify=True)
    detector.evaluate({"x": 0}, START_MS)
    detector.evaluate({"x": 1}, START_MS - 1_000)
    assert [one["time_ms"] for one in firings(detector)] == [START_MS]


def test_shadow_and_disabled_rules_leave_none_until_they_act() -> None:
    detector = Detector()
    shadow = detector.add_rule("shadow", "x == 1", notify=True, shadow=True)
    disabled = detector.add_rule("disabled", "x == 1", notify=True)
    detector.change_rule(disabled, enabled=False)
    detector.evaluate({"x": 1}, START_MS)
    assert firings(detector) == []
    detector.change_rule(shadow, shadow=False)
    detector.change_rule(disabled, enabled=True)
    detector.evaluate({"x": 1}, START_MS)
    assert [one["name"] for one in firings(detector)] == ["shadow", "disabled"]


def test_a_rule_may_begin_and_cease_to_notify() -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", "x == 1")
    for notify in (True, False, True):
        detector.change_rule(rule_id, notify=notify)
        detector.evaluate({"x": 1}, START_MS)
    assert [one["why"]["version"] for one in firings(detector)] == [2, 4]


def test_what_a_rule_was_stays_in_its_firings() -> None:
    detector = Detector()
    rule_id = detector.add_rule("before", "x == 1", notify=True)
    detector.evaluate({"x": 1}, START_MS)
    detector.change_rule(rule_id, name="after")
    detector.evaluate({"x": 1}, START_MS)
    detector.remove_rule(rule_id)
    assert [one["name"] for one in firings(detector)] == ["before", "after"]


def test_values_of_other_types_are_those_that_the_engine_reads() -> None:
    class Text(str):
        __slots__ = ()

    detector = Detector()
    condition = "per user.id (x == 1 and last(at) != 'now' and once within 1h x == 1)"
    detector.add_rule("r", condition, notify=True)
    for _ in range(2):
        fields = {"user": {"id": Text("ann")}, "x": np.int64(1), "at": np.str_("then"), "unread": object()}
        detector.evaluate_many([(fields, START_MS, None)])
    [firing] = firings(detector)
    assert (firing["keys"], firing["found"]) == ({"user.id": "ann"}, {"last(at)": "then"})


def test_long_keys_are_cut_and_keys_that_are_none_are_absent() -> None:
    detector = Detector()
    detector.add_rule("r", "per a x == 1 or per b x == 1 or per $c x == 1", notify=True)
    detector.evaluate({"a": "a" * 2 * VALUE_CHARS_MAX, "b": [1], "x": 1}, START_MS, {"c": True})
    assert firings(detector)[0]["keys"] == {"a": "a" * VALUE_CHARS_MAX + "…", "$c": True}


def test_a_feed_of_no_firings_costs_none_their_number() -> None:
    detector = Detector(limits=Limits(firings_max=0))
    detector.add_rule("r", "x == 1", notify=True)
    detector.evaluate({"x": 1}, START_MS)
    assert (detector.feed.last, len(detector.feed)) == (0, 0)


def test_what_a_rule_finds_begins_with_the_rule_though_an_event_before_it_has_the_same_time() -> None:
    detector = Detector()
    for _ in range(3):
        detector.evaluate({"x": 1}, START_MS)
    detector.add_rule("r", "count(x == 1) >= 1", notify=True)
    detector.evaluate({"x": 1}, START_MS)
    detector.change_rule(detector.rules()[0].id, condition="once x == 1")
    detector.evaluate({"x": 1}, START_MS)
    first, second = firings(detector)
    assert first["found"] == {"count(x == 1)": 1}
    assert second["why"]["witnesses_ms"] == {"once x == 1": START_MS}


def test_without_its_key_nothing_in_a_member_is_a_witness_or_found() -> None:
    detector = Detector()
    counted = "per k where (once y == 1 and count(y == 1) >= 1) x == 1"
    detector.add_rule("r", f"z == 1 or {counted}", notify=True)
    for fields in ({"y": 1, "z": 1}, {"y": 1, "z": 1, "k": "a"}):
        detector.evaluate(fields, START_MS)
    without, keyed = firings(detector)
    assert ("found" in without, "witnesses_ms" in without["why"]) == (False, False)
    assert (keyed["found"], keyed["why"]["witnesses_ms"]) == ({"count(y == 1)": 1}, {"once y == 1": START_MS})


def test_what_only_asks_records_nothing() -> None:
    detector = Detector()
    detector.add_rule("r", "x == 1", notify=True)
    event = ({"x": 1}, START_MS, {})
    detector.fork([event]).submit_clean([event])
    detector.rule_set.decide({"x": 1}, {}, 0, 1)
    assert detector.feed.last == 0


def test_a_feed_is_saved_and_loaded_with_its_detector() -> None:
    detector = Detector(limits=Limits(firings_max=2))
    detector.add_rule("r", "x == 1", notify=True)
    for _ in range(3):
        detector.evaluate({"x": 1}, START_MS)
    loaded = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=detector.limits)
    assert loaded.feed.page(0, 9) == detector.feed.page(0, 9)
    for each in (detector, loaded):
        each.evaluate({"x": 1}, START_MS)
    assert loaded.dump() == detector.dump()
    assert [one["seq"] for one in firings(loaded)] == [3, 4]


def test_firings_by_time_say_so() -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", "per host (count(exists x) within 1h < 1)", notify=True)
    detector.recorder.by_time(detector.rule(rule_id), {"host": "a"}, 1_500)
    [firing] = firings(detector)
    assert (firing["timed"], firing["keys"], firing["time_ms"]) == (True, {"host": "a"}, 1.5)
    assert firing["found"] == {"count(exists x) within 1h": 0}


def test_without_rules_that_notify_the_code_is_what_it_was() -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", "x == 1")
    before = detector.code()
    detector.change_rule(rule_id, notify=True)
    assert "note(" in detector.code()
    detector.change_rule(rule_id, notify=False)
    assert detector.code() == before
    assert "note" not in before


def test_a_firing_says_what_was_found_and_which_events_settled_it() -> None:
    detector = Detector()
    condition = "per user (count(amount > 1) within 1h >= 2 and once within 10m ok == false)"
    detector.add_rule("r", condition, notify=True)
    for place, ok in enumerate((False, True, True)):
        detector.evaluate({"user": "ann", "amount": 5, "ok": ok}, START_MS + 1_000 * place)
    two, three = firings(detector)
    assert two["found"] == {"count(amount > 1) within 1h": 2}
    assert three["why"] == {
        "version": 1,
        "condition": condition,
        "witnesses_ms": {"once within 10m ok == false": START_MS},
    }


def test_what_would_be_too_much_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    condition = "count(x == 1) within 1h >= 1"
    detector = Detector()
    detector.add_rule("r", condition, notify=True)
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "FIRING_BYTES_MAX", 100)
        detector.evaluate({"x": 1}, START_MS)
    detector.evaluate({"x": 1}, START_MS)
    assert [one.get("found") for one in firings(detector)] == [None, {condition.removesuffix(" >= 1"): 1}]


def test_a_rule_that_remembers_too_much_fires_without_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explained, "_ENTRIES_TOLD_MAX", 1)
    detector = Detector()
    detector.add_rule("r", "per u count(x == 1) within 1h >= 3", notify=True)
    for place in range(3):
        detector.evaluate({"x": 1, "u": "a"}, START_MS + place)
    [firing] = firings(detector)
    assert (firing["keys"], "found" in firing) == ({"u": "a"}, False)
