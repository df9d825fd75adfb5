"""Buckets that are met again and again are united, which nobody can tell from the answers."""

import random
from collections.abc import Collection, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from engine import Detector
from engine.evaluation.dispatch import rule_set
from engine.evaluation.kernel.selection import selected_rows
from engine.evaluation.kernel.selection.selected_rows import Unions
from engine.evaluation.state.storage import columns
from engine.evaluation.state.storage.columns import ColumnTable
from engine.evaluation.state.storage.slots import triggering
from engine.evaluation.state.storage.slots.triggering import (
    TriggeringColumns,
    TriggeringStores,
    WatchedColumns,
)
from tests.differential import fused

COUNT = 12
KINDS = 3


def condition(number: int, *, keyed: bool = True) -> str:
    slice_of = "per user " if keyed else ""
    return f"{slice_of}count(kind == {number % KINDS}) within {10 + number}s >= {1 + number % 4}"


def detector(*, indexed: bool, keyed: bool = True) -> Detector:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_set, "index_pays", fused.up_to(0 if indexed else 10**9))
        made = Detector()
        for number in range(COUNT):
            made.add_rule(f"rule {number}", condition(number, keyed=keyed), rule_id=f"{number:032x}")
    assert made.state.indexed is indexed
    return made


def table_of(made: Detector) -> ColumnTable:
    [table] = made.state.tables.values()
    return table


def events(count: int, users: int, seed: int = 1) -> list[tuple[dict[str, Any], int]]:
    drawn = random.Random(seed)
    return [
        ({"kind": drawn.randrange(KINDS), "user": f"u{drawn.randrange(users)}"}, 100 * number)
        for number in range(count)
    ]


def play(made: Detector, happened: list[tuple[dict[str, Any], int]], start_ms: int = 0) -> list[list[str]]:
    return [
        [action["name"] for action in made.evaluate(fields, start_ms + time_ms)]
        for fields, time_ms in happened
    ]


@pytest.fixture
def always_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_set, "index_pays", lambda weights, *, indexed: indexed)


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.usefixtures("always_indexed")
def test_a_rule_that_is_added_or_removed_changes_the_union(*, keyed: bool) -> None:
    plain, united = (detector(indexed=indexed, keyed=keyed) for indexed in (False, True))
    holder = (lambda: table_of(united).triggering[0]) if keyed else (lambda: united.state.globals.triggering)
    start_ms = 0
    for step in range(4):
        happened = events(60, users=2, seed=step)
        assert play(united, happened, start_ms) == play(plain, happened, start_ms)
        assert holder().union is not None
        start_ms += 6_000
        for made in (plain, united):
            if step % 2:
                made.add_rule("new", condition(step, keyed=keyed), rule_id=f"{100 + step:032x}")
            else:
                made.remove_rule(f"{step:032x}")
        assert holder().union is None


@pytest.mark.usefixtures("always_indexed")
def test_a_rule_that_shares_its_memory_leaves_the_union() -> None:
    made = detector(indexed=True)
    made.add_rule("twin", condition(0), rule_id="f" * 32)
    said = [{"kind": number % KINDS, "user": "u"} for number in range(30)]
    assert ["rule 0", "twin"] in play(made, [(fields, 0) for fields in said[:1]])
    play(made, [(fields, 0) for fields in said])
    assert table_of(made).triggering[0].union is not None
    made.remove_rule("f" * 32)
    assert "rule 0" in play(made, [(said[0], 0)])[0]


class Bucket:
    """Unites nothing but names."""

    def __init__(self, name: str) -> None:
        self.name = name

    def unite(self, buckets: Iterable[Any], keeper: object) -> "Bucket":
        assert isinstance(keeper, TriggeringColumns | TriggeringStores | WatchedColumns)
        return Bucket("".join(bucket.name for bucket in buckets))


def names(met: Iterable[Any]) -> list[str]:
    return [bucket.name for bucket in met]


def test_the_columns_of_a_slice_are_united_once_several_events_have_met_them() -> None:
    columns_of = [SimpleNamespace(bucket=Bucket(name)) for name in "abcdefghijklm"]
    slice_ = TriggeringColumns()

    def met() -> list[str]:
        return names(slice_.meet())

    for column in columns_of[:7]:
        slice_.append(column)
    assert [met() for _ in range(9)] == [[*"abcdefg"]] * 9
    slice_.append(columns_of[7])
    assert [met() for _ in range(5)] == [*[[*"abcdefgh"]] * 3, ["abcdefgh"], ["abcdefgh"]]
    slice_.append(columns_of[8])
    assert met() == ["abcdefgh", "i"]
    slice_.remove(columns_of[8])
    assert met() == ["abcdefgh"]
    for column in columns_of[9:11]:
        slice_.append(column)
    assert met() == ["abcdefghjk"]
    for column in columns_of[11:]:
        slice_.append(column)
    assert met() == ["abcdefghjk", "l", "m"]
    for column in columns_of[10:]:
        slice_.remove(column)
    assert [met() for _ in range(4)] == [*[[*"abcdefghj"]] * 3, ["abcdefghj"]]
    slice_.remove(columns_of[0])
    assert met() == [*"bcdefghj"]


