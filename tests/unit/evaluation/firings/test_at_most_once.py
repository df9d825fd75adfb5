"""Rules that act at most once in some time, for the same values of some names."""

import json
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest

from engine import Detector, Limits
from engine.evaluation.explanation.firings import dry_run
from engine.evaluation.stamps import stamp_of
from tests.audit import audit
from tests.differential.modes import in_mode

MINUTE_MS = 60_000


class Name(str):
    """A text of another type."""

    __slots__ = ()


def acts(detector: Detector, at_ms: float, sent: Any = None, **fields: Any) -> list[int]:
    """Return how many actions were held back before each action at an event."""
    return [action.get("suppressed", 0) for action in detector.evaluate(fields, at_ms, sent)]


def at(detector: Detector, times_ms: Iterable[float], **fields: Any) -> list[tuple[float, int]]:
    """Return the times of events like this at which the only rule acts, with what was held back before."""
    return [(at_ms, held) for at_ms in times_ms for held in acts(detector, at_ms, **fields)]


def detector_with(condition: str = "down == true", **members: Any) -> Detector:
    detector = Detector()
    detector.add_rule("r", condition, **{"every_secs": 600} | members)
    return detector


@pytest.mark.parametrize("mode", ["fused", "indexed"])
def test_a_host_that_is_down_for_half_an_hour_is_told_every_ten_minutes(mode: str) -> None:
    with in_mode(mode):
        detector = detector_with(every_by=["host"])
        minutes = [MINUTE_MS * minute for minute in range(31)]
        told = at(detector, minutes, down=True, host="a")
    assert [(at_ms // MINUTE_MS, held) for at_ms, held in told] == [(0, 0), (10, 9), (20, 9), (30, 9)]
    assert detector.at_most_once.held_back[1] == 27


def test_values_are_told_apart_by_type_and_a_missing_one_is_one_of_its_own() -> None:
    detector = detector_with("a == 1", every_by=["host", "$zone"])
    different: list[dict[str, Any]] = [
        {"host": each}
        for each in (1, "1", True, "x" * 300, "y" * 300, [1], [2], [], {"x": 1}, {"x": 2}, "[1]")
    ]
    for fields in ({}, *different):
        assert acts(detector, 0, a=1, **fields) == [0], fields
    same: list[dict[str, Any]] = [{"host": each} for each in (None, 1.0, [1.0], {"x": 1.0}, "x" * 300)]
    for fields in same:
        assert acts(detector, 1, a=1, **fields) == [], fields
    assert acts(detector, 2, {"zone": "x"}, a=1) == [0]
    assert acts(detector, 2, {"zone": None}, a=1) == []
    audit(detector)


@pytest.mark.parametrize("mode", ["fused", "indexed"])
@pytest.mark.parametrize("unread", [{}, {"list": [1]}, {"more": (1,)}])
def test_values_are_told_apart_however_events_are_given(mode: str, unread: dict[str, Any]) -> None:
    hosts = (1, 1.0, Fraction(1), Name("a"), "a", None, "b", (1,), [1])
    with in_mode(mode):
        detector = detector_with("a == 1", every_by=["host", "user.id"])
        for name in ("host", "user.id"):
            events = [({"a": 1, "list": 1, name: host} | unread, 0, None) for host in hosts]
            told = [len(fired) for fired in detector.evaluate_many(events)]
            assert told == [1, 0, 0, 1, 0, 1 if name == "host" else 0, 1, 1, 0], name


def test_what_begins_anew_and_what_does_not() -> None:
    again: list[dict[str, Any]] = [
        {"condition": "a == 1.5 or a == 1"},
        {"every_secs": 599},
        {"every_by": ["host"]},
        {"every_by": []},
        {"enabled": False},
        {"shadow": True},
    ]
    kept = [{"name": "x"}, {"notify": True}, {"labels": {"x": 1}}, {"description": "x"}, {"timed": True}]
    kept += [{"condition": "a == 1"}, {"enabled": True}, {"every_secs": 600.0}, {"condition": "a==1  # so"}]
    for change in (*again, *kept):
        detector = detector_with("a == 1")
        [rule] = detector.rules()
        assert at(detector, [0, 1], a=1) == [(0, 0)]
        detector.change_rule(rule.id, **change)
        detector.change_rule(rule.id, enabled=True, shadow=False)
        audit(detector)
        assert at(detector, [2], a=1) == ([(2, 0)] if change in again else []), change
    with_history = detector_with("a == 1")
    at(with_history, [0], a=1)
    [rule] = with_history.rules()
    with_history.change_rule(rule.id, condition="a >= 1", history="keep")
    assert at(with_history, [1], a=1) == [(1, 0)], "its condition is another one"


def test_a_rule_begins_anew_when_its_draft_is_promoted() -> None:
    detector = detector_with("a == 1")
    [rule] = detector.rules()
    detector.add_rule("draft", "a >= 1", shadow=True, draft_of=rule.id)
    assert at(detector, [0, 1], a=1) == [(0, 0)]
    detector.promote(rule.id)
    assert at(detector, [2, 3], a=1) == [(2, 0)]


def test_a_rule_that_is_removed_leaves_nothing() -> None:
    detector = Detector()
    detector.add_rule("other", "a == 1")
    before = detector.histories.bytes, detector.histories.live
    rule_id = detector.add_rule("r", "down == true", every_secs=600, every_by=["host"])
    assert len(at(detector, range(2), down=True, host="x" * 100)) == 1
    detector.remove_rule(rule_id)
    assert (detector.histories.bytes, detector.histories.live) == before
    assert not detector.at_most_once.held_back


def test_other_rules_act_beside_one_that_is_held_back_and_the_number_stands_behind_the_labels() -> None:
    detector = detector_with("a == 1", labels={"level": 7})
    detector.add_rule("plain", "a == 1")
    detector.add_rule("shadow", "a == 1", shadow=True)
    assert [action["name"] for action in detector.evaluate({"a": 1}, 0)] == ["r", "plain"]
    assert [action["name"] for action in detector.evaluate({"a": 1}, 1)] == ["plain"]
    fired = detector.submit({"a": 1}, 600_000).fired
    assert [json.loads(rule.action_json()) for rule in fired] == [rule.action() for rule in fired]
    assert list(fired[0].action())[-2:] == ["labels", "suppressed"]
    assert [rule.suppressed for rule in fired] == [1, 0]
    assert max(map(len, map(type(fired[0]).action_json, fired))) <= detector.rule_set.answer_bytes_worst


def test_a_dry_run_remembers_nothing() -> None:
    detector = detector_with("a == 1")
    for _ in range(3):
        assert [rule.suppressed for rule in dry_run(detector, {"a": 1}, 0, {}).rules] == [0]
    assert at(detector, [0, 1], a=1) == [(0, 0)]
    for _ in range(3):
        assert dry_run(detector, {"a": 1}, 599_999, {}).rules == ()
        assert [rule.suppressed for rule in dry_run(detector, {"a": 1}, 600_000, {}).rules] == [1]


def test_a_copy_for_some_events_holds_back_what_the_detector_would() -> None:
    detector = detector_with("a == 1", every_by=["host"])
    for host in ("a", "a", "b"):
        acts(detector, 0, a=1, host=host)
    event, other = ({"a": 1, "host": "a"}, 600_000, None), ({"a": 1, "host": "c"}, 600_000, {"zone": 1})
    copied = detector.fork([event, other])
    assert len(copied.at_most_once) == 1
    assert [rule.suppressed for rule in copied.submit(*event).fired] == [1]
    assert [rule.suppressed for rule in copied.submit(*other).fired] == [0]
    assert acts(detector, 1, a=1, host="a") == [], "they share nothing"


def test_an_entry_expires_when_the_rule_may_act_again_unless_actions_were_held_back() -> None:
    with in_mode("fused, swept at every event, looked up"):
        detector = detector_with("a == 1", every_secs=1, every_by=["host"])
        for host in range(20):
            acts(detector, 0, a=1, host=host)
        assert acts(detector, 0, a=1, host=7) == []
        for _ in range(2_000):
            acts(detector, 999.999, a=0)
        assert len(detector.at_most_once) == 20
        for _ in range(2_000):
            acts(detector, 1_000, a=0)
        assert len(detector.at_most_once) == 1
        audit(detector)
        assert acts(detector, 99_000, a=1, host=7) == [1]


def test_slices_and_what_acted_are_evicted_in_the_order_of_their_last_events() -> None:
    detector = Detector(limits=Limits(keys_max=3))
    detector.add_rule("r", "a == 1", every_secs=600, every_by=["host"])
    detector.add_rule("seen", "per k once b == 1")
    for event in (
        {"k": 1, "b": 1},
        {"a": 1, "host": 1},
        {"k": 2, "b": 1},
        {"k": 3, "b": 1},
        {"k": 4, "b": 1},
    ):
        detector.evaluate(event, 0)
    # The slice 1 was the first, and then the entry: of those that are left, 2 goes first.
    assert detector.keys_evicted == 2
    for k, seen in ((2, ["seen"]), (3, ["seen"]), (4, ["seen"]), (1, [])):
        assert [action["name"] for action in detector.evaluate({"k": k}, 1)] == seen, k
    assert acts(detector, 2, a=1, host=1) == [0]
    assert acts(detector, 3, a=1, host=1) == []
    audit(detector)


def test_firings_by_time_go_through_it_too() -> None:
    detector = detector_with("per host per $zone a == 1", notify=True)
    [rule] = detector.rules()
    key = {"host": "a", "$zone": 1}
    assert detector.recorder.by_time(rule, key, 0, 0) is rule
    assert detector.recorder.by_time(rule, key, 599_999_999, 0) is None
    assert acts(detector, 599_999, {"zone": 1}, a=1, host="a") == []
    last = detector.recorder.by_time(rule, key, 600_000_000, 1)
    assert last is not None
    assert last.suppressed == 2
    told = [json.loads(each).get("suppressed", 0) for each in detector.feed.page(0, 10).firings]
    assert told == [0, 2]
    unfed = detector_with("per host per $zone a == 1")
    [rule] = unfed.rules()
    assert unfed.recorder.by_time(rule, key, 0, 0) is rule
    assert unfed.feed.last == 0


def test_a_firing_by_time_comes_after_the_events_before_it() -> None:
    detector = Detector(limits=Limits(keys_max=2))
    detector.add_rule("r", "per host a == 1", every_secs=600)
    detector.add_rule("s", "per user once b == 1")
    detector.evaluate({"b": 1, "user": 1}, 0)
    detector.recorder.by_time(detector.rules()[0], {"host": "a"}, 1, 1)
    detector.evaluate({"b": 1, "user": 2}, 1)
    assert acts(detector, 1, a=1, host="a") == [], "what was seen before it is evicted instead"


def test_several_firings_between_two_events_are_evicted_in_their_order_after_a_reload_too() -> None:
    def played(*, reloaded: bool) -> set[str]:
        detector = Detector(limits=Limits(keys_max=4))
        detector.add_rule("r", "per host a == 1", every_secs=600)
        detector.evaluate({}, 0)
        for host in "abcd":
            detector.recorder.by_time(detector.rules()[0], {"host": host}, 1, 1)
        if reloaded:
            detector = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=detector.limits)
        detector.recorder.by_time(detector.rules()[0], {"host": "a"}, 2, 1)
        detector.evaluate({"a": 1, "host": "e"}, 1)
        return {str(key[1]) for shard in detector.at_most_once.shards for key in shard}

    assert played(reloaded=False) == played(reloaded=True) == {"a", "c", "d", "e"}


def test_rules_without_it_are_decided_without_it() -> None:
    detector = Detector()
    detector.add_rule("r", "a == 1")
    assert "NOTED" not in detector.code()
    fired = detector.rule_set.decide({"a": 1}, {}, stamp_of(0, 0), 1)
    assert detector.at_most_once.acting(fired, {}, {}, 0) is fired
    detector.change_rule(detector.rules()[0].id, every_secs=1)
    assert "NOTED" in detector.code()
    detector.change_rule(detector.rules()[0].id, every_secs=0)
    assert "NOTED" not in detector.code()


@pytest.mark.parametrize("way", ["one by one", "many", "submitted", "together"])
def test_a_rule_is_compared_with_its_draft_by_what_is_true_not_by_what_acts(way: str) -> None:
    detector = detector_with("a >= 1")
    [rule] = detector.rules()
    detector.add_rule("draft", "a == 1", shadow=True, draft_of=rule.id)
    events: list[Any] = [({"a": value}, at_ms, None) for at_ms, value in enumerate((1, 1, 2, 0, 1))]
    match way:
        case "one by one":
            told = [len(detector.evaluate(*event)) for event in events]
        case "many":
            told = [len(fired) for fired in detector.evaluate_many(events)]
        case "submitted":
            told = [len(detector.submit(*event).fired) for event in events]
        case _:
            told = [len(fired) for fired in detector.submit_clean(events).fired]
    assert told == [1, 0, 0, 0, 0]
    assert detector.comparison(rule.id).counts == {"both": 3, "only_rule": 1, "only_draft": 0}
    assert detector.shadows.tally["shadow"] == 3
    assert not detector.at_most_once.held_at
    if way in ("submitted", "together"):
        assert detector.actions == 1


@pytest.mark.parametrize("held_before", [0, 2])
def test_beside_a_draft_each_action_tells_its_own_count(held_before: int) -> None:
    detector = detector_with("a == 1")
    [rule] = detector.rules()
    at(detector, range(1 + held_before), a=1)
    detector.add_rule("draft", "a == 1", shadow=True, draft_of=rule.id)
    times = [600_000, 600_001, 1_200_000, 1_800_000]
    assert at(detector, times, a=1) == [(600_000, held_before), (1_200_000, 1), (1_800_000, 0)]


def test_a_shadow_rule_remembers_nothing_and_counts_every_firing() -> None:
    detector = detector_with("a == 1", shadow=True)
    for at_ms in range(5):
        assert detector.submit({"a": 1}, at_ms).fired == ()
    assert detector.verdicts.times_fired(1) == 5
    assert not len(detector.at_most_once)
