"""However many rules come and go, a process keeps the code of few of them."""

import gc
from types import FunctionType

import pytest

from engine import Detector
from engine.evaluation.dispatch import rule_set
from tests.differential import fused

PREDICATES = 10


def sources_kept() -> set[FunctionType]:
    """Find the generated sources that were made since `gc.freeze`, by the one `bind` that each defines."""
    gc.collect()
    return {
        found
        for found in gc.get_objects()
        if type(found) is FunctionType
        and found.__name__ == "bind"
        and found.__code__.co_filename == "<rules>"
    }


def shaped(number: int) -> str:
    """Write a condition of which no other number has the shape."""
    return "hit == 1 and " + " and ".join(
        f"f{place} {'!=' if number >> place & 1 else '=='} 1" for place in range(PREDICATES)
    )


@pytest.mark.parametrize(
    ("fused_up_to", "rules", "detectors", "kept_max"),
    [(1_000, 1, 100, 80), (1_000, 10, 12, 6), (0, 1, 300, 280)],
    ids=["few rules", "many rules", "indexed rules"],
)
def test_the_code_of_rules_that_are_gone_is_let_go(
    fused_up_to: int, rules: int, detectors: int, kept_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(fused_up_to))
    # What earlier tests left in the caches is not counted. Each new source replaces one of theirs there.
    gc.freeze()
    most = 0
    for number in range(detectors):
        detector = Detector()
        for place in range(rules):
            detector.add_rule("rule", shaped(number + place))
        detector.evaluate({"hit": 1}, 0)
        if number % 20 in {3, 19} or number == detectors - 1:
            most = max(most, len(sources_kept()))
    assert 1 <= most <= kept_max