def test_memories_without_keys_are_united_once_several_events_have_met_them() -> None:
    stores = TriggeringStores()
    for store in range(8):
        stores.start(store, Bucket("abcdefgh"[store]))
    assert [names(stores.meet()) for _ in range(4)] == [*[[*"abcdefgh"]] * 3, ["abcdefgh"]]
    united = stores.union
    stores.stop(8)
    assert [*stores.meet()] == [united]
    stores.start(8, Bucket("i"))
    assert [names(stores.meet()) for _ in range(4)] == [*[[*"abcdefghi"]] * 3, ["abcdefghi"]]
    stores.stop(8)
    assert names(stores.meet()) == [*"abcdefgh"]


class Column:
    """Has events of some slots meet a bucket."""

    def __init__(self, name: str, slots: Collection[int]) -> None:
        self.bucket = Bucket(name)
        self.slots = slots

    def triggers_at(self, slot: int) -> bool:
        return slot in self.slots


def test_paged_columns_are_united_if_enough_of_them_are_met_by_most_events() -> None:
    sparse, *dense = [Column("a", range(9)), *(Column(name, range(6, 16)) for name in "bcdefghi")]
    watched = WatchedColumns()

    def count(columns_of: Iterable[Column]) -> None:
        for each in columns_of:
            watched.append(each)
        for slot in range(15):
            watched.meet_at(slot)

    count([*dense[:7], sparse])
    assert names(watched.meet_at(15)) == [*"bcdefgh"]
    assert watched.union is None
    count([dense[7]])
    assert names(watched.meet_at(15)) == ["bcdefghi"]
    assert names(watched.meet_at(1)) == ["a", "bcdefghi"]
    watched.remove(sparse)
    assert names(watched.meet_at(6)) == [*"bcdefghi"]
    count([])
    assert names(watched.meet_at(1)) == ["bcdefghi"]
    watched.remove(dense[0])
    assert names(watched.meet_at(1)) == []


def test_it_is_counted_now_and_then_which_columns_are_dense() -> None:
    columns_of = [Column(name, ()) for name in "abcdefgh"]
    watched = WatchedColumns()
    for each in columns_of:
        watched.append(each)

    def met(events: int) -> list[int]:
        return [len(watched.meet_at(1)) for _ in range(events)]

    assert met(16) == [0] * 16
    for each in columns_of:
        each.slots = [1]
    assert met(256) == [*[8] * 255, 1]
    union = watched.union
    assert met(256) == [1] * 256
    assert watched.union is union
    columns_of[0].slots = ()
    assert met(256) == [*[1] * 255, 7]
    assert watched.union is None


def test_paged_memories_that_most_slices_hold_are_met_without_asking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns, "PAGED_FROM", 2)
    monkeypatch.setattr(triggering, "COUNTED_EVERY", 17)
    made, plain = detector(indexed=True), detector(indexed=False)
    happened = events(408, users=20)
    assert play(made, happened) == play(plain, happened)
    watched = table_of(made).watched
    assert len(watched) == COUNT
    assert watched.union is not None
    # From here on none counts as dense.
    monkeypatch.setattr(triggering, "DENSE_SHARE", 1.1)
    plain.evaluate({"kind": 7, "user": "u1"}, 40_000)
    more = events(400, users=20, seed=2)
    assert play(made, more, 40_000) == play(plain, more, 40_000)
    assert watched.union is None


def test_unions_have_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selected_rows, "UNITED_MAX", 3 * (COUNT + selected_rows.UNION_ROWS))
    made, plain = detector(indexed=True), detector(indexed=False)
    happened = events(600, users=8)
    assert play(made, happened) == play(plain, happened)
    united = [slice_ for slice_ in table_of(made).triggering.values() if slice_.union is not None]
    # Each has at least eight rows, and only the last one may pass the bound.
    assert 1 <= len(united) <= 4


HALF = (1 << 16) - 16
"""Two unions of this many rows take as much as all may."""


class Keeper:
    """Tells whether its union was dropped."""

    union: object = None

    def disturb(self) -> None:
        self.union = None


def test_few_unions_are_made_once_all_are_too_large() -> None:
    unions, keepers = Unions(), [Keeper() for _ in range(3)]
    first, second, third = keepers

    def add(keeper: Keeper, rows: int) -> bool:
        if not unions.make_room():
            return False
        unions.add(keeper, rows)
        keeper.union = "union"
        return True

    def kept() -> list[bool]:
        return [keeper.union is not None for keeper in keepers]

    assert add(first, HALF)
    assert add(second, HALF - 1)
    assert add(second, HALF)
    assert [add(third, 1) for _ in range(63)] == [False] * 63
    assert kept() == [True, True, False]
    assert add(third, HALF)
    assert kept() == [True, False, True]
    assert not add(second, 1)
    # Those that their keepers have dropped make room.
    third.disturb()
    assert add(second, 1 << 18)
    assert not add(third, 1)
    assert kept() == [True, True, False]
    unions.drop()
    assert kept() == [False, False, False]
    unions.drop()
    assert add(third, HALF)
    assert add(first, HALF)
    assert not add(second, 1)
