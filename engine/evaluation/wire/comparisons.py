"""How the firings of a rule and its draft differ, as JSON."""

from typing import Any

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.between_events.document import milliseconds
from engine.evaluation.memory import FOREVER
from engine.evaluation.rule_book.shadows import Example
from engine.evaluation.wire.events import Done
from engine.evaluation.wire.explanations import encoded


def comparison_of(detector: Detector, rule_id: str) -> Done:
    """Return the comparison of a rule with its draft. Raises Refusal 1201 if there is none."""
    found = detector.comparison(rule_id)
    document: dict[str, Any] = {
        "ruleId": found.rule_id,
        "draftId": found.draft_id,
        "since_event": found.since_event,
        "events": detector.events_seen - found.since_event,
        **found.counts,
        "examples": {kind: [*map(_example, reversed(kept))] for kind, kept in found.examples.items()},
    }
    if found.since_us is not None:
        document["since_ms"] = milliseconds(found.since_us)
    if found.young_until_us is not None:
        until_us = found.young_until_us
        document["young_until_ms"] = None if until_us >= FOREVER else milliseconds(until_us)
    return Done(encoded(document))


def _example(example: Example) -> dict[str, Any]:
    document = {
        "number": example.number,
        "timestamp_ms": example.timestamp_ms,
        "key": example.key,
        "fields": example.fields,
    }
    return document | {"cut": True} if example.is_cut else document
