"""A detector that was saved and loaded continues exactly like one that never stopped, evictions included."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine import Detector, Limits
from tests.differential.modes import TRIED, in_mode

Examples = Callable[..., Iterator[random.Random]]

PATHS = ("", "per k ", "per k ", "per b ", "per k per b ", "per k where b > 0 ", "per k where (once a == 1) ")
OPERATORS = (
    "once a == 1",
    "once within 4s a == 2",
    "earlier within 3s a == 2",
    "historically a < 3",
    "historically for 2s strong a < 3",
    "a < 3 since within 3s a == 0",
    "previous a == 1",
    "count(a > 0) >= {}",
    "count(a > 0) within 60s >= {}",
    "distinct(b) > {}",
    "distinct(j where a > 0) within 6s > {}",
    "sum(a where b > 1) within 6s > 0.5 * b",
    "avg(a) within 60s > 1.5",
    "once within 3s (count(a == 1) within 2s >= 2)",
)
UNCOUNTED = 7
"""This many operators, the first ones, have no records."""


def conditions(drawn: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        path = drawn.choice(PATHS)
        # Where the memory limit is low, records without keys do not fit.
        operator = drawn.choice(OPERATORS if path else OPERATORS[:UNCOUNTED])
        yield path + f"({operator})".format(drawn.choice((1, 2, 9, 30)))


def event(drawn: random.Random, clock_ms: int) -> tuple[dict[str, Any], int]:
    keys = (*range(9), "x", "y" * 300, True, 2.5, 10**30)
    fields = {"k": drawn.choice(keys), "a": drawn.randrange(4), "b": drawn.randrange(5)}
    return {**fields, "j": drawn.choice((1, "1", True, 10**20, "z" * 400))}, clock_ms


def size_of(detector: Detector) -> tuple[int, int, int]:
    histories = detector.histories
    return histories.live, histories.keyed_bytes, histories.unkeyed_bytes


@pytest.mark.parametrize("mode", TRIED)
def test_a_loaded_detector_goes_on_exactly_like_one_that_never_stopped(
    mode: str, examples: Examples, scaled: Callable[[int], int]
) -> None:
    evicted = 0
    for drawn in examples(12, mode, until=lambda: evicted > scaled(1_000)):
        limits = Limits(
            keys_max=drawn.choice((6, 12, 1 << 40)), state_bytes_max=drawn.choice((6_000, 12_000, 1 << 40))
        )
        with in_mode(mode):
            stays, clock_ms = Detector(limits=limits), 0
            rests = stays
            for number in range(160):
                if number in (0, 30, 60):
                    for condition in conditions(drawn, 4):
                        rule_id = stays.add_rule("rule", condition)
                        if rests is not stays:
                            rests.add_rule("rule", condition, rule_id=rule_id)
                if number in (50, 90):
                    for detector in {stays, rests}:
                        detector.remove_rule(detector.rules()[2].id)
                if not number % 40:
                    saved = stays.dump()
                    rests = Detector.load(saved, Detector.STATE_VERSION, limits=limits)
                    assert rests.dump() == saved
                    # From here on, either may drop what has expired before the other does.
                    assert size_of(stays) == size_of(rests)
                clock_ms += drawn.choice((0, 1, 700, 1_500))
                given = event(drawn, clock_ms)
                outcomes = [detector.submit(*given) for detector in (stays, rests)]
                assert outcomes[0] == outcomes[1]
                evicted += any(message.code == 2002 for message in outcomes[0].messages)
    assert evicted > scaled(1_000)
