"""What it costs to look at a rule: work that grows with what the rule remembers, and no faster."""

import operator

import pytest

from engine import Detector
from engine.evaluation.explanation.explaining import explain
from engine.evaluation.explanation.looking.standing import standing
from tests.work_growth import grows_linearly

SIZE = 2_500
OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EVENT = {"a": 1, "user": "ada"}
CONDITIONS = {
    "count": "count(a > 0) within 1d >= {size}",
    "count that falls below": "count(a > 0) within 1d < 10",
    "count that sets of predicates turn": "count(a > 0 or a > 0 and b == 1) within 1d >= {size} or b == 1",
    "count under a key": "per user (count(a > 0) within 1d >= {size})",
    "distinct": "distinct(a) within 1d >= {size}",
}


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
def test_a_look_at_a_rule_is_linear_in_what_it_remembers(condition: str) -> None:
    detectors: dict[int, tuple[Detector, str]] = {}
    for size in (SIZE, 4 * SIZE):
        detector = Detector()
        rule_id = detector.add_rule("rule", condition.format(size=size))
        detector.submit_clean([({**EVENT, "a": 1 + number}, number, None) for number in range(size)])
        detectors[size] = detector, rule_id

    def work(size: int) -> None:
        detector, rule_id = detectors[size]
        explain(detector, EVENT, size, rule_id=rule_id)
        standing(detector, rule_id, {"user": "ada"} if "per" in condition else {})

    assert grows_linearly(work, SIZE)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 5, 9])
def test_a_count_turns_when_it_passes_its_limit(op: str, limit: int) -> None:
    detector = Detector()
    rule_id = detector.add_rule("rule", f"count(a == 1) within 10s {op} {limit}")
    # Two events and then three have one time, so that the count passes numbers without taking them.
    times_ms = [0, 0, 1_000, 2_000, 2_000, 2_000]
    detector.submit_clean([({"a": 1}, time_ms, None) for time_ms in times_ms])
    [explained] = explain(detector, {}, 2_000, rule_id=rule_id).rules
    verdicts = {
        until_us: OPERATORS[op](sum(1000 * each + 10_000_000 > until_us for each in times_ms), limit)
        for until_us in (-1, 10_000_000, 11_000_000, 12_000_000)
    }
    turns, before = [], verdicts.pop(-1)
    assert explained.verdict is before
    for until_us, after in verdicts.items():
        if after is not before:
            turns.append(until_us)
        before = after
    assert list(explained.node.future.flips) == turns
