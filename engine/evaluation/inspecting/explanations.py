"""Bodies and answers, as JSON, of explanations, dry runs, and evaluations with explained firings."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.explaining import one_by_one
from engine.evaluation.explanation.firings import Firings, check_nodes, dry_run, evaluate_explained
from engine.evaluation.explanation.nodes import Node, node_document, rule_document, trimmed
from engine.evaluation.wire.batches import BatchForm, decode_batch
from engine.evaluation.wire.bodies import decode
from engine.evaluation.wire.decoding import EvaluateBody, decode_evaluate, event_in, events_in
from engine.evaluation.wire.events import (
    Answer,
    Done,
    detailed_actions,
    encode_entries,
    evaluate_batch,
)
from engine.language.diagnostics import Entry, Refusal
from engine.language.json.writer import json_bytes

BYTES_MAX: Final = 16 * 1024 * 1024
"""The approximate maximum size of an answer: conditions with long texts are repeated at each level. If one
rule is asked for by its id, nodes are left out instead."""


class ExplainBody(EvaluateBody):
    """An event to explain without recording it; with `ruleId`, for one rule."""

    ruleId: str | msgspec.UnsetType = msgspec.UNSET  # noqa: N815 -- spelt as in actions


def explain_body(detector: Detector, body: bytes) -> Done:
    """Explain the event of a body. Raises Refusal. Never changes anything."""
    decoded = decode(body, ExplainBody, detector.limits)
    rule_id = None if isinstance(decoded.ruleId, msgspec.UnsetType) else decoded.ruleId
    rules: list[bytes] = []
    left = BYTES_MAX
    # Encode each rule before explaining the next one, so that the bound on bytes bounds the work, too.
    with one_by_one(detector, *event_in(decoded), rule_id=rule_id) as (event, explained):
        for one in explained:
            document = json_bytes(rule_document(one))
            if len(document) > BYTES_MAX and rule_id is not None:
                document = json_bytes(rule_document(replace(one, node=trimmed(one.node, BYTES_MAX))))
            rules.append(document)
            left -= len(document)
            if left < 0 and rule_id is None and len(detector.live) > 1:
                said = f"the explanation is too large; limit {BYTES_MAX} bytes; name one rule"
                raise Refusal(Entry(1400, said))
    messages = encode_entries(list(event.messages))
    return Done(b'{"rules":[' + b",".join(rules) + b"]}", messages)


# -- what fired ---------------------------------------------------------------------------------------------

_log = logging.getLogger(__name__)

DRY_BATCH_NODES_MAX: Final = 4_000
"""The maximum number of nodes of all rules in the dry run of a batch, which prepares all rules anew."""


def evaluate_explained_body(
    detector: Detector, body: bytes, *, explained: bool = True, detailed: bool = False
) -> Done:
    """Evaluate the event of a body; explain the rules that fire, or give their details. Raises Refusal."""
    event = event_in(decode_evaluate(body, detector.limits))
    return _answer(evaluate_explained(detector, *event, explained=explained, detailed=detailed))


def dry_run_body(detector: Detector, body: bytes, *, explained: bool, detailed: bool = False) -> Done:
    """Return the answer that an evaluation of a body would have. Raises Refusal. Never changes anything."""
    event = event_in(decode_evaluate(body, detector.limits))
    return _answer(dry_run(detector, *event, explained=explained, detailed=detailed))


def dry_run_batch_body(
    detector: Detector,
    body: bytes,
    form: BatchForm,
    between: Callable[[], None] = lambda: None,
    *,
    detailed: bool = False,
) -> Answer:
    """Return the answer that the evaluation of a batch would have. Raises Refusal. Never changes anything.

    A copy of the detector, with the state of only the events' keys, evaluates them.
    """
    events = events_in(decode_batch(body, detector.limits, form, between))
    check_nodes(detector, DRY_BATCH_NODES_MAX)
    answer, _ = evaluate_batch(detector.fork(events), events, between, detailed=detailed)
    return answer


def _answer(firings: Firings) -> Done:
    actions = detailed_actions(firings)
    left = BYTES_MAX
    for place, node in enumerate(firings.nodes):
        try:
            encoded = _explained(actions[place], node)
            if len(encoded) > BYTES_MAX:
                encoded = _explained(actions[place], trimmed(node, BYTES_MAX))
            actions[place] = encoded
        except Exception:  # noqa: BLE001 -- the event is evaluated, so the answer must have its actions
            _log.exception("an explanation could not be encoded")
        left -= len(actions[place])
        if left < 0:
            break
    return Done(b'{"actions":[' + b",".join(actions) + b"]}", encode_entries(firings.messages))


def _explained(action: bytes, node: Node) -> bytes:
    return action[:-1] + b',"node":' + json_bytes(node_document(node)) + b"}"
