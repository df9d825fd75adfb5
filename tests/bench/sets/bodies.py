"""Events from the wire: decoded, evaluated and answered, in each form, beside decoding alone."""

import gc
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgpack
import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.wire.decoding import BatchBody
from engine.evaluation.wire.events import Done, evaluate_batch_body
from engine.language.limits import Limits
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.rows import Part, Row, at_least

CASE = "bodies"
EVENTS = 1_000
"""The number of events in a body."""
USERS = 200
RULES = tuple(
    rule
    for number in range(5)
    for rule in (
        f"per user once within {10 + number}m (action == 'login' and ok == false and amount >= {number})",
        f"action == 'transfer' and per user (ok == true since within 1h amount between {number} and 20)",
    )
)


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a body: how it is made, answered, and only decoded."""

    name: str
    written: Callable[[list[Any]], bytes]
    decoded: Callable[[bytes], object]

    def answered(self, detector: Detector, body: bytes) -> Done:
        """Return the answer to a body."""
        answer, _ = evaluate_batch_body(detector, body, "json" if self.name == "JSON" else "msgpack")
        assert isinstance(answer, Done)
        return answer


FORMS = (
    Form(
        "JSON",
        lambda events: json.dumps({"events": events}).encode(),
        msgspec.json.Decoder(BatchBody).decode,
    ),
    Form(
        "msgpack",
        lambda events: msgpack.packb({"events": events}),
        msgspec.msgpack.Decoder(BatchBody).decode,
    ),
)
AIM = 0.333
"""Millions of events per second."""


def parts(effort: Effort) -> list[Part]:
    """Return one part for all forms, so that they are measured side by side."""
    return [Part(CASE, partial(measure, effort))]


def events_drawn(first: int) -> list[Any]:
    """Return the events of one body, 10 ms apart, of which `first` came before."""
    actions = ("login", "transfer", "view", "view", "view")
    return [
        {
            "fields": {
                "user": f"user {number * 7919 % USERS}",
                "action": actions[number % 5],
                "ok": number % 3 > 0,
                "amount": number % 1000 / 4,
                "ip": f"203.0.113.{number % 250}",
                "agent": "a browser of some kind, on a system of another",
            },
            "timestamp_ms": 1_700_000_000_000 + 10 * number,
        }
        for number in range(first, first + EVENTS)
    ]


def measure(effort: Effort, forms: Sequence[Form] = FORMS) -> list[Row]:
    """Return events per second in each form, complete and only decoded."""
    detectors = {form.name: _detector() for form in forms}
    passes: dict[str, list[tuple[float, float]]] = {form.name: [] for form in forms}
    bodies_a_pass = max(1, min(effort.pass_events_max, int(effort.pass_s * 200_000)) // EVENTS)
    first = 0
    for _ in range(1 + effort.passes):
        drawn = [events_drawn(first + EVENTS * number) for number in range(bodies_a_pass)]
        first += EVENTS * bodies_a_pass
        results = set()
        for form in forms:
            bodies = [form.written(events) for events in drawn]
            answered, ours_s = _timed(partial(_result, form, detectors[form.name]), bodies)
            _, floor_s = _timed(partial(_nothing, form), bodies)
            passes[form.name].append((ours_s, floor_s))
            results.add(sum(result.count(b'"ruleId"') for result in answered))
        assert len(results) == 1, "each form gives the same actions"
    # The first pass warms up.
    return [_row(form, passes[form.name][1:]) for form in forms]


def _detector() -> Detector:
    detector = Detector(limits=Limits(ahead_ms_max=0))
    for number, rule in enumerate(RULES):
        detector.add_rule(f"rule {number}", rule)
    return detector


def _result(form: Form, detector: Detector, body: bytes) -> bytes:
    return form.answered(detector, body).result


def _nothing(form: Form, body: bytes) -> bytes:
    """Decode, and keep nothing for the garbage collector to scan."""
    form.decoded(body)
    return b""


def _timed(run: Callable[[bytes], bytes], bodies: list[bytes]) -> tuple[list[bytes], float]:
    gc.collect()
    # The collector must not charge allocation with the scan of older objects.
    gc.freeze()
    try:
        started_s = time.process_time()
        answers = [run(body) for body in bodies]
        cost_s = time.process_time() - started_s
    finally:
        gc.unfreeze()
    return answers, cost_s / (EVENTS * len(bodies))


def _row(form: Form, passes: list[tuple[float, float]]) -> Row:
    ours_s, floor_s = (statistics.median(each) for each in zip(*passes, strict=True))
    return Row(
        case=CASE,
        name=f"{form.name}, {EVENTS} events a body, {len(RULES)} rules",
        unit="M events/s",
        ours=1 / ours_s / 1e6,
        worst=1 / max(ours for ours, _ in passes) / 1e6,
        floor=1 / floor_s / 1e6,
        ratio=statistics.median(ours / floor for ours, floor in passes),
        over="decoding alone",
        target=at_least(AIM, 1 / ours_s / 1e6, f"{1 / AIM:.0f} µs an event, or {AIM} M/s"),
    )
