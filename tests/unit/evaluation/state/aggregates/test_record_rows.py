"""Short records in rows: they read as objects do, and are saved and restored as rows."""

import random
from typing import Any

import pytest

from engine import Detector, Limits
from engine.evaluation.persistence.capturing import capture
from engine.evaluation.persistence.packing import packed
from engine.evaluation.state import slices
from engine.evaluation.state.aggregates.values import Values
from engine.evaluation.state.storage import columns, records
from engine.evaluation.state.storage.records import Records

RULES = (
    "per k count(a > 1) within 4s >= 5",
    "per k count(a > 1) == 3",
    "per k count(a > 0) within 20s > 13",
    "per k distinct(v) within 4s > 3",
    "per k distinct(v where a > 1) == 5",
    "per k distinct(v) within 20s >= 15",
    "per k sum(a) within 4s > 6",
    "per k sum(a where a > 1) > 30",
    "per k avg(a) within 20s > 2.5",
    "per k avg(a) > 2.2",
)
PAGED, NEVER_PAGED = 1, 1 << 62


def values(drawn: random.Random) -> Any:
    return drawn.choice(
        (drawn.randrange(30), str(drawn.randrange(30)), True, 1.5, 10**30, "x" * 300, None, [])
    )


def events(seed: int, count: int, begin_ms: int = 0) -> list[tuple[dict[str, Any], float, None]]:
    drawn = random.Random(seed)
    made = []
    for number in range(count):
        # Now and then, so much time passes that all or much has expired.
        begin_ms += drawn.choice((0, 10, 100, 300)) if number % 500 else 30_000
        key = drawn.choice((1, "1", drawn.randrange(300)))
        made.append(({"k": key, "a": drawn.randrange(5), "v": values(drawn)}, begin_ms, None))
    return made


def detector(keys_max: int = 1 << 40) -> Detector:
    made = Detector(limits=Limits(keys_max=keys_max))
    for number, rule in enumerate(RULES):
        made.add_rule(f"r{number}", rule)
    return made


def stores(made: Detector) -> list[Records[Any]]:
    return [store for store in made.state.stores.values() if isinstance(store, Records)]


@pytest.fixture(params=[2, 12], ids=["rows of two", "rows of twelve"])
def paged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(columns, "PAGED_FROM", PAGED)
    monkeypatch.setattr(records, "IN_ROW_MAX", request.param)
    return monkeypatch


@pytest.mark.parametrize("rule", ["count(v >= 0) within 1s > 12", "distinct(v) within 1s > 12"])
def test_a_full_row_keeps_what_is_as_old_as_the_window_is_long(paged: pytest.MonkeyPatch, rule: str) -> None:
    made = Detector()
    made.add_rule("many", f"per k ({rule})")
    for key in range(5):
        made.evaluate({"k": key, "v": 0}, 0)
    for number in range(12):
        assert not made.evaluate({"k": "x", "v": number}, 0 if number < records.IN_ROW_MAX else 1_000)
    assert made.evaluate({"k": "x", "v": 12}, 1_000)


@pytest.mark.parametrize("keys_max", [40, 1 << 40])
def test_rows_read_as_objects_do(paged: pytest.MonkeyPatch, keys_max: int) -> None:
    in_rows, in_objects = detector(keys_max), detector(keys_max)
    in_some_row = in_some_object = False
    names = set()
    for number in range(5):
        some = events(number, 500, number * 100_000)
        paged.setattr(columns, "PAGED_FROM", PAGED)
        fired = in_rows.evaluate_many(some)
        in_some_row = in_some_row or any(store.held > len(store.long) for store in stores(in_rows))
        in_some_object = in_some_object or any(store.few is None and store.long for store in stores(in_rows))
        paged.setattr(columns, "PAGED_FROM", NEVER_PAGED)
        expected = in_objects.evaluate_many(some)
        assert [[rule.name for rule in each] for each in fired] == [
            [rule.name for rule in each] for each in expected
        ]
        names |= {rule.name for each in fired for rule in each}
    assert len(names) >= len(RULES) - 1
    assert in_some_row
    assert in_some_object


def test_what_is_restored_goes_on_as_what_was_saved(paged: pytest.MonkeyPatch) -> None:
    saved = detector(keys_max=200)
    for number in range(5):
        saved.evaluate_many(events(number, 333, number * 60_000))
        document = saved.dump()
        restored = Detector.load(document, Detector.STATE_VERSION, limits=Limits(keys_max=200))
        assert restored.dump() == document
        assert restored.state.bytes == saved.state.bytes
        more = events(number + 100, 200, number * 60_000 + 50_000)
        assert [list(map(str, each)) for each in restored.evaluate_many(more)] == [
            list(map(str, each)) for each in saved.evaluate_many(more)
        ]
        assert restored.state.bytes == saved.state.bytes
        assert restored.dump() == saved.dump()


