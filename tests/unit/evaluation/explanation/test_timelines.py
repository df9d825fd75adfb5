"""At each event, a timeline agrees with the reference about the rule and its temporal conditions."""

import random
from typing import Any

import msgspec
import pytest

from engine import Detector
from engine.evaluation.inspecting.timelines import (
    BURST_S,
    EVENTS_KEPT,
    LOOKED_AT_S,
    TIMELINES_MAX,
    Timelines,
)
from engine.evaluation.inspecting.timelines import timeline as answered
from engine.language.diagnostics import Refusal
from tests import reference
from tests.differential.feeding import submitted
from tests.differential.modes import in_mode

CONDITIONS = [
    "once within 3s a == 1",
    "a == 1 and not previous a == 1",
    "(not a == 1) since within 4s (earlier b == 1)",
    "per user (count(a == 1) within 5s >= 2 or historically for 2s strong b == 1)",
    "per user where b == 1 previous a == 1",
    "per user once a == 1 and per ip once a == 1",
    "a == 1",
]


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Bystander:
    """Another observer of the same detector."""

    def observe(self, *event: object) -> None:
        pass


def drawn(seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    return [
        {name: chance.randrange(2) for name in ("a", "b", "user", "ip") if chance.random() < 0.9}
        for _ in range(40)
    ]


def slice_of(history: list[reference.Event], keys: tuple[Any, ...]) -> list[reference.Event] | None:
    """Return the slice of the last event under keys, None if it belongs to none."""
    for key in keys:
        name = key if isinstance(key, str) else key.fact
        kept = history
        if not isinstance(key, str):
            verdicts = [reference.verdict(key.where, history[: i + 1]) for i in range(len(history))]
            kept = [event for event, true in zip(history, verdicts, strict=True) if true]
        if history[-1][name] is None:
            return None
        if not kept or kept[-1] is not history[-1]:
            return None
        history = [event for event in kept if event[name] == history[-1][name]]
    return history


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("many", [False, True], ids=["one by one", "in a batch"])
@pytest.mark.parametrize("mode", ["fused", "indexed"])
def test_a_timeline_says_what_the_reference_says(condition: str, many: bool, mode: str) -> None:
    with in_mode(mode):
        detector = Detector()
        for number in range(3):
            detector.add_rule(f"other {number}", f"kind == {number} and once b == 1")
        rule_id = detector.add_rule("watched", condition)
        timeline = Timelines(detector, Clock()).look(rule_id, {})
        assert len(timeline.rows) == condition.count("once") + sum(
            condition.count(word) for word in ("previous", "since", "earlier", "count(", "historically")
        )
        events = [(fields, 500 * number, None) for number, fields in enumerate(drawn(7))]
        outcomes = submitted(detector, events) if many else [detector.submit(*event) for event in events]
    history: list[reference.Event] = []
    for (fields, time_ms, _), outcome, moment in zip(events, outcomes, timeline.moments, strict=True):
        history.append(reference.Event(time_ms * 1000, fields, {}))
        assert moment.time_us == time_ms * 1000
        assert moment.verdict is any(rule.name == "watched" for rule in outcome.fired)
        for (row, keys), verdict in zip(timeline.rows, moment.verdicts, strict=True):
            found = slice_of(history, keys)
            if found is not None:
                assert verdict is reference.verdict(row, found), (row, keys, len(history))
            elif all(isinstance(key, str) for key in keys):
                assert verdict is None


def test_watching_changes_no_verdict_and_no_state() -> None:
    watched, alone = Detector(new_id=iter("abc").__next__), Detector(new_id=iter("abc").__next__)
    for detector in (watched, alone):
        detector.add_rule("rule", CONDITIONS[3])
        detector.add_rule("other", CONDITIONS[0])
    Timelines(watched, Clock()).look("a", {})
    events = [(fields, 500 * number, None) for number, fields in enumerate(drawn(8))]
    fired = [[outcome.fired for outcome in submitted(detector, events)] for detector in (watched, alone)]
    assert fired[0] == fired[1]
    assert watched.dump() == alone.dump()


def test_with_a_key_only_its_events_count() -> None:
    detector = Detector()
    rule_id = detector.add_rule("rule", "per user once a == 1")
    timeline = Timelines(detector, Clock()).look(rule_id, {"user": "ada"})
    for number, user in enumerate(["ada", "bob", 1, "ada"]):
        detector.submit({"user": user, "a": 1}, number)
    assert [(moment.number, moment.time_us, moment.key) for moment in timeline.moments] == [
        (1, 0, {"user": "ada"}),
        (4, 3000, {"user": "ada"}),
    ]


def test_a_condition_on_who_belongs_to_a_slice_is_a_row_outside_of_it() -> None:
    detector = Detector()
    rule_id = detector.add_rule("rule", "per user where previous b == 1 once a == 1")
    timeline = Timelines(detector, Clock()).look(rule_id, {})
    for number, b in enumerate((1, 0, 0)):
        detector.submit({"user": "ada", "a": 1, "b": b}, number)
    assert [len(keys) for _, keys in timeline.rows] == [1, 0]
    assert [moment.verdicts for moment in timeline.moments] == [(True, False), (True, True), (True, False)]


def test_what_there_is_no_time_to_explain_is_left_out_of_each_timeline() -> None:
    detector, took_s = Detector(), iter(range(10**6))
    rule_id = detector.add_rule("rule", "once a == 1")
    timelines = Timelines(detector, Clock(), lambda: float(next(took_s)))
    looked_at = [timelines.look(rule_id, {}), timelines.look(rule_id, {"a": 1})]
    for number in range(3):
        detector.submit({"a": 1}, number)
    assert [len(timeline.moments) for timeline in looked_at] == [1, 0]


def test_a_disabled_rule_has_no_moments() -> None:
    detector = Detector()
    rule_id = detector.add_rule("rule", "once a == 1")
    timeline = Timelines(detector, Clock()).look(rule_id, {})
    detector.change_rule(rule_id, enabled=False)
    detector.submit({"a": 1}, 0)
    assert not timeline.moments


def test_it_lasts_exactly_as_long_as_is_said() -> None:
    detector, clock = Detector(), Clock()
    timeline = Timelines(detector, clock).look(detector.add_rule("rule", "once a == 1"), {})
    clock.now_s = LOOKED_AT_S
    detector.submit({"a": 1}, 0)
    assert len(timeline.moments) == 1


def test_a_refused_event_is_not_on_it() -> None:
    detector = Detector()
    timeline = Timelines(detector, Clock()).look(detector.add_rule("rule", "once a == 1"), {})
    detector.submit({"a": 1}, 1e9)
    with pytest.raises(Refusal):
        detector.submit({"a": 1}, 0)
    assert len(timeline.moments) == 1


def test_nobody_pays_once_nobody_looks() -> None:
    detector, clock = Detector(), Clock()
    timelines = Timelines(detector, clock)
    timelines.look(detector.add_rule("rule", "once a == 1"), {})
    clock.now_s = LOOKED_AT_S + 1
    detector.submit({"a": 1}, 0)
    assert detector.observers == []


def test_it_begins_anew_when_the_condition_changes_and_goes_on_otherwise() -> None:
    detector = Detector()
    timelines = Timelines(detector, Clock())
    rule_id = detector.add_rule("rule", "once a == 1")
    timelines.look(rule_id, {})
    detector.submit({"a": 1}, 0)
    detector.change_rule(rule_id, name="renamed")
    assert len(timelines.look(rule_id, {}).moments) == 1
    detector.change_rule(rule_id, condition="once a == 2")
    detector.submit({"a": 2}, 1)
    assert not timelines.look(rule_id, {}).moments
    # Its numbers go on, so a reader that asks for what came after the first event does not miss the third.
    detector.submit({"a": 2}, 1)
    assert [moment.number for moment in timelines.look(rule_id, {}).moments] == [3]
    detector.remove_rule(rule_id)
    detector.submit({"a": 2}, 2)
    with pytest.raises(Refusal):
        timelines.look(rule_id, {})


def test_what_it_keeps_is_bounded() -> None:
    detector = Detector()
    timelines = Timelines(detector, Clock())
    rule_id = detector.add_rule("rule", "once a == 1")
    timeline = timelines.look(rule_id, {})
    for number in range(EVENTS_KEPT + 10):
        detector.submit({"a": 1}, number)
    assert [timeline.moments[0].number, len(timeline.moments)] == [11, EVENTS_KEPT]
    for number in range(TIMELINES_MAX - 1):
        timelines.look(rule_id, {"user": number})
    with pytest.raises(Refusal) as refused:
        timelines.look(rule_id, {"user": "one more"})
    assert refused.value.code == 1400


def test_it_takes_no_more_than_a_share_of_the_processor_and_leaves_out_the_rest() -> None:
    detector, clock, took_s = Detector(), Clock(), Clock()
    rule_id = detector.add_rule("rule", "once a == 1")

    def work_s() -> float:
        """Let each explanation take an eighth of a second."""
        took_s.now_s += 0.125
        return took_s.now_s

    timeline = Timelines(detector, clock, work_s).look(rule_id, {})
    several = round(BURST_S / 0.125)
    for number in range(several + 10):
        detector.submit({"a": 1}, number)
    assert [moment.number for moment in timeline.moments] == list(range(1, several + 1))
    # Its share of a second is less than an explanation, which it may borrow.
    clock.now_s += 1
    for number in range(3):
        detector.submit({"a": 1}, 100 + number)
    assert [moment.number for moment in timeline.moments][several:] == [several + 11]
    clock.now_s += 0.1
    detector.submit({"a": 1}, 200)
    assert len(timeline.moments) == several + 1
    # What it did not use is kept for a burst, and no more.
    clock.now_s += LOOKED_AT_S / 2
    for number in range(several + 10):
        detector.submit({"a": 1}, 300 + number)
    assert len(timeline.moments) == 2 * several + 1


def test_its_answer_goes_on_after_the_event_that_the_caller_saw_last() -> None:
    detector = Detector()
    rule_id = detector.add_rule("rule", "per user where b == 1 once a == 1")
    detector.observers.append(Bystander())

    def asked(after: int) -> dict[str, Any]:
        body = msgspec.json.encode({"rule_id": rule_id, "key": {"user": "ada"}, "after": after})
        document: dict[str, Any] = msgspec.json.decode(answered(detector, body).result)
        return document

    begun = asked(0)
    assert begun["ruleId"] == rule_id
    assert begun["text"] == "per user where b == 1 once a == 1"
    assert begun["rows"] == ["per user: once a == 1"]
    assert begun["moments"] == []
    detector.submit({"user": "ada", "a": 1, "b": 1}, 1.5)
    detector.submit({"user": "ada", "a": 0, "b": 1}, 2)
    first, second = asked(0)["moments"]
    assert first == {
        "number": 1,
        "time_ms": 1.5,
        "verdict": True,
        "verdicts": [True],
        "key": {"user": "ada"},
    }
    assert asked(1)["moments"] == [second]
    assert asked(2)["moments"] == []
    assert len(detector.observers) == 2
