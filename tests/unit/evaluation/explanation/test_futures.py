"""Until when verdicts stay, and what an explanation says of what looks back, worked out time by time."""

import itertools
import random
from typing import Any

import pytest

from engine import Condition, Detector, explain
from engine.evaluation.explanation.nodes import Future, every, negated, some
from engine.evaluation.inspecting.states import standing_node
from engine.evaluation.stamps import LATEST_US
from engine.language import condition as terms
from engine.language.operators import COMPARISONS
from engine.language.text.parser import parse
from tests.differential.explanations import judge_found, judge_witness
from tests.reference import Event, verdict


def future_and_verdicts(drawn: random.Random, depth: int) -> tuple[Future, list[bool]]:
    """Return a random future, and its verdicts at the times from 0, worked out one by one."""
    times = range(10)
    if not depth:
        verdict, last = drawn.random() < 0.5, drawn.choice(times)
        return Future(verdict, (last,)), [verdict is (time <= last) for time in times]
    members = [future_and_verdicts(drawn, depth - 1) for _ in range(drawn.choice((1, 2, 3)))]
    futures, verdicts = (
        [future for future, _ in members],
        list(zip(*(each for _, each in members), strict=True)),
    )
    match drawn.choice("aon"):
        case "a":
            return every(futures), list(map(all, verdicts))
        case "o":
            return some(futures), list(map(any, verdicts))
        case _:
            return negated(futures[0]), [not each[0] for each in verdicts]


def test_a_future_flips_exactly_where_its_verdict_does(seed: int) -> None:
    drawn = random.Random(seed)
    most = 0
    for _ in range(3_000):
        future, verdicts = future_and_verdicts(drawn, drawn.choice((1, 2, 3)))
        assert future.verdict is verdicts[0]
        # A flip at the last time shows in a time after it.
        flips = [
            time for time, (one, next_one) in enumerate(itertools.pairwise(verdicts)) if one is not next_one
        ]
        assert [time for time in future.flips if time < len(verdicts) - 1] == flips
        most = max(most, len(flips))
    assert most > 2


def test_no_verdict_changes_after_the_latest_time_of_an_event() -> None:
    for window_secs, until_us in ((1.999999, LATEST_US - 1), (2, None), (1e300, None)):
        detector = Detector()
        detector.add_rule("rule", f"once within {window_secs} a == 1")
        [explained] = explain(detector, {"a": 1}, LATEST_US / 1_000 - 2_000).rules
        assert explained.node.until_us == until_us


@pytest.mark.parametrize(
    ("condition", "until_us"),
    [
        ("some a (it == 1)", None),
        ("some a (hour() == it)", 3_599_999_999),
        ("some a (now() >= it)", 0),
    ],
)
def test_a_verdict_about_elements_is_known_until_the_time_of_day_steps(
    condition: str, until_us: int | None
) -> None:
    detector = Detector()
    detector.add_rule("rule", condition)
    [explained] = explain(detector, {"a": [0]}, 0).rules
    assert explained.node.until_us == until_us


def test_a_verdict_can_return_and_the_first_change_counts() -> None:
    detector = Detector()
    detector.add_rule("rule", "once within 5s a == 1 or not once within 9s a == 1")
    detector.evaluate({"a": 1}, 0)
    (explained,) = explain(detector, {}, 1_000).rules
    assert explained.node.future.flips == (5_000_000, 9_000_000)
    assert (explained.verdict, explained.node.until_us) == (True, 5_000_000)


# -- what looks back ----------------------------------------------------------------------------------------

P, Q = parse("p == 1"), parse("q == 1")
WINDOW_SECS = 5e-6
"""So short that all times at which a verdict could turn can be tried, and that each pane is one of them."""
TIMES_US = 10
AT_ONCE = [
    terms.Previous(P),
    *(make(P) for make in (terms.Once, terms.Historically, terms.Earlier)),
    *(make(P, WINDOW_SECS) for make in (terms.OnceWithin, terms.HistoricallyFor, terms.EarlierWithin)),
    *(terms.HistoricallyFor(P, secs, "strong") for secs in (0, WINDOW_SECS)),
    terms.Since(P, Q),
    terms.SinceWithin(P, Q, WINDOW_SECS),
]


