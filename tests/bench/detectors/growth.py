"""A set of rules that grows large: loading it, adding to it, taking it from a dump, and the memory it takes.

What is done to the engine, and what it is compared with, each happens in a process of its own.
"""

import gc
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgpack

from engine import Detector, Limits
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.fresh import call, resident_bytes
from tests.bench.measuring.rows import Part, Row, at_most

CASE = "growth"
BUCKET_RULES = 50
COMPILED_SAMPLE = 5_000
"""Conditions that CPython is given to compile; of more it takes as much longer."""
ADDING_MS_MAX = 20_000
"""What has taken as long is added to no more."""
REPEATED_S_MAX = 10
"""What has taken as long is not measured once more."""
COUNTRIES = tuple(f"C{number}" for number in range(20))


def parts(effort: Effort) -> list[Part]:
    """Give the one part: its figures come out of the same two processes."""
    return [Part(CASE, partial(measure, effort))]


def condition(number: int) -> tuple[str, str]:
    """Give a rule as its text, and as Python would write it."""
    drawn = random.Random(number)
    low, countries = drawn.randrange(1_000), drawn.sample(COUNTRIES, 3)
    kind = f"v{number // BUCKET_RULES}"
    listed = "[" + ", ".join(f'"{country}"' for country in countries) + "]"
    text = f'type == "{kind}" and amount between {low} and {low + 50} and country in {listed}'
    python = f'type == "{kind}" and {low} <= amount <= {low + 50} and country in {listed}'
    if number % 5 == 0:
        past = f'type == "{kind} setup" and code == {number % 7}'
        return f"{text} and once within 10m ({past})", f"{python} and now - latest[{past}] <= 600"
    return text, python


def event(number: int) -> dict[str, Any]:
    """Give the fields of an event that concerns the rules of one bucket."""
    return {"type": f"v{number}", "amount": 10 * number % 1_000, "country": COUNTRIES[number % 20], "code": 1}


