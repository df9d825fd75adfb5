"""Timed rules beside the same rules untimed: what an event costs, and a tick at which many fire.

Each user has an event in a hundred seconds or so, and is silent now and then, so rules also fire by time
between the events. What fires at events is the same, timed or not.
"""

import gc
import heapq
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from engine import Detector
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Contestant, Disagreement, Event, batches, fed, race
from tests.bench.measuring.rows import Part, Row, at_most
from tests.bench.rules.temporal import Stream

CASE = "timed"
WINDOW_MS: Final = 600_000
STEP_MS: Final = 100
KEYS: Final = 1_000
FIRING_KEYS_A_KEY: Final = 10
"""By how many of the keys of a stream a tick has one that fires."""
UNTIMED: Final = "the same untimed"
EVERY: Final = "the same without `every_secs`"

SHAPES: Final = {
    "not once within": "per user (not once within 10m alarm == 0)",
    "once within": "per user (not once within 10m alarm == 1)",
    "since within": "per user (calm == 1 since within 10m alarm == 1)",
    "a pair that is not completed": "per user (once within 10m alarm == 1 and not once within 5m calm == 1)",
    "count": "per user count(calm == 1) within 10m >= 3",
    "historically for strong": "per user historically for 10m strong calm == 1",
    "age": "per user age(calm == 1) > 600",
    "without keys": "not once within 10m alarm == 1",
}
"""Conditions by name."""

AT_MOST_ONCE: Final = {
    "quiet": ("per user once within 10m alarm == 3", 60),
    "held back": ("per user exists user", 1e6),
    "acting": ("per user exists user", 1e-6),
}
"""A condition, and how often it may act at most, by what its events are then."""


def parts(effort: Effort) -> list[Part]:
    """Give a part for each kind of row."""
    measures: dict[str, Callable[[Effort], list[Row]]] = {
        "events": measure_events,
        "ticks": measure_ticks,
        "at most once": measure_at_most_once,
    }
    return [Part(CASE, partial(measure, effort), name) for name, measure in measures.items()]


def measure_ticks(e): ...
def measure_at_most_once(e): ...


def measure_events(effort: Effort) -> list[Row]:
    """Give what an event costs where the rule is timed."""
    rows = []
    for name, condition in SHAPES.items():
        keys = min(KEYS, effort.keys)
        stream = Stream(step_ms=STEP_MS, window_ms=WINDOW_MS, keys=keys)
        events = stream.events(effort.events, alarming=0.05)
        raced = race([submitted(condition, timed=True), submitted(condition, name="floor")], events, effort)
        rows.append(
            Row(
                case=CASE,
                name=f"an event, {name}",
                unit="µs per event",
                ours=raced.cost_s["ours"] * 1e6,
                worst=raced.worst_s * 1e6,
                floor=raced.cost_s["floor"] * 1e6,
                ratio=raced.ratio,
                over=UNTIMED,
                target=at_most(1.5, raced.ratio, f"at most 1.5x {UNTIMED}"),
            )
        )
    return rows


def submitted(condition: str, *, name: str = "ours", **members: Any) -> Contestant:
    """Give a detector with one rule, fed as the service feeds it."""
    detector = Detector()
    detector.add_rule("rule 0", condition, **members)

    def run(events: list[Event]) -> list[Any]:
        answers: list[Any] = []
        for batch in batches(events):
            answers += detector.submit_clean(batch).fired
            detector.forget_lookups()
        return answers

    return replace(fed(detector), name=name, run=run)


if __name__ == "__main__":
    import sys
    from tests.bench.measuring.effort import FULL, QUICK
    for key in [k for k in sys.argv[1:] if k in SHAPES] or SHAPES: 
        for keys in (1000,10000):
            SH = SHAPES[key]
            stream = Stream(step_ms=STEP_MS, window_ms=WINDOW_MS, keys=keys)
            e = QUICK
            events = stream.events(e.events, alarming=0.05)
            raced = race([submitted(SH, timed=True), submitted(SH, name="floor")], events, e)
            print(key, keys, round(raced.cost_s["ours"]*1e6,2), round(raced.cost_s["floor"]*1e6,2), "%.2f" % raced.ratio, flush=True)
