"""NDJSON bodies of evaluations: each line is decoded and answered by itself.

A line is the body of an evaluation, or its event alone.
"""

import re
from collections.abc import Callable
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
    drop,
    event_in,
)
from engine.evaluation.wire.numbers import are_costly
from engine.evaluation.wire.portions import PORTION_BYTES, is_long
from engine.evaluation.wire.results import results_within
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

BLANKS = b" \t\r"

_BODY: Final = re.compile(r"(?<=^the )body\b|^body(?=:)")
"""What the decoder calls a line."""

_EVENT_ALONE: Final = re.compile(rb'[ \t\r]*\{[ \t\r]*"(?:fields|timestamp_ms)"')
"""Matches the beginning of a line that is an event alone."""


def decode_lines(
    body: bytes, limits: Limits, between: Callable[[], None] = lambda: None
) -> list[EvaluateBody | Refusal]:
    """Decode each line that is not blank. A line that is invalid gives a Refusal.

    A long body is decoded in portions, and `between` is called after each.
    """
    lines = [line for line in body.split(b"\n") if line.strip(BLANKS)]
    if not is_long(body, limits):
        return _together(lines, body, limits)
    decoded: list[EvaluateBody | Refusal] = []
    first, size = 0, 0
    for place, line in enumerate(lines, 1):
        size += len(line)
        if size > PORTION_BYTES or place == len(lines):
            portion = lines[first:place]
            decoded += _together(portion, b"\n".join(portion), limits)
            first, size = place, 0
            between()
    return decoded


def _together(lines: list[bytes], body: bytes, limits: Limits) -> list[EvaluateBody | Refusal]:
    """Decode the lines of a body, at once if all are flat."""
    # No JSON value contains `}`, a line break and `{` in a row. If all lines meet like that, no value spans
    # two lines. If there are also as many values as lines, each line is one value.
    if (
        body.count(b"}\n{") == len(lines) - 1
        and limits.body_depth_max >= FLAT_EVALUATE_DEPTH
        and not is_long(body, limits)
    ):
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


def evaluate_lines(
    detector: Detector, body: bytes, between: Callable[[], None] = lambda: None
) -> tuple[Done, tuple[int, ...]]:
    """Evaluate the events of a body in order. A refused event has an error as its result; the others go on.

    Gives the results as lines, and the indices of the refused events. Blank lines do not count. If the answer
    is full, there are fewer results than events. The remaining events were not evaluated, count as refused,
    and may be sent again. `between` is called between the portions in which a long body is done.
    """
    with without_collector(body):
        lines = decode_lines(body, detector.limits, between)
        events = [line if isinstance(line, Refusal) else event_in(line) for line in lines]
        count = len(lines)
        drop(lines)
        results, refused = results_within(detector, events, between)
        drop(events)
    return Done(b"\n".join(results)), (*refused, *range(len(results), count))


def _decoded(line: bytes, limits: Limits) -> EvaluateBody | Refusal:
    try:
        if _EVENT_ALONE.match(line):
            return EvaluateBody(decode_event(line, limits))
        return decode_evaluate(line, limits)
    except Refusal as refusal:
        return Refusal(*[Entry(entry.code, _BODY.sub("line", entry.message)) for entry in refusal.entries])
