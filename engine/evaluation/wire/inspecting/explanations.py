"""Requests to explain why rules fire or not, and their answers as JSON."""

import json
from dataclasses import replace
from typing import Final

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.between_events.document import rule_document
from engine.evaluation.explanation.explaining import one_by_one
from engine.evaluation.explanation.trimming import trimmed
from engine.evaluation.wire.bodies import decode
from engine.evaluation.wire.decoding import EvaluateBody, check_times, event_in
from engine.evaluation.wire.events import Done
from engine.evaluation.wire.results import encode_entries
from engine.language.diagnostics import Entry, Refusal

BYTES_MAX: Final = 16 * 1024 * 1024
"""About the most bytes of an answer: conditions with long texts in them are repeated at each level. Of a rule
that is asked for by its id, nodes are left out."""


class ExplainBody(EvaluateBody):
    """An event that is explained and not recorded; of one rule, if `ruleId` names it."""

    ruleId: str | msgspec.UnsetType = msgspec.UNSET  # noqa: N815 -- spelt as in actions


def explain_body(detector: Detector, body: bytes) -> Done:
    """Explain the event of a body. Raises Refusal; nothing is changed in any case."""
    decoded = decode(body, ExplainBody, detector.limits)
    check_times([decoded.event], lambda _: "event.")
    rule_id = None if isinstance(decoded.ruleId, msgspec.UnsetType) else decoded.ruleId
    rules: list[bytes] = []
    left = BYTES_MAX
    # Each rule is encoded before the next one is explained, so that the bound on bytes bounds the work, too.
    with one_by_one(detector, *event_in(decoded), rule_id=rule_id) as (event, explained):
        for one in explained:
            document = encoded(rule_document(one))
            if len(document) > BYTES_MAX and rule_id is not None:
                document = encoded(rule_document(replace(one, node=trimmed(one.node, BYTES_MAX))))
            rules.append(document)
            left -= len(document)
            if left < 0 and rule_id is None and len(detector.live) > 1:
                said = f"the explanation is larger than {BYTES_MAX} bytes, which is the limit; name one rule"
                raise Refusal(Entry(1400, said))
    messages = encode_entries(list(event.messages))
    return Done(b'{"rules":[' + b",".join(rules) + b"]}", messages)


def encoded(document: object) -> bytes:
    """Return plain data as JSON."""
    # The standard library encodes integers of any size, which events may hold.
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