def grow(rules: int, adds: int, dump: str) -> dict[str, float]:
    """Load rules from their texts, then add to them one at a time; leave a dump of the loaded ones."""
    before_bytes = resident_bytes()
    limits = Limits(rules_max=rules + adds)
    detector = Detector(limits=limits)
    started_s = time.perf_counter()
    for number in range(rules):
        detector.add_rule(f"rule {number}", condition(number)[0])
    detector.evaluate(event(0), 0.0, None)
    loaded_s = time.perf_counter() - started_s
    taken_bytes = resident_bytes() - before_bytes
    Path(dump).write_bytes(detector.dump())
    added_ms = []
    for number in range(rules, rules + adds):
        text, fields = condition(number)[0], event(number % max(1, rules // BUCKET_RULES))
        started_s = time.perf_counter()
        detector.add_rule(f"rule {number}", text)
        detector.evaluate(fields, number, None)
        added_ms.append((time.perf_counter() - started_s) * 1e3)
        if sum(added_ms) > ADDING_MS_MAX:
            break
    return {
        "loaded_s": loaded_s,
        "taken_bytes": taken_bytes,
        "add_ms": statistics.median(added_ms),
        "add_longest_ms": max(added_ms),
        "adds": len(added_ms),
    }


def load(dump: str) -> dict[str, float]:
    """Take the rules from a dump."""
    data = Path(dump).read_bytes()

    def once() -> None:
        Detector.load(data, Detector.STATE_VERSION).evaluate(event(0), 0.0, None)

    return {"loaded_s": _median_s(once)}


def _median_s(act: Callable[[], object]) -> float:
    """Give the median of three times, or of fewer where they take long."""
    took_s: list[float] = []
    while len(took_s) < 3 and sum(took_s) < REPEATED_S_MAX:
        gc.collect()
        started_s = time.perf_counter()
        act()
        took_s.append(time.perf_counter() - started_s)
    return statistics.median(took_s)


def compile_in_python(rules: int) -> dict[str, float]:
    """Have CPython compile the conditions, as a yardstick for reading and compiling them."""
    sample = [condition(number)[1] for number in range(min(rules, COMPILED_SAMPLE))]
    took_ms = []
    for python in sample:
        started_s = time.perf_counter()
        compile(python, "rule", "eval")
        took_ms.append((time.perf_counter() - started_s) * 1e3)
    return {"loaded_s": sum(took_ms) / len(sample) * rules / 1e3, "add_ms": statistics.median(took_ms)}


def unpack(rules: int) -> dict[str, float]:
    """Take conditions from msgpack as plain documents: a yardstick for a dump, and for rules' memory."""
    documents = {f"{number:032x}": _document(number) for number in range(rules)}
    data = msgpack.packb(documents)
    del documents
    before_bytes = resident_bytes()
    documents = msgpack.unpackb(data)
    taken_bytes = resident_bytes() - before_bytes
    del documents
    return {"loaded_s": _median_s(lambda: msgpack.unpackb(data)), "taken_bytes": taken_bytes}


def _document(number: int) -> dict[str, Any]:
    drawn = random.Random(number)
    low, countries = drawn.randrange(1_000), drawn.sample(COUNTRIES, 3)
    leaves: list[dict[str, Any]] = [
        {"leaf": {"fact": "type", "op": "eq", "value": f"v{number // BUCKET_RULES}"}},
        {"leaf": {"fact": "amount", "op": "between", "value": [low, low + 50]}},
        {"leaf": {"fact": "country", "op": "in", "value": countries}},
    ]
    return {"name": f"rule {number}", "condition": {"all": leaves}}


def measure(effort: Effort) -> list[Row]:
    """Give what it costs to load the rules, to add one more, and to keep them."""
    rules = effort.growth_rules
    with TemporaryDirectory(prefix="bench-") as folder:
        dump = str(Path(folder) / "dump")
        grown = call(__name__, "grow", rules=rules, adds=effort.growth_adds, dump=dump)
        loaded = call(__name__, "load", dump=dump)
    compiled = call(__name__, "compile_in_python", rules=rules)
    unpacked = call(__name__, "unpack", rules=rules)
    add, longest = (
        Row(
            case=CASE,
            name=f"one more than {rules} rules, and an event, {which}",
            unit="ms",
            ours=ms,
            floor=compiled["add_ms"],
            ratio=ms / compiled["add_ms"],
            over="CPython's compile",
            target=at_most(5, ms, "at most 5 ms"),
            tolerance=tolerance,
            remark=f"{grown['adds']:.0f} adds",
        )
        for which, ms, tolerance in (
            ("median", grown["add_ms"], 0.25),
            ("worst", grown["add_longest_ms"], 2.0),
        )
    )
    return [
        add,
        longest,
        Row(
            case=CASE,
            name=f"{rules} rules from text",
            unit="s",
            ours=grown["loaded_s"],
            floor=compiled["loaded_s"],
            ratio=grown["loaded_s"] / compiled["loaded_s"],
            over="CPython's compile",
            target=at_most(60, grown["loaded_s"], "at most 60 s"),
        ),
        Row(
            case=CASE,
            name=f"{rules} rules from a dump",
            unit="s",
            ours=loaded["loaded_s"],
            floor=unpacked["loaded_s"],
            ratio=loaded["loaded_s"] / unpacked["loaded_s"],
            over="msgpack's documents",
            target=at_most(60, loaded["loaded_s"], "at most 60 s"),
        ),
        Row(
            case=CASE,
            name=f"memory of {rules} rules",
            unit="KB a rule",
            ours=grown["taken_bytes"] / rules / 1e3,
            floor=unpacked["taken_bytes"] / rules / 1e3,
            ratio=grown["taken_bytes"] / unpacked["taken_bytes"],
            over="msgpack's documents",
        ),
    ]
