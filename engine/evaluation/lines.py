"""Evaluate bodies in lines, as NDJSON has them: decoded and answered each for itself."""

from typing import Any

from engine.evaluation.detector import Detector
from engine.evaluation.events import Done, EvaluateBody, decode_evaluate, result_of, sent_with
from engine.language.diagnostics import Refusal
from engine.language.limits import Limits

BLANKS = b" \t\r"


def decode_lines(body: bytes, limits: Limits) -> list[EvaluateBody | Refusal]:
    """Give what stands in each line that is not blank: an evaluate body, or what is wrong with it."""
    return [_decoded(line, limits) for line in body.split(b"\n") if line.strip(BLANKS)]


def evaluate_lines(detector: Detector, body: bytes) -> tuple[Done, tuple[int, ...]]:
    """Evaluate the events of a body in order; a refused one says so in its place, and the others go on.

    Gives the results as lines, and the places of the events that were refused. Blank lines have no place.
    """
    lines = decode_lines(body, detector.limits)
    outcomes = iter(detector.submit_many([event_in(line) for line in lines if not isinstance(line, Refusal)]))
    results = [line if isinstance(line, Refusal) else next(outcomes) for line in lines]
    refused = tuple(place for place, result in enumerate(results) if isinstance(result, Refusal))
    return Done(b"\n".join(map(result_of, results))), refused


def event_in(body: EvaluateBody) -> tuple[dict[str, Any], float, dict[str, Any]]:
    """Give the event of a body as a detector takes it."""
    return body.event.fields, body.event.timestamp_ms, sent_with(body.context)


def _decoded(line: bytes, limits: Limits) -> EvaluateBody | Refusal:
    try:
        return decode_evaluate(line, limits)
    except Refusal as refusal:
        return refusal
