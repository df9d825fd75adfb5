"""What the tests ask of an actor."""

import json
from typing import Any

from engine.evaluation.wire.events import Done, Refused
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.detector.executor import OperationExecutor

ONE = "1" * 32
TWO = "2" * 32


def event(timestamp_ms: float = 1000, **fields: Any) -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": fields, "timestamp_ms": timestamp_ms}}).encode())


def answer(actor: OperationExecutor, operation: Operation) -> Any:
    (given,) = actor.handle([operation]).answers
    assert isinstance(given, Done), given
    return json.loads(given.result)


def codes(given: Any) -> list[int]:
    assert isinstance(given, Refused), given
    return [entry.code for entry in given.entries]


def add(actor: OperationExecutor, condition: str = "a == 1") -> str:
    return str(answer(actor, ops.add_rule("a rule", condition))["id"])


def fired(actor: OperationExecutor, timestamp_ms: float = 1000, **fields: Any) -> list[str]:
    return [action["ruleId"] for action in answer(actor, event(timestamp_ms, **fields))["actions"]]
