"""What fires by time ahead of an event, or after it if nothing else comes; copies find out."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.evaluation.detector import Detector
from engine.evaluation.facts.values import Event
from engine.evaluation.firings.at_most_once import AtMostOnce
from engine.evaluation.rules import Rule
from engine.evaluation.stamps import stamp_of
from engine.evaluation.timed.timing import FiredByTime

_CHANGES_MAX: Final = 200
"""The most changes by time, for each timed rule, that are looked at to tell when it fires."""


def held_back_us(detector: Detector, rule: Rule, now_us: int, event: Event) -> int:
    """Return how long a rule that is true at an event is still held back; 0 or less if it acts."""
    if not rule.acts_at_most_once:
        return 0
    fields, _, sent = event
    at_most_once = acted_before(detector, [rule], now_us, fields, sent or {})
    return at_most_once.free_us(rule, fields, sent or {}) - now_us


def acted_before(
    detector: Detector, fired: Sequence[Rule], now_us: int, fields: Mapping[str, Any], sent: Mapping[str, Any]
) -> AtMostOnce:
    """Return what rules that fire remember of their actions, after what fires by time before the event.

    Of what is still due, that for the keys of the event counts.
    """
    now = stamp_of(now_us, 0)
    held = [detector.live[rule.id] for rule in fired if rule.acts_at_most_once]
    if detector.timing.queue.due > now or not held:
        return detector.at_most_once
    copied = detector.fork([(fields, 0, sent)], held)
    copied.timing.pass_time(now, copied.events_seen)
    return copied.at_most_once


def firings_ahead(copied: Detector) -> dict[str, int]:
    """Return when rules, by their ids, fire by time first if no event comes, in microseconds.

    The detector is a copy, whose time passes. What comes after some hundred changes by time is left out.
    """
    timing, found = copied.timing, dict[str, int]()

    def fire(fired: FiredByTime, tick: int) -> None:
        if copied.recorder.by_time(*fired, tick) is not None:
            found.setdefault(fired.rule.id, fired.time_us)

    timing.fired = fire
    for _ in range(_CHANGES_MAX * len(timing.watches)):
        due_us = timing.next_due_us
        if due_us is None:
            break
        timing.pass_time(stamp_of(due_us, 0), copied.events_seen)
        for priority in [each for each, watch in timing.watches.items() if watch.rule.id in found]:
            timing.remove(priority)
    return found
