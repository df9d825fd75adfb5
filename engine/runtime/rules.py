"""The operations on a detector's rules: small JSON structs in, result bytes out."""

import json
from typing import Any

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.events import Answer, Done, Refused
from engine.evaluation.rules import Rule
from engine.language.diagnostics import Refusal
from engine.language.document import condition_to_document
from engine.runtime import operations
from engine.runtime.operations import AddRule, ChangeRule, NamedRule, Operation


def answer_rules(detector: Detector, detector_id: str, operation: Operation) -> Answer:
    """Carry out an operation on rules. What is refused has changed nothing."""
    try:
        return Done(_encoded(_carried_out(detector, detector_id, operation)))
    except Refusal as refusal:
        return Refused(refusal.entries)


def _carried_out(detector: Detector, detector_id: str, operation: Operation) -> dict[str, Any]:
    match operation.kind:
        case operations.RULES:
            return {"rules": [_document(rule, detector_id) for rule in detector.rules()]}
        case operations.RULE:
            named = msgspec.json.decode(operation.payload, type=NamedRule)
            return _document(detector.rule(named.rule_id), detector_id)
        case operations.ADD_RULE:
            added = msgspec.json.decode(operation.payload, type=AddRule)
            return {"id": detector.add_rule(added.name, added.condition, added.notify)}
        case operations.CHANGE_RULE:
            change = msgspec.json.decode(operation.payload, type=ChangeRule)
            changed = detector.change_rule(
                change.rule_id,
                name=change.name,
                condition=change.condition,
                enabled=change.enabled,
                notify=change.notify,
            )
            return _document(changed, detector_id)
        case operations.REMOVE_RULE:
            named = msgspec.json.decode(operation.payload, type=NamedRule)
            detector.remove_rule(named.rule_id)
            return {"id": named.rule_id}
        case unknown:
            raise AssertionError(f"no operation is called {unknown!r}")


def _document(rule: Rule, detector_id: str) -> dict[str, Any]:
    return {
        "id": rule.id,
        "condition": condition_to_document(rule.condition),
        "detectorId": detector_id,
        "enabled": rule.enabled,
        "name": rule.name,
        "notify": rule.notify,
        "priority": rule.priority,
    }


def _encoded(result: dict[str, Any]) -> bytes:
    # The standard library's encoder, because conditions hold integers of any size.
    return json.dumps(result, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
