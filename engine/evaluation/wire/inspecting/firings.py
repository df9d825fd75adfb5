"""Evaluations that explain what fired, and dry runs, which record nothing: bodies and answers as JSON."""

import logging
from collections.abc import Callable
from typing import Final

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.between_events.document import node_document
from engine.evaluation.explanation.firings import Firings, check_nodes, dry_run, evaluate_explained
from engine.evaluation.explanation.nodes import Node
from engine.evaluation.explanation.trimming import trimmed
from engine.evaluation.rules import Rule
from engine.evaluation.wire.decoding import BatchForm, decode_batch, decode_evaluate, event_in, events_in
from engine.evaluation.wire.events import Answer, Done, Refused, evaluate_batch
from engine.evaluation.wire.inspecting.explanations import BYTES_MAX, encoded
from engine.evaluation.wire.results import encode_entries
from engine.language.diagnostics import Refusal

_log = logging.getLogger(__name__)

DRY_BATCH_NODES_MAX: Final = 4_000
"""The most nodes of rules in the dry run of a batch, for which all rules are prepared anew."""


def evaluate_explained_body(detector: Detector, body: bytes) -> Answer:
    """Evaluate the event of a body, and explain the rules that fire."""
    try:
        firings = evaluate_explained(detector, *event_in(decode_evaluate(body, detector.limits)))
    except Refusal as refusal:
        return Refused(refusal.entries)
    return _answer(firings, explained=True)


def dry_run_body(detector: Detector, body: bytes, *, explained: bool) -> Done:
    """Return what an evaluation of a body would answer. Raises Refusal; nothing is changed in any case."""
    event = event_in(decode_evaluate(body, detector.limits))
    firings = dry_run(detector, *event, explained=explained)
    return _answer(firings, explained=explained)


def dry_run_batch_body(
    detector: Detector, body: bytes, form: BatchForm, between: Callable[[], None] = lambda: None
) -> Answer:
    """Return what the evaluation of a batch would answer. Raises Refusal; nothing is changed in any case.

    The events are evaluated by a copy of the detector, which has only their keys.
    """
    events = events_in(decode_batch(body, detector.limits, form, between))
    check_nodes(detector, DRY_BATCH_NODES_MAX)
    answer, _ = evaluate_batch(detector.fork(events), events, between)
    return answer


def _answer(firings: Firings, *, explained: bool) -> Done:
    actions = [rule.action_json() for rule in firings.rules]
    if explained:
        left = BYTES_MAX
        for place, (rule, node) in enumerate(zip(firings.rules, firings.nodes, strict=False)):
            try:
                actions[place] = _explained(rule, node)
                if len(actions[place]) > BYTES_MAX:
                    actions[place] = _explained(rule, trimmed(node, BYTES_MAX))
            except Exception:  # noqa: BLE001 -- the event is evaluated, so its actions are answered
                _log.exception("an explanation could not be encoded")
            left -= len(actions[place])
            if left < 0:
                break
    return Done(b'{"actions":[' + b",".join(actions) + b"]}", encode_entries(firings.messages))


def _explained(rule: Rule, node: Node) -> bytes:
    return rule.action_json()[:-1] + b',"node":' + encoded(node_document(node)) + b"}"
