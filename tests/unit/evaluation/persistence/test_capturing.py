"""A captured detector: of one moment, whatever the detector does while it is packed."""

import random
import sys
from array import array
from itertools import islice
from threading import Thread
from typing import Any

import pytest

from engine import Detector, Limits
from engine.evaluation.persistence import columns, packing
from engine.evaluation.persistence.capturing import Captured, Guard, capture
from engine.evaluation.persistence.columns import numbers_packed, numbers_unpacked, stamps_unpacked, unpack
from engine.evaluation.persistence.packing import packed
from tests.differential.modes import TRIED, in_mode

CONDITIONS = (
    "once a == 1",
    "a == 2 since b == 1",
    "count(a == 1) > 3",
    "per k once within 4s a == 1",
    "per k historically for 3s strong not a == 1",
    "per k per b once within 2s a == 2",
    "per k (not a == 3 since within 5s b == 2)",
    "per k count(a == 1) > 2",
    "per k distinct(b) within 9s > 2",
    "per k where b > 0 avg(a) within 3s > 1",
)


def fed(detector: Detector, drawn: random.Random, events: int, begin_ms: int) -> None:
    for number in range(events):
        key = drawn.choice((drawn.randrange(40), str(drawn.randrange(40)), True, 10**30, "x" * 300))
        fields = {"k": key, "a": drawn.randrange(4), "b": drawn.randrange(3)}
        detector.evaluate(fields, begin_ms + number * 100)


def contents(data: bytes) -> list[Any]:
    """Return a document, with the slices of each path by key: what has changed meanwhile comes first."""
    document = unpack(data)
    return [{**document, "slices": None}, [_by_key(*row) for row in document["slices"]]]


def _by_key(path: Any, width: int, memories: list[Any], portions: list[Any]) -> list[Any]:
    found: dict[str, Any] = {}
    for keys, seen, entries in portions:
        held: list[Any] = [[stamp] for stamp in stamps_unpacked(seen)]
        for place, (slices, lengths, *parts) in entries.items():
            ends = 0
            for at, slice_number in enumerate(numbers_unpacked(slices)):
                first, ends = ends, ends + (numbers_unpacked(lengths)[at] if lengths else 1)
                held[slice_number].append((place, _cut(parts, first, ends)))
        for key, one in zip(map(repr, keys or [()]), held, strict=True):
            found[key] = sorted(one[1:], key=repr), one[0]
    return [path, width, memories, found]


def _cut(parts: list[Any], first: int, end: int) -> list[Any]:
    return [
        _cut(part, first, end)
        if isinstance(part, list) and len(part) == 2 and isinstance(part[0], bytes)
        else part[first * 8 : end * 8]
        if isinstance(part, bytes)
        else part[first:end]
        for part in parts
    ]


@pytest.fixture
def _in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (packing, "_COPIED"),
        (packing, "_ADDED"),
        (packing, "_SLICES"),
        (columns, "AT_ONCE"),
    ):
        monkeypatch.setattr(module, name, 3)


@pytest.mark.usefixtures("_in_small_pieces")
@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize("keys", [20, 1000])
def test_what_is_captured_changes_no_more(mode: str, keys: int) -> None:
    drawn = random.Random(keys)
    with in_mode(mode):
        detector = Detector(limits=Limits(keys_max=keys))
        for number, condition in enumerate(CONDITIONS):
            detector.add_rule(f"rule {number}", condition)
        fed(detector, drawn, 300, 0)
        expected = detector.dump()
        captured = capture(detector)
        pieces, made = packed(captured), []
        for number, piece in enumerate(pieces):
            made.append(piece)
            if number % 30 == 1:
                fed(detector, drawn, 3, 30_000 + number * 100)
            if number == 100:
                detector.add_rule("one more", "per k once b == 1")
                detector.remove_rule(detector.rules()[3].id)
        for rule in detector.rules()[:3]:
            detector.change_rule(rule.id, name="changed", enabled=False)
        assert len(made) > 200
        assert detector.dump() != expected
        assert contents(b"".join(made)) == contents(expected)


