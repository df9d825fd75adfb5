"""Events whose times are of several kinds: batches of them, and the same one by one."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from engine.evaluation.detector import Detector
from engine.evaluation.events.outcomes import BatchRefused
from engine.evaluation.stamps import EARLIEST_US, LATEST_US
from engine.language.durations import microseconds
from engine.language.limits import Limits

START_MS = 1_700_000_000_000
LIMITS = Limits(late_ms_max=3)
CONDITIONS = (
    "once within 0.005s a == 1",
    "once within 0.0025s a == 1",
    "earlier a == 1",
    "earlier within 0.004s a == 1",
    "historically for 0.004s a == 0",
    "a == 0 since within 0.006s a == 1",
    "b == 1 since a == 1",
    "count(a == 1) within 0.005s >= 2",
)


def detector_with(*conditions: str, limits: Limits = LIMITS) -> Detector:
    made = Detector(limits=limits)
    for number, condition in enumerate(conditions):
        made.add_rule(str(number), condition, rule_id=f"{number:032}")
    return made


def times_drawn(drawn: Random, start_ms: float) -> list[Any]:
    """Return times in steps of a fraction of a millisecond or more, some of them backwards."""
    times_ms: list[Any] = []
    at_us = microseconds(start_ms, 1000)
    whole = drawn.random() < 0.3
    for _ in range(40):
        at_us += drawn.choice((0, 1, 250, 500, 999, 1_000, 1_000, 2_000, 4_000, -1_000, -5_000))
        if drawn.random() < 0.1:
            whole = not whole
        times_ms.append(at_us // 1_000 if whole else at_us / 1_000)
    return times_ms


def one_by_one(detector: Detector, events: list[Any]) -> list[Any]:
    """Return what fires at each event; None where it is refused."""
    fired: list[Any] = []
    for event in events:
        try:
            fired += detector.evaluate_many([event])
        except BatchRefused:
            fired.append(None)
    return fired


def in_batches(detector: Detector, events: list[Any]) -> list[Any]:
    """Return the same, where a batch goes on until an event is refused."""
    fired: list[Any] = []
    while len(fired) < len(events):
        try:
            fired += detector.evaluate_many(events[len(fired) :])
        except BatchRefused as refused:
            fired += [*refused.results, None]
    return fired


@pytest.mark.parametrize("start_ms", [START_MS, 0, -20, 2**53 // 1_000, -(2**53) // 1_000, 8.63e15])
def test_a_batch_is_what_its_events_are_one_by_one(start_ms: float) -> None:
    drawn = Random(f"{start_ms}")
    for _ in range(12):
        conditions = drawn.sample(CONDITIONS, drawn.randrange(1, len(CONDITIONS) + 1))
        events = [
            ({"a": drawn.randrange(2), "b": drawn.randrange(4) and 1}, time_ms, None)
            for time_ms in times_drawn(drawn, start_ms)
        ]
        batch, single = detector_with(*conditions), detector_with(*conditions)
        names = [
            [[rule.name for rule in each or ()] for each in fired]
            for fired in (in_batches(batch, events), one_by_one(single, events))
        ]
        assert names[0] == names[1], (conditions, events)
        assert (batch.clock_us, batch.events_seen) == (single.clock_us, single.events_seen)
        assert batch.dump() == single.dump()


def test_more_windows_than_ends_are_kept() -> None:
    conditions = [f"once within {number}s a == 1" for number in range(1, 30)]
    events = [({"a": int(not number)}, START_MS + 900 * number, None) for number in range(40)]
    fired = detector_with(*conditions).evaluate_many(events)
    still = [[number for number in range(1, 30) if 1_000 * number >= 900 * event] for event in range(40)]
    assert [len(each) for each in fired] == list(map(len, still))


def test_times_are_rounded_as_decimals() -> None:
    drawn = Random(7)
    times_ms = [drawn.uniform(-1, 1) * 10 ** drawn.randrange(-3, 16) for _ in range(5_000)]
    times_ms += [(number + 0.5) / 1_000 for number in range(-2_000, 2_000)]
    detector = detector_with()
    for time_ms in sorted(times_ms):
        if EARLIEST_US / 1_000 <= time_ms <= LATEST_US / 1_000:
            detector.evaluate_many([({}, time_ms, None)])
            assert detector.clock_us == microseconds(time_ms, 1_000), time_ms


def test_an_event_is_late_only_if_it_is_before_the_one_before_it() -> None:
    detector = detector_with("once a == 1", limits=Limits(late_ms_max=0))
    times_ms = [START_MS + 0.5, START_MS + 1, START_MS + 1.25, START_MS + 2, START_MS + 2]
    assert all(one <= other for one, other in pairwise(times_ms))
    assert len(detector.evaluate_many([({"a": 1}, time_ms, None) for time_ms in times_ms])) == len(times_ms)
    with pytest.raises(BatchRefused):
        detector.evaluate_many([({"a": 1}, START_MS + 1.999, None)])
    assert detector.clock_us == (START_MS + 2) * 1_000
