"""Requests for a timeline, and their answers as JSON."""

import time
from typing import Any

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.timelines import Timelines
from engine.evaluation.wire.events import Done
from engine.evaluation.wire.inspecting.explanations import encoded
from engine.language.condition import Scalar
from engine.language.text.printer import format as format_condition


class TimelineAsked(msgspec.Struct):
    """A timeline of a rule, from the event after the one with the number `after`."""

    rule_id: str
    key: dict[str, Scalar]
    after: int


def timeline(detector: Detector, payload: bytes) -> Done:
    """Return a timeline: `{"ruleId", "text", "rows": […], "moments": […]}`. Raises Refusal 1201 and 1400."""
    asked = msgspec.json.decode(payload, type=TimelineAsked)
    begun = (each for each in detector.observers if isinstance(each, Timelines))
    timelines = next(begun, None) or Timelines(detector, time.monotonic)
    found = timelines.look(asked.rule_id, asked.key)
    document: dict[str, Any] = {
        "ruleId": asked.rule_id,
        "text": format_condition(found.condition),
        "rows": [
            "".join(f"per {key if isinstance(key, str) else key.fact}: " for key in keys)
            + format_condition(row)
            for row, keys in found.rows
        ],
        "moments": [
            {
                "number": moment.number,
                "time_ms": moment.time_us / 1_000,
                "verdict": moment.verdict,
                "verdicts": moment.verdicts,
                "key": moment.key,
            }
            for moment in found.moments
            if moment.number > asked.after
        ],
    }
    return Done(encoded(document))
