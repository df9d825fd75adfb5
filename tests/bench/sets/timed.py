"""Timed rules beside the same rules untimed: the cost of an event, and of a tick at which many fire.

Rules also fire by time between the events: with a few events of a user in a window, quite often. What fires
at events is the same, timed or not.
"""

import gc
import heapq
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from engine import Detector
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Disagreement, Event, Raced, Verdict, race, submitted
from tests.bench.measuring.rows import Part, Row, at_most
from tests.bench.rules.temporal import Stream

CASE = "timed"
WINDOW_MS: Final = 600_000
STEP_MS: Final = 100
EVENTS_OF_WINDOW: Final = (60, 6)
"""How many events a user has in the window on average."""
MANY: Final = 10
"""How many times as many users there are where there are many."""
STRETCHES: Final = 9
"""The number of parts in which the events of an eighth of a window are timed, if there are many."""
FIRING: Final = 10_000
"""How many fire at a tick."""
UNTIMED: Final = "the same untimed"
EVERY: Final = "the same without `every_secs`"

SHAPES: Final = {
    "not once within": "per user (not once within 10m alarm == 0)",
    "a pair that is not completed": "per user (once within 10m alarm == 1 and not once within 5m calm == 1)",
    "count": "per user count(calm == 1) within 10m >= 3",
    "historically for strong": "per user historically for 10m strong calm == 1",
    "sum": "per user sum(alarm) within 10m > 4",
    "without keys": "not once within 10m alarm == 1",
}
"""Conditions by name."""

AT_MOST_ONCE: Final = {
    "quiet": ("per user once within 10m alarm == 3", 60),
    "held back": ("per user exists user", 1e6),
    "acting": ("per user exists user", 1e-6),
}
"""A condition, and how often it may act at most, by the name of its events."""


def parts(effort: Effort) -> list[Part]:
    """Return a part for each kind of row."""
    measures = {
        "events": measure_events,
        "slices": measure_slices,
        "ticks": measure_ticks,
        "at most once": measure_at_most_once,
    }
    return [Part(CASE, partial(measure, effort), name) for name, measure in measures.items()]


def measure_events(effort: Effort) -> list[Row]:
    """Return the cost of an event where the rule is timed."""
    rows = []
    for count in EVENTS_OF_WINDOW:
        stream = Stream(step_ms=STEP_MS, window_ms=WINDOW_MS, keys=WINDOW_MS // STEP_MS // count)
        events = stream.events(effort.events, alarming=0.05)
        for name, condition in SHAPES.items():
            contestants = [submitted([condition], timed=True), submitted([condition], name="floor")]
            raced = race(contestants, events, effort)
            target = at_most(1.5, raced.ratio, f"at most 1.5x {UNTIMED}")
            what = f"an event, {name}, {count} in a window"
            rows.append(raced.row(CASE, what, "µs each", over=UNTIMED, target=target))
    return rows


def measure_slices(effort: Effort) -> list[Row]:
    """Return the cost of an event where each of very many users has a deadline."""
    users, drawn, condition = MANY * effort.keys, random.Random(effort.keys), SHAPES["not once within"]
    names = [f"user{number}" for number in range(users)]
    contestants = [submitted([condition], timed=True), submitted([condition], name="floor")]
    begins = [({"user": user, "alarm": 0}, n * WINDOW_MS // users, None) for n, user in enumerate(names)]
    for one in contestants:
        one.run(begins)
    count = EVENTS_OF_WINDOW[-1] * users // 8 // STRETCHES
    passes_s: dict[str, list[float]] = {one.name: [] for one in contestants}
    for stretch in range(STRETCHES):
        events: list[Event] = [
            (
                {"user": drawn.choice(names), "alarm": int(drawn.random() < 0.05)},
                WINDOW_MS + (stretch * count + number) * WINDOW_MS // (EVENTS_OF_WINDOW[-1] * users),
                None,
            )
            for number in range(count)
        ]
        answers = []
        gc.collect()
        gc.disable()
        for one in contestants if stretch % 2 else reversed(contestants):
            began_s = time.process_time()
            told = one.run(events)
            passes_s[one.name].append((time.process_time() - began_s) / count)
            answers.append(one.verdicts(told))
        gc.enable()
        if answers[0] != answers[1]:
            raise Disagreement("a timed rule fires at other events than the same untimed")
    raced = Raced(passes_s, {}, {})
    what = f"an event, not once within, of {users} slices, {EVENTS_OF_WINDOW[-1]} in a window"
    target = at_most(1.5, raced.ratio, f"at most 1.5x {UNTIMED}")
    return [raced.row(CASE, what, "µs each", over=UNTIMED, target=target)]


def measure_at_most_once(effort: Effort) -> list[Row]:
    """Return the cost of an event where the rule has `every_secs`."""
    stream = Stream(step_ms=STEP_MS, window_ms=WINDOW_MS, keys=effort.keys_of_stream)
    events = stream.events(effort.events, alarming=0.05)
    rows = []
    for name, (condition, every_secs) in AT_MOST_ONCE.items():
        ours = submitted([condition], every_secs=every_secs)
        floor = submitted([condition], name="floor")
        if name == "held back":
            # With actions held back, only the first event of a user acts.
            ours, floor = (replace(one, verdicts=unseen) for one in (ours, floor))
        raced = race([ours, floor], events, effort)
        rows.append(raced.row(CASE, f"at most once, {name}", "µs each", over=EVERY))
    return rows


def measure_ticks(effort: Effort) -> list[Row]:
    """Return the cost of each firing of one tick."""
    firing = min(FIRING, effort.keys)
    condition = SHAPES["not once within"]
    ours_s, floor_s = [], []
    for _ in range(effort.passes):
        detector = Detector()
        detector.add_rule("rule 0", condition, timed=True)
        heard_us: dict[str, int] = {}
        queue: list[tuple[int, int, str]] = []
        for number in range(firing):
            fields = {"user": f"user{number}", "alarm": 0}
            detector.evaluate(fields, float(number), None)
            heard_us[fields["user"]] = number * 1_000
            heapq.heappush(queue, (number * 1_000 + WINDOW_MS * 1_000, number, fields["user"]))
        until_us = firing * 1_000 + WINDOW_MS * 1_000
        gc.collect()
        began_s = time.process_time()
        fired = detector.tick(until_us)
        ticked_s = time.process_time()
        by_hand = silent(heard_us, queue, until_us)
        floor_s.append((time.process_time() - ticked_s) / firing)
        ours_s.append((ticked_s - began_s) / firing)
        if [(one.time_us, one.keys) for one in fired] != by_hand or len(by_hand) != firing:
            raise Disagreement(f"{len(fired)} fire by time, {len(by_hand)} by hand")
    raced = Raced({"ours": ours_s, "floor": floor_s}, {}, {})
    return [raced.row(CASE, f"a firing, of {firing} at one tick", "µs each", over="a heap by hand")]


def unseen(answers: Sequence[Any]) -> list[Verdict]:
    """Return no verdicts, where contestants need not agree."""
    return [()] * len(answers)


def silent(heard_us: dict[str, int], queue: list[tuple[int, int, str]], until_us: int) -> list[Any]:
    """Return when users have been silent for longer than the window, by hand."""
    fired = []
    while queue and queue[0][0] < until_us:
        due_us, _, user = heapq.heappop(queue)
        if heard_us.get(user) == due_us - WINDOW_MS * 1_000:
            del heard_us[user]
            fired.append((due_us + 1, {"user": user}))
    return fired
