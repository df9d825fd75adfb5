"""The messages about a new or changed rule."""

import json
from typing import Any

import pytest

from engine.evaluation.detector import Detector
from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests import operations as ops
from engine.runtime.detector.apply import apply
from engine.runtime.detector.persistence.idempotency import IdempotencyCache
from tests.unit.runtime.detector.executor.requests import ONE

TEMPORAL = "once within 5m a == 1"


class Asked:
    """A detector that is asked for changes of its rules."""

    def __init__(self) -> None:
        self.detector = Detector()

    def __call__(self, operation: ops.Operation) -> tuple[dict[str, Any], list[int]]:
        answer = apply(self.detector, ONE, IdempotencyCache(1, 1), operation, 0).answer
        assert isinstance(answer, Done)
        return json.loads(answer.result), [entry["code"] for entry in json.loads(answer.messages)]

    def add(self, condition: str) -> str:
        result, codes = self(ops.add_rule("r", condition))
        assert codes == []
        return str(result["id"])


@pytest.mark.parametrize(
    ("condition", "codes"),
    [
        (TEMPORAL, []),
        ("owns(user)", [2003]),
        ("exists(user)", [2003, 2006]),
        ("per user (previous country != country)", [2006]),
    ],
)
def test_a_new_rule_and_a_changed_one_are_answered_with_what_is_doubtful(
    condition: str, codes: list[int]
) -> None:
    asked = Asked()
    assert asked(ops.add_rule("r", condition))[1] == codes
    rule = asked.add("a == 1")
    told = asked(ops.change_rule(rule, condition=condition))[1]
    assert [code for code in told if code != 2005] == codes


def test_a_change_that_begins_the_history_anew_says_so() -> None:
    asked = Asked()
    rule = asked.add(TEMPORAL)
    assert asked(ops.change_rule(rule, condition=TEMPORAL))[1] == []
    assert asked(ops.change_rule(rule, condition="once within 6m a == 1"))[1] == [2005]
    assert asked(ops.change_rule(rule, name="other", notify=True))[1] == []
    assert asked(ops.change_rule(rule, enabled=False))[1] == []
    # A disabled rule has no history.
    assert asked(ops.change_rule(rule, condition=TEMPORAL))[1] == []
    assert asked(ops.change_rule(rule, enabled=True))[1] == [2005]
    assert asked(ops.change_rule(rule, enabled=True))[1] == []


def test_a_condition_that_does_not_look_back_has_no_history_to_lose() -> None:
    asked = Asked()
    rule = asked.add(TEMPORAL)
    assert asked(ops.change_rule(rule, condition="a == 1"))[1] == []
    assert asked(ops.change_rule(rule, condition="a == 2"))[1] == []
    assert asked(ops.change_rule(rule, condition=TEMPORAL))[1] == [2005]
