"""NDJSON bodies of evaluations: each line is decoded and answered by itself."""

import re
from typing import Final

from engine.evaluation.detector import Detector
from engine.evaluation.wire.events import Done, EvaluateBody, decode_evaluate, event_in
from engine.evaluation.wire.results import results_within
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

BLANKS = b" \t\r"

_BODY: Final = re.compile(r"(?<=^the )body\b|^body(?=:)")
"""What the decoder calls a line."""


def decode_lines(body: bytes, limits: Limits) -> list[EvaluateBody | Refusal]:
    """Decode each line that is not blank. A line that is invalid gives a Refusal."""
    return [_decoded(line, limits) for line in body.split(b"\n") if line.strip(BLANKS)]


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
        return decode_evaluate(line, limits)
    except Refusal as refusal:
        return Refusal(*[Entry(entry.code, _BODY.sub("line", entry.message)) for entry in refusal.entries])
