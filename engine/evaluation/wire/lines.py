"""NDJSON bodies of evaluations: each line is decoded and answered by itself.

A line is the body of an evaluation, or its event alone.
"""

import re
from contextlib import suppress
from typing import Final

from engine.evaluation.detector import Detector
from engine.evaluation.wire.bodies import check_count, check_digits, without_collector
from engine.evaluation.wire.events import (
    FLAT_EVALUATE,
    FLAT_EVALUATE_DEPTH,
    FLAT_EVENT,
    Done,
    EvaluateBody,
    decode_evaluate,
    decode_event,
    event_in,
)
from engine.evaluation.wire.numbers import are_costly
from engine.evaluation.wire.results import results_within
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

BLANKS = b" \t\r"

_BODY: Final = re.compile(r"(?<=^the )body\b|^body(?=:)")
"""What the decoder calls a line."""

_EVENT_ALONE: Final = re.compile(rb'[ \t\r]*\{[ \t\r]*"(?:fields|timestamp_ms)"')
"""Matches the beginning of a line that is an event alone."""


def decode_lines(body: bytes, limits: Limits) -> list[EvaluateBody | Refusal]:
    """Decode each line that is not blank. A line that is invalid gives a Refusal."""
    lines = [line for line in body.split(b"\n") if line.strip(BLANKS)]
    # No JSON value contains `}`, a line break and `{` in a row. If all lines meet like that, no value spans
    # two lines. If there are also as many values as lines, each line is one value.
    if body.count(b"}\n{") == len(lines) - 1 and limits.body_depth_max >= FLAT_EVALUATE_DEPTH:
        with suppress(ValueError, RecursionError, Refusal), without_collector(body):
            check_count(body, limits.body_values_max)
            check_digits(body, limits.digits_max)
            if are_costly(body):
                pass
            elif all(map(_EVENT_ALONE.match, lines)):
                events = FLAT_EVENT.decode_lines(body)
                if len(events) == len(lines):
                    return [EvaluateBody(event) for event in events]
            else:
                flat = FLAT_EVALUATE.decode_lines(body)
                if len(flat) == len(lines):
                    return [*flat]
    return [_decoded(line, limits) for line in lines]


def evaluate_lines(detector: Detector, body: bytes) -> tuple[Done, tuple[int, ...]]:
    """Evaluate the events of a body in order. A refused event has an error as its result; the others go on.

    Gives the results as lines, and the indices of the refused events. Blank lines do not count. If the answer
    is full, there are fewer results than events. The remaining events were not evaluated, count as refused,
    and may be sent again.
    """
    lines = decode_lines(body, detector.limits)
    results, refused = results_within(
        detector, [line if isinstance(line, Refusal) else event_in(line) for line in lines]
    )
    return Done(b"\n".join(results)), (*refused, *range(len(results), len(lines)))


def _decoded(line: bytes, limits: Limits) -> EvaluateBody | Refusal:
    try:
        if _EVENT_ALONE.match(line):
            return EvaluateBody(decode_event(line, limits))
        return decode_evaluate(line, limits)
    except Refusal as refusal:
        return Refusal(*[Entry(entry.code, _BODY.sub("line", entry.message)) for entry in refusal.entries])
