"""A copy for some events answers them as the detector would, and leaves nothing in it."""

from typing import Any

import pytest

from engine import Detector
from engine.evaluation.explanation.firings import dry_run
from tests.differential.modes import in_mode

MODES = pytest.mark.parametrize("mode", ["fused", "indexed"])
RULES = (
    "per $v count(a == 1) >= 2",
    "per k per $v (previous a == 1)",
    "per $v where b == 1 (earlier a == 1)",
    "count(a == 1) >= 2",
    "known(k) and per k count(a == 1) >= 2",
    "per k (a == 1 since b == 1)",
    "per $v age(a == 1) < 5",
)
EVENTS: tuple[Any, ...] = (
    ({"a": 1, "b": 1, "k": 1}, 1_000, {"v": 1}),
    ({"a": 1, "k": 1}, 2_000, {"v": 2}),
    ({"a": 1, "b": 1, "k": 1}, 3_000, {"v": 1}),
    ({"b": 1, "k": 2}, 3_000, None),
)


def played(mode: str) -> Detector:
    with in_mode(mode):
        detector = Detector()
        detector.put_relation("known", [[1]], 0)
        for rule in RULES:
            detector.add_rule(rule, rule)
        detector.evaluate_many(EVENTS)
    return detector


@MODES
@pytest.mark.parametrize("sent", [{"v": 1}, {"v": 2}, {"v": 3}, None])
def test_a_copy_knows_what_was_remembered_for_the_keys_of_its_events(
    mode: str, sent: dict[str, Any] | None
) -> None:
    detector = played(mode)
    for fields in ({"a": 1, "b": 1, "k": 1}, {"a": 0, "k": 2}, {"k": 3}, {}):
        event = fields, 3_500, sent
        before = detector.dump()
        told = detector.fork([event]).evaluate(*event)
        foreseen = [rule.name for rule in dry_run(detector, fields, 3_500, sent or {}).rules]
        assert detector.dump() == before
        assert [action["name"] for action in told] == foreseen
        twin = Detector.load(before, Detector.STATE_VERSION)
        assert told == twin.evaluate(*event)
    if sent == {"v": 1}:
        assert RULES[0] in [action["name"] for action in detector.evaluate({"k": 1, "b": 1}, 3_500, sent)]


@MODES
def test_a_dry_run_leaves_nothing_for_the_events_after_it(mode: str) -> None:
    with in_mode(mode):
        detector = Detector()
        for rule in ("once a == 1", "per k once a == 1", "per $v count(a == 1) >= 1"):
            detector.add_rule(rule, rule)
    told = dry_run(detector, {"a": 1, "k": 1}, 1_000, {"v": 1})
    assert len(told.rules) == 3
    for at_ms in (2_000, 3_000, 4_000):
        assert detector.evaluate({"k": 1}, at_ms, {"v": 1}) == []