def counting(op: Any) -> list[Condition]:
    """Return conditions that compare a number."""
    numbers: list[Any] = [-1, 0, 1, 2.5, terms.ScaledFact("u", 0.5)]
    return [
        *(terms.Count(P, secs, op, n) for secs in (None, WINDOW_SECS) for n in range(5)),
        *(terms.Distinct("t", where, WINDOW_SECS, op, n) for where in (None, P) for n in range(4)),
        *(
            make("t", where, secs, op, n)
            for make in (terms.Sum, terms.Avg)
            for where in (None, P)
            for secs in (None, WINDOW_SECS)
            for n in numbers
        ),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("op", [None, *COMPARISONS])
def test_a_verdict_turns_exactly_where_time_alone_turns_it(op: str | None, seed: int) -> None:
    drawn, turned = random.Random(f"{seed} {op}"), 0
    for condition in AT_ONCE * 6 if op is None else counting(op):
        detector, history = Detector(), list[Event]()
        rule_id = detector.add_rule("rule", condition)
        for time_us in sorted(drawn.choices(range(TIMES_US), k=5)):
            fields = {name: drawn.choice((0, 1)) for name in "pq"}
            fields |= {"t": drawn.choice((-2, 1, 2, "x")), "u": drawn.choice((3, "x"))}
            history.append(Event(time_us, fields, {}))
            [explained] = explain(detector, fields, time_us / 1_000, rule_id=rule_id).rules
            future = explained.node.future
            verdicts = [verdict(condition, history, at) for at in range(time_us, 2 * TIMES_US)]
            flips = [
                time_us + after
                for after, (one, other) in enumerate(itertools.pairwise(verdicts))
                if one is not other
            ]
            assert (future.verdict, list(future.flips)) == (verdicts[0], flips), (condition, history)
            judge_found(explained.node, history)
            judge_witness(explained.node, history)
            detector.evaluate(fields, time_us / 1_000)
            turned += len(flips)
    assert turned > 20


@pytest.mark.parametrize(
    ("condition", "since_ms"),
    [
        ("once a == 1", 2_000),
        ("not once within 3s a == 1", None),
        ("once within 20s a == 1", 2_000),
        ("once within [3s, 20s] a == 1", 3_000),
        ("historically for 5s strong not a == 2", 5_000),
        ("previous b == 1", 4_000),
        ("previous a == 1", None),
        ("a == 1 since b == 1", 10_000),
        ("count(a == 1) within 20s >= 2", 2_000),
        ("count(a == 1) within 9s >= 2", 9_000.001),
        ("count(a == 1) within 7s >= 2", 7_000.001),
        ("count(a == 1) within 1s >= 2", 2_000),
        ("count(a == 3) within 1s >= 2", None),
        ("distinct(b) within 5s >= 1", 9_000.001),
        ("sum(b) >= 1", None),
        ("sum(b) within 20s >= c", None),
    ],
)
def test_a_standing_verdict_tells_since_when_it_is_what_it_is(condition: str, since_ms: float | None) -> None:
    detector = Detector()
    rule_id = detector.add_rule("rule", condition)
    for fields, time_ms in (({"a": 1}, 0), ({"a": 1}, 2_000), ({"b": 1}, 4_000)):
        detector.evaluate(fields, time_ms)
    detector.clock_us = 10_000_000
    node = standing_node(detector, detector.live[rule_id], {})
    assert node.since_us == (None if since_ms is None else round(since_ms * 1_000)), node


def test_since_when_a_sum_is_what_it_is_is_known_to_a_pane() -> None:
    detector = Detector()
    rule_id = detector.add_rule("rule", "sum(b) within 256s >= 1")
    detector.evaluate({"b": 1}, 4_500)
    detector.clock_us = 100_000_000
    node = standing_node(detector, detector.live[rule_id], {})
    # The number may have come at any time of its pane.
    assert (node.verdict, node.since_us) == (True, 4_999_999)


def test_events_before_a_rule_neither_count_nor_tell_since_when() -> None:
    detector = Detector()
    detector.add_rule("old", "count(a == 1) within 20s >= 2")
    detector.evaluate({"a": 1}, 0)
    detector.evaluate({"a": 1}, 1_000)
    young = detector.add_rule("young", "count(a == 1) within 20s >= 2")
    for found, since_us in ((0, None), (1, 2_000_000)):
        node = standing_node(detector, detector.live[young], {})
        assert (node.verdict, node.found, node.since_us) == (False, found, since_us)
        detector.evaluate({"a": 1}, 2_000)


@pytest.mark.parametrize(
    ("condition", "until_us"),
    [
        ("age(a == 1) * age(b == 1) <= 5", 3_236_067),
        ("-2 * age(a == 1) * abs(x) * age(b == 1) > -20", 3_236_067),
        # It falls and grows, so no more is known.
        ("(10 - age(a == 1)) * age(b == 1) < 99", 2_000_000),
    ],
)
def test_until_when_a_product_of_ages_stays_on_its_side(condition: str, until_us: int) -> None:
    detector = Detector()
    detector.add_rule("rule", condition)
    detector.evaluate({"a": 1, "b": 1}, 1_000)
    [explained] = explain(detector, {"x": 2}, 2_000).rules
    assert (explained.verdict, explained.node.until_us) == (True, until_us)
