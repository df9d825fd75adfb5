"""A detector that is taken apart leaves little to the garbage collector, which frees it in one step."""

import gc

import pytest

from engine import Detector
from tests.differential.modes import in_mode

RULES = 200


def detector() -> Detector:
    made = Detector()
    for n in range(RULES):
        made.add_rule(f"once {n}", f"per user (once within 10m c == {n}) and a{n} == 1", every_secs=60)
        made.add_rule(f"silent {n}", f"per host (not once within {n + 1}m exists beat)", timed=True)
    rule_id = made.add_rule("listed", "listed(user) and name matches 'a.*b'")
    made.add_rule("draft", "listed(user)", shadow=True, draft_of=rule_id)
    made.put_relation("listed", ["ada", "bob"], time_ms=0)
    for number in range(500):
        made.evaluate({"user": f"u{number}", "host": number, "beat": 1, "c": 1, "a1": 1}, number)
    return made


@pytest.mark.parametrize("mode", ["fused", "indexed"])
def test_little_of_it_is_left_to_the_collector(mode):
    with in_mode(mode):
        made, steps = detector(), []
        gc.collect()
        made.take_apart(lambda: steps.append(1))
        del made
        assert gc.collect() < 10 * RULES
    assert len(steps) > 2 * RULES
