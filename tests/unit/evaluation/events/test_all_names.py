"""Rules that read whatever an event has get all of it, however the event is given."""

from collections import UserDict
from typing import Any

import pytest

from engine import Detector, Refusal
from tests.differential.feeding import submitted
from tests.differential.modes import in_mode

LONG = ".".join("abcdefghijklmnopqrst")
"""A name of so many parts that any field may hold it."""
EVENTS: tuple[dict[str, Any], ...] = (
    {"x": "yes", LONG: 1},
    {"x": ["no", {"deep": "yes"}], LONG.partition(".")[0]: {LONG.partition(".")[2]: 1}},
    {"x": ("no", "yes"), "a.b": UserDict({LONG[4:]: 1})},
)


@pytest.mark.parametrize("mode", ["fused", "indexed"])
@pytest.mark.parametrize("condition", ["anywhere (it == 'yes')", f"{LONG} == 1"])
def test_a_rule_is_answered_alike_in_each_way(condition: str, mode: str) -> None:
    with in_mode(mode):
        detector = Detector()
        detector.add_rule("r", condition)
        detector.add_rule("by a value", "z == 'never'", every_secs=1, every_by=["z"])
        for fields in EVENTS:
            event = fields, 0, None
            assert [len(fired) for fired in detector.evaluate_many([event])] == [1], fields
            assert [len(fired) for fired in detector.evaluate_many(iter([event, event]))] == [1, 1], fields
            assert len(detector.evaluate(UserDict(fields), 0)) == 1
            assert len(detector.evaluate_many([(UserDict(fields), 0, None)])[0]) == 1
            [outcome] = submitted(detector, [event])
            assert not isinstance(outcome, Refusal)
            assert len(outcome.fired) == 1


def test_a_name_that_is_no_string_is_refused_where_all_names_are_read() -> None:
    detector = Detector()
    detector.add_rule("r", "anywhere (it == 'yes')")
    for fields in ({1: "yes"}, {"x": "no", 1: "yes"}):
        with pytest.raises(Refusal, match="1"):
            detector.evaluate_many([(fields, 0, None)])
