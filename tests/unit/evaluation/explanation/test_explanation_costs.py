"""What it costs to look at a rule: work that grows with what the rule remembers, and no faster."""

import pytest

from engine import Detector
from engine.evaluation.explanation.explaining import explain
from engine.evaluation.inspecting.states import standing
from tests.work_growth import grows_linearly

SIZE = 2_500
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
