"""What the tests ask of an actor."""

import json
from typing import Any

from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.detector.executor import OperationExecutor
from tests.local_runtime.owners import event


def answer(actor: OperationExecutor, operation: Operation) -> Any:
    (given,) = actor.handle([operation]).answers
    assert isinstance(given, Done), given
    return json.loads(given.result)


def add(actor: OperationExecutor, condition: str = "a == 1") -> str:
    return str(answer(actor, ops.add_rule("a rule", condition))["id"])


def fired(actor: OperationExecutor, timestamp_ms: float = 1000, **fields: Any) -> list[str]:
    return [action["ruleId"] for action in answer(actor, event(timestamp_ms, **fields))["actions"]]