def many_keys_and_one_that_counted_before(state_bytes_max: int = 1 << 40) -> Detector:
    made = Detector(limits=Limits(state_bytes_max=state_bytes_max))
    made.add_rule("r", "per k count(a == 1) >= 5")
    # When the records come to be in rows, that of the first key has more times than a comparison needs. Then
    # it grows on until it is cut to those that are needed.
    for key in ["first"] * 11 + list(range(1_500)) + ["first"] * 2:
        made.evaluate({"k": key, "a": 1}, 0)
    return made


def test_a_record_that_was_longer_counts_for_the_same_once_it_is_restored() -> None:
    bytes_max = many_keys_and_one_that_counted_before().state.bytes + 1_000
    living = many_keys_and_one_that_counted_before(bytes_max)
    [memory] = stores(living)
    assert memory.few is None
    limits = Limits(state_bytes_max=bytes_max)
    restored = Detector.load(living.dump(), Detector.STATE_VERSION, limits=limits)
    for number in range(10):
        assert restored.state.bytes == living.state.bytes
        assert living.evaluate({"k": "first", "a": 2}, number)
        outcomes = [made.submit({"k": f"new {number}", "a": 1}, number) for made in (living, restored)]
        assert outcomes[0].messages == outcomes[1].messages
        assert [table.keys for table in living.state.tables.values()] == [
            table.keys for table in restored.state.tables.values()
        ]
    assert outcomes[0].messages


def test_what_is_captured_changes_no_more(paged: pytest.MonkeyPatch) -> None:
    made = detector()
    made.evaluate_many(events(1, 1_000))
    captured, expected = capture(made), made.dump()
    made.evaluate_many(events(2, 1_000, 1_000_000))
    assert made.dump() != expected
    assert b"".join(packed(captured)) == expected


@pytest.mark.parametrize("keys", [255, 256, 257])
def test_a_key_that_is_not_known_has_counted_nothing_however_full_the_pages_are(
    paged: pytest.MonkeyPatch, keys: int
) -> None:
    made = Detector()
    for rule in ("count(a == 2) >= 2", "distinct(v) >= 2", "sum(a) >= 4", "avg(a) >= 1"):
        made.add_rule(rule, f"per k ({rule})")
    known = [({"k": key, "a": 2, "v": value}, 0, None) for value in (1, 2) for key in range(keys)]
    assert list(map(len, made.evaluate_many(known))) == [*[1] * keys, *[4] * keys]
    assert all(store.few is None for store in stores(made))
    assert made.evaluate_many([({"k": "another"}, 0, None)]) == [()]


def test_rules_that_are_removed_leave_nothing(paged: pytest.MonkeyPatch) -> None:
    made = detector()
    made.evaluate_many(events(3, 2_000))
    for rule in made.rules():
        made.remove_rule(rule.id)
    assert (made.state.bytes, made.state.live) == (0, 0)


def test_keys_that_expire_leave_nothing_but_the_last_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SWEPT_FROM", 0)
    made = detector()
    many = [({"k": number, "a": 2, "v": f"value {number}"}, 0, None) for number in range(3_000)]
    made.evaluate_many(many)
    [seen, *_] = [store for store in stores(made) if isinstance(store, Values)]
    assert seen._interned is not None
    assert len(seen._interned.values) == 3_000
    for rule in made.rules():
        if "within" not in RULES[int(rule.name[1:])]:
            made.remove_rule(rule.id)
    made.evaluate_many(
        [({"k": "last", "a": 2, "v": "last"}, 60_000 + number, None) for number in range(20_000)]
    )
    assert made.state.live == 1
    assert max(len(store.long) + sum(map(bool, store.counts)) for store in stores(made)) <= 2
    for store in stores(made):
        kept = [row is not store._blank for row in store.rows]
        assert kept == [*map(bool, store.counts), False] if store.few is None else not kept
    assert sum(map(len, seen._interned.shards)) == 1


def test_a_value_is_found_only_where_a_number_begins() -> None:
    # The numbers of values and the bytes of times are chosen so that one stands across two others.
    made = Detector()
    made.add_rule("r", "per k distinct(v) >= 10")
    made.evaluate_many([({"k": number, "v": number}, 0, None) for number in range(70_000)])
    # Value 65536 is 00 00 01 00, which is also the end of a time of 0 and the beginning of value 1.
    said = [0, 1, 2, 256, 65_536, 3, 4, 5, 6, 512]
    fired = made.evaluate_many([({"k": "k", "v": value}, 0, None) for value in said])
    assert [bool(each) for each in fired] == [*[False] * 9, True]
