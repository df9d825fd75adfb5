"""What has expired goes, a little at each event, and its memory is given back."""

import sys
from typing import Any

import pytest

from engine import Detector
from engine.evaluation.slices.bounds import eviction
from engine.evaluation.slices.bounds.eviction import LOOKED_AT, LOOKED_EVERY
from tests.differential.modes import in_mode


@pytest.fixture(autouse=True)
def _swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few slices there are, expired ones are looked for."""
    monkeypatch.setattr(eviction, "SWEPT_FROM", 0)


def detector(*rules: str) -> Detector:
    made = Detector()
    for number, rule in enumerate(rules):
        made.add_rule(f"r{number}", rule)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "rule", "remembers", "forgets"),
    [
        ("fused", "per k once within 1s a == 1", {"a": 1}, {"a": 0}),
        ("indexed", "per k (a == 1 since within 1s b == 1)", {"a": 1, "b": 1}, {"a": 1, "b": 0}),
        ("indexed", "per k distinct(a) within 1s > 3", {"a": 1}, {}),
        ("fused", "per k sum(a where a > 0) within 1s > 10", {"a": 1}, {}),
    ],
)
def test_memory_is_bounded_by_the_keys_active_within_the_window(
    mode: str, rule: str, remembers: dict[str, int], forgets: dict[str, int]
) -> None:
    with in_mode(mode):
        made = detector(rule)
        most = 0
        for begin_ms in range(0, 15_000, 50):
            made.evaluate_many(
                [({"k": time_ms, **remembers}, time_ms, None) for time_ms in range(begin_ms, begin_ms + 50)]
            )
            most = max(most, made.histories.live)
        # In a second there are 1 000. A sweep looks at a shard for every 32 events.
        assert most <= 12_000
        made.evaluate_many([({"k": "other", **forgets}, time_ms, None) for time_ms in range(15_000, 30_000)])
    assert made.histories.live <= 1
    assert made.histories.bytes < 1_000


def test_however_many_slices_expire_at_once_one_event_drops_few_of_them() -> None:
    made = detector("per k once within 1s a == 1")
    made.evaluate_many([({"k": number, "a": 1}, 0, None) for number in range(20_000)])
    dropped = []
    for _ in range(10_000):
        before = made.histories.live
        made.evaluate({"k": -1, "a": 1}, 10_000)
        dropped.append(before - made.histories.live)
    assert LOOKED_AT // 2 < max(dropped) <= LOOKED_AT
    assert made.histories.live == 1


def test_the_shards_of_slices_shrink_as_slices_expire() -> None:
    made = detector("per k once within 1s a == 1")
    made.evaluate_many([({"k": f"key {number}", "a": 1}, 0, None) for number in range(20_000)])
    (slices,) = made.histories.slices.values()
    before = max(map(sys.getsizeof, slices.shards))
    made.evaluate_many([({"k": "last", "a": 1}, 10_000, None)] * 10_000)
    assert made.histories.live == 1
    assert max(map(sys.getsizeof, slices.shards)) < 1_000 < before


def test_an_entry_that_has_expired_goes_though_its_slice_stays() -> None:
    made = detector("per k once b == 1", "per k count(a == 1) within 1s >= 5")
    made.evaluate_many([({"k": key, "a": 1, "b": 1}, 0, None) for key in range(200)])
    full = made.histories.bytes
    made.evaluate_many([({}, 2_000, None)] * (2 * 251 * LOOKED_EVERY * eviction.SETTLED_EVERY))
    assert made.histories.live == 200
    assert made.histories.bytes < full / 2


def test_expired_entries_go_as_fast_as_slices_do_though_their_slices_stay() -> None:
    made = detector("per k once b == 1", "per k count(a == 1) within 1s >= 5")
    made.evaluate_many([({"k": key, "a": 1, "b": 1}, 0, None) for key in range(20_000)])
    full = made.histories.bytes
    made.evaluate_many([({}, 2_000, None)] * 12_000)
    assert made.histories.bytes < full / 2


@pytest.mark.parametrize(
    "key_of",
    [
        lambda number: number,
        lambda number: 251 * number,
        lambda number: 256 * number,
        lambda number: -65_536 * number,
        lambda number: number << 41,
        lambda number: 65_521 * number,
        lambda number: (number << 20) + 2**59,
        lambda number: number + 0.5,
        lambda number: number / 1_024,
        lambda number: number * 2.0**-40,
        lambda number: f"user-{number:07d}",
        lambda number: str(number << 8),
        lambda number: str(number)[::-1] + "x" * 300,
    ],
)
@pytest.mark.parametrize("path", ["per k", "per j per k"])
def test_no_shard_has_many_times_its_share_of_the_keys(key_of: Any, path: str) -> None:
    """A dict that grows moves as a whole, which takes the longer the larger it is."""
    made = detector(f"{path} once a == 1")
    made.evaluate_many([({"k": key_of(number), "j": 1, "a": 1}, 0, None) for number in range(1, 2_001)])
    (slices,) = made.histories.slices.values()
    assert len(slices) == 2_000
    # Whole numbers of up to 16 bits are their own hashes, so as many multiples may be in one.
    most = 65_536 // len(slices.shards) + 1
    assert max(map(len, slices.shards)) <= most + 3 * 2_000 / len(slices.shards)


@pytest.mark.parametrize("mode", ["fused", "indexed"])
@pytest.mark.parametrize("counts", ["count(a > 0)", "distinct(a)"])
@pytest.mark.parametrize(
    "late", ["", "added after them", "gone before the next event"], ids=["one rule", "younger", "removed"]
)
def test_a_record_that_has_expired_begins_anew_though_nothing_has_swept_it(
    late: str, counts: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else its size would depend on where the sweep stands, and so would what is evicted."""
    monkeypatch.setattr(eviction, "SWEPT_FROM", 1 << 62)
    condition = f"per k {counts} within {{}}s >= 50"
    with in_mode(mode):
        made, fresh = detector(condition.format(1)), detector(condition.format(1))
        other = made.add_rule("other", condition.format(90)) if late.startswith("gone") else ""
        made.evaluate_many([({"k": "A", "a": number}, 0, None) for number in range(1, 40)])
        assert made.histories.bytes > 2 * fresh.histories.bytes
        if late.startswith("added"):
            made.add_rule("other", condition.format(90))
        elif other:
            made.remove_rule(other)
        for one in (made, fresh):
            one.evaluate({"k": "A", "a": 1}, 1_001)
    assert made.histories.bytes == fresh.histories.bytes > 0
