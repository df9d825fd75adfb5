"""An event leaves alone what is usual: of many memories of `not k == 1`, it looks at the exceptions."""

import pytest

from engine import Detector
from engine.evaluation.kernel.indexing import indexed_stream
from tests.differential.modes import in_mode

RULES = 40
EVENTS = 3 * RULES
LOOKED_AT_MAX = 3
"""The rule for the x of the event, and up to two memories that read its k."""


@pytest.mark.parametrize("per", ["", "per user "])
@pytest.mark.parametrize(
    "restless",
    [
        "once within 5m not k == {}",
        "once (not k == {} or v == 2)",
        "earlier not k == {}",
        "previous not k == {}",
        "v == 1 since not k == {}",
        "historically for 5m k == {}",
        "historically for 5m strong k == {}",
    ],
)
def test_an_event_meets_few_of_many_restless_memories(
    restless: str, per: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_stream, "SAMPLED_EVERY", 1)
    detector = Detector()
    with in_mode("indexed"):
        for number in range(RULES):
            detector.add_rule("rule", f"{per}({restless.format(number)}) and x == {number}")
        empty = detector.histories.bytes
        for number in range(EVENTS):
            fields = {"user": number % 2, "x": number % RULES, "k": (7 * number) % RULES, "v": 1}
            detector.evaluate(fields, 2 * number)
    assert sum(detector.rule_set.samples.ran.values()) <= LOOKED_AT_MAX * EVENTS
    assert detector.histories.bytes - empty < 4_000, "nothing is kept of what is usual"


def test_an_event_that_meets_no_trigger_begins_what_is_usually_true() -> None:
    detector = Detector()
    with in_mode("indexed"):
        detector.add_rule("rule", "per user historically for 1s strong not k == 1")
        fired = [bool(detector.evaluate({"user": "a"}, time_ms)) for time_ms in (0, 500, 1_000)]
    assert fired == [False, False, True]
