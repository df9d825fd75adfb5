"""What the events of a batch come to, as JSON, within a bound on the bytes of the whole answer.

Before an event is evaluated, it is known how large its answer can be: every enabled rule fires, and all that
can be said is said. So nothing is evaluated that is not answered, and no more is held than is answered.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from engine.evaluation.compiler import Event, Fired
from engine.evaluation.detector import Detector
from engine.evaluation.outcomes import Outcomes
from engine.language.diagnostics import Entry, Refusal

_RESULT_BYTES_MAX: Final = 1024
"""What a result takes at most beside actions and what is said of relations and texts."""


class ReportedEntry(msgspec.Struct, frozen=True):
    """An entry as replies carry it."""

    code: int
    message: str


def encode_entries(entries: list[Entry] | tuple[Entry, ...]) -> bytes:
    """Give entries as the JSON array that `errors` and `messages` hold."""
    if not entries:
        return b"[]"
    return msgspec.json.encode([ReportedEntry(*entry) for entry in entries])


def encode_actions(fired: Fired) -> bytes:
    """Give the actions of the rules that fired as a JSON array."""
    return b"[" + b",".join([rule.action_json() for rule in fired]) + b"]"


def refused_result(refusal: Refusal) -> bytes:
    """Give what is answered in the place of an event of several that was refused, as JSON."""
    return b'{"actions":[],"errors":' + encode_entries(refusal.entries) + b"}"


def _results_of(outcomes: Outcomes) -> list[bytes]:
    """Give what the events of a batch came to, each as JSON."""
    results = [
        b'{"actions":' + encode_actions(fired) + b"}" if fired else b'{"actions":[]}'
        for fired in outcomes.fired
    ]
    for place, messages in outcomes.messages.items():
        results[place] = results[place][:-1] + b',"messages":' + encode_entries(messages) + b"}"
    for place, refusal in outcomes.refused.items():
        results[place] = refused_result(refusal)
    return results


def no_room(limit_bytes: int) -> bytes:
    """Give the result of an event that was not evaluated because the answer was full."""
    said = (
        f"the answer to the batch has reached its limit of {limit_bytes} bytes; "
        "nothing of this event was evaluated, and it may be sent again"
    )
    return refused_result(Refusal(Entry(1400, said)))


def results_within(
    detector: Detector, events: Sequence[Event | Refusal]
) -> tuple[list[bytes], tuple[int, ...]]:
    """Evaluate events in order for as long as the answer has room, at least one of them.

    What is a Refusal already has its place among the results. Gives the results, fewer than there are events
    where the answer is full, and the places of those that were refused.
    """
    bytes_max = detector.limits.answer_bytes_max
    worst = detector.answer_bytes_worst + _RESULT_BYTES_MAX
    # Where one event may be answered by more than half of the limit, half of it has to be left.
    wanted = min(worst, bytes_max // 2)
    results: list[bytes] = []
    refused: list[int] = []
    size = 0
    try:
        while len(results) < len(events):
            first = len(results)
            if bytes_max - size < wanted and results:
                break
            part = events[first : first + max(1, (bytes_max - size) // worst)]
            outcomes = detector.submit_clean(part)
            of_part = _results_of(outcomes)
            size += sum(map(len, of_part)) + len(of_part)
            results += of_part
            refused += [first + place for place in outcomes.refused]
    finally:
        detector.forget_lookups()
    return results, tuple(refused)
