"""A captured detector: of one moment, whatever the detector does while it is packed."""

import random
import sys
from array import array

import pytest
from engine.evaluation.dispatch import rule_set
from engine.evaluation.state.storage import columns

from engine import Detector, Limits
from engine.evaluation.persistence import packing
from engine.evaluation.persistence.capturing import _at, capture
from engine.evaluation.persistence.packing import numbers_packed, numbers_unpacked, packed
from tests.differential import fused

CONDITIONS = (
    "once a == 1",
    "a == 2 since b == 1",
    "per k once within 4s a == 1",
    "per k historically for 3s strong not a == 1",
    "per k per b once within 2s a == 2",
    "per k (not a == 3 since within 5s b == 2)",
)


def fed(detector: Detector, drawn: random.Random, events: int, begin_ms: int) -> None:
    for number in range(events):
        key = drawn.choice((drawn.randrange(40), str(drawn.randrange(40)), True, 10**30, "x" * 300))
        fields = {"k": key, "a": drawn.randrange(4), "b": drawn.randrange(3)}
        detector.evaluate(fields, begin_ms + number * 100)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("keys", [3, 1000])
def test_what_is_captured_changes_no_more(
    monkeypatch: pytest.MonkeyPatch, indexed: bool, paged: bool, keys: int
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(2 if indexed else 32))
    monkeypatch.setattr(packing, "_KEYS", 7)
    if paged:
        monkeypatch.setattr(columns, "PAGED_FROM", 0)
        monkeypatch.setattr(columns, "SPARSE_SHARE", 1 << 40)
    drawn = random.Random(keys)
    detector = Detector(limits=Limits(keys_max=keys))
    for number, condition in enumerate(CONDITIONS):
        detector.add_rule(f"rule {number}", condition)
    fed(detector, drawn, 300, 0)
    captured, expected = capture(detector), detector.dump()
    fed(detector, drawn, 300, 30_000)
    detector.add_rule("one more", "per k once b == 1")
    for rule in detector.rules()[:3]:
        detector.change_rule(rule.id, name="changed", enabled=False)
    fed(detector, drawn, 50, 60_000)
    assert detector.dump() != expected
    assert b"".join(packed(captured)) == expected


@pytest.mark.parametrize("count", [1, 15, 16, 17, 4095, 4096, 4097, 4111, 4112, 4113])
@pytest.mark.parametrize("path", ["per k", "per k per k"])
def test_tables_of_any_size_are_packed_whole(count: int, path: str) -> None:
    detector = Detector()
    detector.add_rule("r", f"{path} once a == 1")
    keys = [number if number % 3 else "x" * (300 + number) for number in range(count)]
    detector.evaluate_many([({"k": key, "a": 1}, 0, None) for key in keys])
    loaded = Detector.load(detector.dump(), Detector.STATE_VERSION)
    assert loaded.state.live == count
    assert all(loaded.evaluate_many([({"k": key, "a": 0}, 1, None) for key in keys]))
    assert loaded.evaluate_many([({"k": "another", "a": 0}, 1, None)]) == [()]


@pytest.mark.parametrize("order", ["little", "big"])
def test_numbers_have_the_same_bytes_on_every_machine(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = array("q", [1, -2])
    if order != sys.byteorder:
        held.byteswap()
    before = held[:]
    monkeypatch.setattr(sys, "byteorder", order)
    assert numbers_packed(held) == bytes([1, *[0] * 7, 0xFE, *[0xFF] * 7])
    assert held == before, "what the detector holds does not change"
    assert numbers_unpacked(numbers_packed(held)) == held


def test_a_machine_with_another_byte_order_loads_what_it_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "PAGED_FROM", 2)
    detector = Detector()
    for condition in (*CONDITIONS, "per k sum(a) within 3s > 2"):
        detector.add_rule(condition, condition)
    fed(detector, random.Random(1), 100, 0)
    expected = detector.dump()
    monkeypatch.setattr(sys, "byteorder", {"little": "big", "big": "little"}[sys.byteorder])
    other = detector.dump()
    assert len(other) == len(expected)
    assert other != expected
    loaded = Detector.load(other, Detector.STATE_VERSION)
    monkeypatch.undo()
    assert loaded.dump() == expected


def test_no_piece_is_large() -> None:
    detector = Detector()
    detector.add_rule("r", "per k once within 1h a == 1")
    detector.evaluate_many([({"k": f"key {number}", "a": 1}, 0, None) for number in range(30_000)])
    pieces = list(packed(capture(detector)))
    assert max(map(len, pieces)) <= packing._NUMBERS * 8
    assert b"".join(pieces) == detector.dump()


@pytest.mark.parametrize("paged", [False, True])
def test_a_fork_has_the_keys_of_its_events_and_no_others(
    monkeypatch: pytest.MonkeyPatch, paged: bool
) -> None:
    if paged:
        monkeypatch.setattr(columns, "PAGED_FROM", 1)
    made = Detector()
    for rule in ("per k once a == 1", "per $k once a == 1", "per k once a == 2"):
        made.add_rule(rule, rule)
    for key in range(5):
        made.evaluate({"k": key, "a": 1}, 0, {"k": f"sent {key}"})
    made.add_rule("late", "per k once a == 3")
    events = [({"k": 3}, 1, {"k": "sent 4"}), ({"k": "new"}, 1, None)]
    fork = made.fork(events)
    assert [[key for key in table.keys if key is not None] for table in fork.state.tables.values()] == [
        [3],
        ["sent 4"],
    ]
    assert [column.held for table in fork.state.tables.values() for column in table.columns] == [1, 0, 0, 1]
    for path, table in made.state.tables.items():
        own = fork.state.tables[path]
        assert list(own.seen) == [table.seen[slot] for slot in (3, 4) if table.keys[slot] in own.keys]
        assert [each.complete_at for each in own.columns] == [each.complete_at for each in table.columns]
    expected = [["per k once a == 1", "per $k once a == 1"], []]
    for each in (fork, made):
        assert [[rule.name for rule in fired] for fired in each.evaluate_many(events)] == expected


def test_what_is_kept_by_slot_moves_with_the_slots_that_are_copied() -> None:
    entries = {3: "x", 5: "y"}
    assert _at(entries, {5: 0, 7: 1}) == {0: "y"}
    assert _at(entries, None) == entries
    assert _at(entries, None) is not entries
