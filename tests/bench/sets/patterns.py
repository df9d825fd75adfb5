"""Many patterns on one text: rules that each look for something of their own in the same command line."""

import random
import statistics
import time
from functools import partial
from typing import Any

import re2

from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Condition, Contestant, Event, detector_with, ours, race
from tests.bench.measuring.rows import Part, Row, at_most

CASE = "patterns"
TEXT_CHARS = (200, 5_000)
ADDS = 15


def parts(effort: Effort) -> list[Part]:
    """Give a part for each length of text, and one for adding a pattern."""
    lengths = [Part(CASE, partial(measure, chars, effort), f"{chars} characters") for chars in TEXT_CHARS]
    return [*lengths, Part(CASE, partial(measure_adding, effort), "adding")]


def pattern(number: int) -> str:
    """Give a pattern of the kind that detections have: a literal, or literals with something in between."""
    match number % 4:
        case 0:
            return f"tool{number}[.]exe"
        case 1:
            return f"module{number} +-enc"
        case 2:
            return f"(fetch|load)-item{number}\\b"
        case _:
            return f"host{number}[0-9]+:443"


def _found(number: int) -> str:
    match number % 4:
        case 0:
            return f"tool{number}.exe"
        case 1:
            return f"module{number}  -enc"
        case 2:
            return f"load-item{number}"
        case _:
            return f"host{number}7:443"


def texts(rules: int, chars: int, count: int) -> list[Event]:
    """Give events with command lines of about `chars` characters, in half of which something is found."""
    drawn = random.Random(chars)
    events: list[Event] = []
    for place in range(count):
        starts = drawn.choices(("arg", "tool", "path", "host"), k=chars // 11)
        words = [f"{start}{drawn.randrange(10**6, 10**7)}" for start in starts]
        if drawn.random() < 0.5:
            words[drawn.randrange(len(words))] = _found(drawn.randrange(rules))
        events.append(({"cmdline": " ".join(words)}, place, None))
    return events


def _set_of(patterns: list[str]) -> Any:
    made = re2.Set.SearchSet()
    for each in patterns:
        made.Add(each)
    made.Compile()
    return made


def floor(patterns: list[str]) -> Contestant:
    """One set of all patterns, made by hand."""
    found_in = _set_of(patterns).Match

    def run(events: list[Event]) -> list[Any]:
        # Where it finds nothing it gives None.
        return [found_in(fields["cmdline"]) or () for fields, _, _ in events]

    return Contestant("floor", run)


def condition(number: int) -> str:
    """Give the rule with the pattern of this number."""
    return f"cmdline matches '{pattern(number)}'"


def measure(chars: int, effort: Effort) -> list[Row]:
    """Give the cost of an event, in microseconds."""
    count = effort.pattern_rules
    rules: list[Condition] = [condition(number) for number in range(count)]
    # Texts are long, and the same ones over and over would be the cache's; so there are fewer of them.
    events = texts(count, chars, min(effort.events, 6_000))
    contestants = [ours(rules), floor([pattern(number) for number in range(count)])]
    raced = race(contestants, events, effort)
    cost_us = {name: cost_s * 1e6 for name, cost_s in raced.cost_s.items()}
    return [
        Row(
            case=CASE,
            name=f"{count} patterns, {chars} characters",
            unit="µs per event",
            ours=cost_us["ours"],
            worst=raced.worst_s * 1e6,
            floor=cost_us["floor"],
            ratio=raced.ratio,
            target=at_most(2, raced.ratio, "at most 2x floor"),
        )
    ]


def measure_adding(effort: Effort) -> list[Row]:
    """Give what one more pattern and the event after it cost, in milliseconds."""
    count = effort.pattern_rules
    detector = detector_with([condition(number) for number in range(count)])
    fields, _, _ = texts(count, TEXT_CHARS[0], 1)[0]
    patterns = [pattern(number) for number in range(count)]
    detector.evaluate(fields, 0.0, None)
    took_s: dict[str, list[float]] = {"ours": [], "floor": []}
    for number in range(count, count + ADDS):
        started_s = time.perf_counter()
        detector.add_rule(f"rule {number}", condition(number))
        detector.evaluate(fields, 0.0, None)
        took_s["ours"].append(time.perf_counter() - started_s)
        patterns.append(pattern(number))
        started_s = time.perf_counter()
        _set_of(patterns).Match(fields["cmdline"])
        took_s["floor"].append(time.perf_counter() - started_s)
    cost_ms = {name: statistics.median(each) * 1e3 for name, each in took_s.items()}
    return [
        Row(
            case=CASE,
            name=f"one more than {count} patterns, and an event",
            unit="ms",
            ours=cost_ms["ours"],
            worst=max(took_s["ours"]) * 1e3,
            floor=cost_ms["floor"],
            ratio=cost_ms["ours"] / cost_ms["floor"],
            target=at_most(5, cost_ms["ours"], "at most 5 ms"),
        )
    ]
