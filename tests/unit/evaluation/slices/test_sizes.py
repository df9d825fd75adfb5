"""What keys are said to weigh is what they take in memory, within a factor of two."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from engine import Detector, Limits
from engine.evaluation.key_sizes import key_bytes

FACTOR = 2
KEYS = 3_000

UNBOUNDED = Limits(keys_max=1 << 62, state_bytes_max=1 << 62)

Fields = Callable[[int], dict[str, Any]]


def per(names: int) -> str:
    return " ".join(f"per k{number}" for number in range(names))


def parts(names: int, value: Callable[[int, int], Any]) -> Fields:
    return lambda number: {f"k{part}": value(number, part) for part in range(names)}


SHAPES: dict[str, tuple[list[str], Fields, int]] = {
    "short texts": (["per k0 once a == 1"], parts(1, lambda number, _: f"user-{number}"), KEYS),
    "numbers": (["per k0 once a == 1"], parts(1, lambda number, _: number * 10**9), KEYS),
    "long keys": (["per k0 once a == 1"], parts(1, lambda number, _: f"{number:>250}"), KEYS),
    "long keys, not ASCII": (["per k0 once a == 1"], parts(1, lambda number, _: f"{number:Ж>250}"), KEYS),
    "longer texts, kept by their digest": (
        ["per k0 once a == 1"],
        parts(1, lambda number, _: f"{number:>2000}"),
        KEYS,
    ),
    "many members that each remember all keys": (
        [f"per k0 once within {number + 1}h a == 1" for number in range(30)],
        parts(1, lambda number, _: f"user-{number}"),
        KEYS,
    ),
    "many members that each remember few keys": (
        [f"per k0 once within 1h (a == 1 and t == {number})" for number in range(30)],
        lambda number: {"k0": f"user-{number}", "t": number % 90},
        KEYS,
    ),
    "members that change at nearly each event": (
        [f"t == 1 and per k0 once within {number + 1}h not a == 2" for number in range(70)],
        parts(1, lambda number, _: f"user-{number}"),
        KEYS,
    ),
    "members without a place in the lists of slices": (
        [f"per k0 (not a == {number + 2} since a == 1)" for number in range(90)],
        parts(1, lambda number, _: f"user-{number}"),
        400,
    ),
    "records of a few times": (
        ["per k0 count(a == 1) within 1h >= 5"],
        lambda number: {"k0": f"user-{number // 5}"},
        KEYS,
    ),
    "records of many times": (
        ["per k0 count(a == 1) >= 1000"],
        lambda number: {"k0": f"user-{number % 5}"},
        KEYS,
    ),
    "records of one witness": (
        ["per k0 once within [1h, 2h] a == 1"],
        lambda number: {"k0": f"user-{number}"},
        KEYS,
    ),
    "records of a few witnesses": (
        ["per k0 once within [1s, 1004ms] a == 1"],
        lambda number: {"k0": f"user-{number // 5}"},
        KEYS,
    ),
    "records of many witnesses": (
        ["per k0 once within [2560ms, 2570ms] a == 1"],
        lambda number: {"k0": f"user-{number % 5}"},
        KEYS,
    ),
    "times since a reset": (
        ["per k0 count(a == 1) since a == 2 >= 5"],
        lambda number: {"k0": f"user-{number // 5}"},
        KEYS,
    ),
    "records of values": (
        ["per k0 distinct(v) within 1h > 20"],
        lambda number: {"k0": f"user-{number // 30}", "v": f"value {number}"},
        KEYS,
    ),
    "records of many values": (
        ["per k0 distinct(v) within 1h > 900"],
        lambda number: {"k0": f"user-{number % 3}", "v": f"value {number}"},
        KEYS,
    ),
    "records of sums": (
        ["per k0 sum(a) within 1s > 20"],
        lambda number: {"k0": f"user-{number % 10}"},
        KEYS,
    ),
    "records of minima": (
        ["per k0 min(v) within 1s > 20"],
        lambda number: {"k0": f"user-{number % 10}", "v": number + 0.5},
        KEYS,
    ),
    "records of the latest values": (
        ["per k0 last(v) != v"],
        lambda number: {"k0": f"user-{number}", "v": f"value {number}"},
        KEYS,
    ),
    "records of means": (
        ["per k0 avg(a) within 1h > 20"],
        lambda number: {"k0": f"user-{number}"},
        KEYS,
    ),
    "paths of 60 keys": (
        [f"{per(60)} once a == 1"],
        parts(60, lambda number, part: f"{number:Ж>200}{part}"),
        40,
    ),
    "integers of 4 000 digits": (
        [f"{per(10)} once a == 1"],
        parts(10, lambda number, part: 10**3_999 + number * 100 + part),
        100,
    ),
}


def loaded(rules: list[str]) -> Detector:
    detector = Detector(limits=UNBOUNDED)
    for number, rule in enumerate(rules):
        detector.add_rule(f"r{number}", rule)
    return detector


@pytest.mark.storm
@pytest.mark.parametrize("shape", SHAPES)
def test_keys_weigh_what_they_take_in_memory(shape: str) -> None:
    rules, fields, keys = SHAPES[shape]
    detector = loaded(rules)
    # What the rules themselves and the first key bring about is not of the keys.
    detector.evaluate({**fields(keys), "a": 1}, 0)
    before_bytes = detector.histories.bytes
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(keys):
            detector.evaluate({**fields(number), "a": 1}, number)
        gc.collect()
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    said_bytes = detector.histories.bytes - before_bytes
    assert taken_bytes / FACTOR <= said_bytes <= taken_bytes * FACTOR, (said_bytes, taken_bytes)


@pytest.mark.parametrize(
    ("key", "size"),
    [
        ("", 52),
        ("x" * 256, 308),
        ("é" * 10, 86),
        ("ÿ" * 10, 86),
        ("ÿĀ" * 5, 96),
        ("Ж" * 10, 96),
        ("😀" * 10, 116),
        ("x" * 9 + "😀", 116),
        ("x" * 9 + "\uffff", 96),
        ("x" * 9 + "\U00010000", 116),
        ("\ud800", 78),
        (7, 32),
        (7.0, 32),
        (7.5, 32),
        (True, 32),
        (b"12345", 45),
        (("a", 7), 56 + 16 + 53 + 32),
    ],
)
def test_the_weight_of_a_key_is_the_same_everywhere(key: Any, size: int) -> None:
    assert key_bytes(key) == size


KEYED = parts(1, lambda number, _: f"user-{number % 40}")
WEIGHED: dict[str, tuple[list[str], Fields, int]] = {
    "stamps": (["per k0 once a == 1", "per k0 previous a == 2"], KEYED, 100),
    "many stamps": ([f"per k0 once a == {number}" for number in range(20)], KEYED, 100),
    "times": (["per k0 count(a == 1) within 1h >= 5"], KEYED, 100),
    "values": (["per k0 distinct(v) within 1h > 2"], lambda n: {"k0": n % 40, "v": n % 70}, 100),
    "values without a key": (["distinct(v) > 5"], lambda number: {"v": number}, 10),
    "witnesses": (["per k0 once within [100ms, 101ms] a == 1"], KEYED, 200),
    "sums": (["per k0 sum(a) within 1s > 20"], lambda n: {"k0": n % 3}, 300),
}
"""Rules, events, and how many."""


def test_equal_keys_weigh_the_same_in_all_versions_so_that_replays_evict_the_same_ones() -> None:
    weights = {}
    for shape, (rules, fields, events) in WEIGHED.items():
        detector = loaded(rules)
        for number in range(events):
            detector.evaluate({"a": 1, **fields(number)}, number)
        weights[shape] = detector.histories.bytes
    assert weights == {
        "stamps": 11_710,
        "many stamps": 25_790,
        "times": 30_430,
        "values": 32_960,
        "values without a key": 1_224,
        "witnesses": 22_670,
        "sums": 35_592,
    }


def test_equal_values_weigh_the_same_so_that_nothing_is_left_when_they_go() -> None:
    detector = Detector()
    rule_id = detector.add_rule("r", "distinct(v) > 5")
    detector.evaluate({"v": 7}, 0)
    detector.evaluate({"v": 7.0}, 1)
    detector.remove_rule(rule_id)
    assert detector.histories.bytes == 0
