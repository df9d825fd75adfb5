"""Detectors whose rules fire once, at a set time, in place of the engine's timed rules.

A rule's label has the time. So what is due depends only on the rules and the clock, and a replay repeats it.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from engine.evaluation.detector import Detector
from engine.evaluation.events.outcomes import too_far_ahead
from engine.evaluation.timed.timing import FiredByTime
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation

LABEL = "due_us"
SECOND = 1_000_000
T = 1_700_000_000 * SECOND
"""A time of the server, in microseconds since 1970."""


class Clock:
    """Return the server's clock: from T on, it follows the event loop, even while no service runs."""

    passed_s = 0.0

    def now_us(self) -> int:
        return T + round((self.passed_s + asyncio.get_running_loop().time()) * 1e6)


def _due(detector: Detector) -> list[tuple[int, Any]]:
    """The rules still to fire, in order of time. The first event or tick sets the clock."""
    if detector.clock_us is None:
        return []
    rules = [live.rule for live in detector.live.values() if LABEL in live.rule.labels]
    dues = [(int(rule.labels[LABEL]), rule) for rule in rules]
    return sorted((one for one in dues if one[0] > detector.clock_us), key=lambda one: one[0])


def _tick(detector: Detector, time_us: int, _between: object = None) -> Sequence[FiredByTime]:
    if detector._now_us is not None:
        ahead_us = time_us - detector._now_us()
        if ahead_us > detector.limits.ahead_ms_max * 1_000:
            raise too_far_ahead(ahead_us, detector.limits)
    if detector.clock_us is not None and time_us <= detector.clock_us:
        return ()
    fired = [FiredByTime(rule, {"host": rule.name}, at) for at, rule in _due(detector) if at <= time_us]
    detector.clock_us = time_us
    detector.verdicts.note(detector.events_seen, [(one.rule,) for one in fired])
    return fired


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all detectors of this process fire this way."""
    monkeypatch.setattr(Detector, "tick", _tick)
    due = property(lambda detector: next((at for at, _ in _due(detector)), None))
    monkeypatch.setattr(Detector, "next_due_us", due)


def alarm(due_us: int, name: str = "alarm") -> Operation:
    """Add a rule that fires at a time."""
    return ops.add_rule(name, "a == 1", labels={LABEL: due_us})


def event(time_us: int, **fields: Any) -> Operation:
    """Evaluate an event at a time."""
    document = {"event": {"fields": fields, "timestamp_ms": time_us / 1_000}}
    return ops.evaluate(json.dumps(document).encode())


def tick(time_us: int, key: str = "") -> Operation:
    """Move the clock to a time."""
    return ops.tick(json.dumps({"timestamp_ms": time_us / 1_000}).encode(), key)