@pytest.mark.usefixtures("_in_small_pieces")
def test_two_captures_at_a_time_each_have_their_own_moment() -> None:
    detector, drawn = Detector(), random.Random(3)
    for condition in CONDITIONS:
        detector.add_rule(condition, condition)
    captures: list[tuple[Any, Any, list[bytes]]] = []
    for begin_ms in (0, 30_000, 60_000):
        fed(detector, drawn, 200, begin_ms)
        captures.append((contents(detector.dump()), packed(capture(detector)), []))
        for _, pieces, made in captures:
            made.extend(islice(pieces, 50))
    for expected, pieces, made in captures:
        fed(detector, drawn, 20, 90_000)
        assert contents(b"".join([*made, *pieces])) == expected


@pytest.mark.storm
def test_a_thread_packs_while_events_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_COPIED", 7)
    detector, made = Detector(), list[bytes]()
    for condition in CONDITIONS:
        detector.add_rule(condition, condition)
    drawn = random.Random(4)
    events = [
        (
            {"k": f"key {drawn.randrange(5_000)}", "a": drawn.randrange(4), "b": drawn.randrange(3)},
            number,
            None,
        )
        for number in range(20_000)
    ]
    detector.evaluate_many(events[:10_000])
    expected = contents(detector.dump())
    pieces = packed(capture(detector))
    thread = Thread(target=lambda: made.extend(pieces))
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        thread.start()
        for first in range(10_000, 20_000, 50):
            detector.evaluate_many(events[first : first + 50])
        thread.join()
    finally:
        sys.setswitchinterval(interval_s)
    assert contents(b"".join(made)) == expected


@pytest.mark.parametrize("fate", ["packed", "packed in part", "dropped"])
def test_no_guard_stays_once_a_capture_has_ended(fate: str) -> None:
    detector = Detector()
    detector.add_rule("r", "per k once a == 1")
    events = [({"k": f"key {number}", "a": 1}, 0, None) for number in range(3_000)]
    detector.evaluate_many(events)
    captured: Captured | None = capture(detector)
    (slices,) = detector.histories.slices.values()
    assert {*map(type, slices.shards)} == {Guard}
    pieces = packed(captured)
    if fate == "packed":
        assert list(pieces)
    elif fate == "packed in part":
        assert all(next(pieces, None) is not None for _ in range(100))
    del captured, pieces
    detector.evaluate_many(events)
    assert {*map(type, slices.shards)} == {dict}
    assert len(slices) == 3_000


def test_a_slice_that_is_deleted_is_kept_before() -> None:
    detector = Detector()
    detector.add_rule("r", "per k once a == 1")
    detector.evaluate({"k": "key", "a": 1}, 0)
    expected, captured = contents(detector.dump()), capture(detector)
    (slices,) = detector.histories.slices.values()
    (guard,) = [shard for shard in slices.shards if shard]
    del guard["key"]
    assert "key" not in guard
    assert contents(b"".join(packed(captured))) == expected


def test_a_capture_is_packed_once() -> None:
    detector = Detector()
    detector.add_rule("r", "per k once a == 1")
    detector.evaluate({"k": 1, "a": 1}, 0)
    captured = capture(detector)
    assert list(packed(captured))
    with pytest.raises(AssertionError, match="once"):
        list(packed(captured))


@pytest.mark.parametrize("count", [1, 16, 17, 4097])
@pytest.mark.parametrize("path", ["per k", "per k per k"])
def test_slices_of_any_number_are_packed_whole(
    count: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "AT_ONCE", 16)
    detector = Detector()
    detector.add_rule("r", f"{path} once a == 1")
    keys = [number if number % 3 else "x" * (300 + number) for number in range(count)]
    detector.evaluate_many([({"k": key, "a": 1}, 0, None) for key in keys])
    loaded = Detector.load(detector.dump(), Detector.STATE_VERSION)
    assert loaded.histories.live == count
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
    detector = Detector()
    for condition in CONDITIONS:
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


@pytest.mark.slow
def test_no_piece_is_large() -> None:
    detector = Detector()
    detector.add_rule("r", "per k once within 1h a == 1")
    detector.add_rule("s", "count(a == 1) > 9999")
    detector.evaluate_many([({"k": f"key {number}", "a": 1}, 0, None) for number in range(30_000)])
    pieces = list(packed(capture(detector)))
    assert max(map(len, pieces)) <= columns.AT_ONCE * 8
    assert b"".join(pieces) == detector.dump()
