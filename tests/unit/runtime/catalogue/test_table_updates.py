"""Copies of a table: what its owner tells and what is changed meanwhile come to the same in any order."""

import random
import time
from collections.abc import Callable

import pytest

from engine.runtime.catalogue import catalogue_state
from engine.runtime.catalogue.catalogue_state import (
    CatalogueState,
    DetectorCreated,
    DetectorPurged,
    DetectorRemoved,
)
from engine.runtime.contract.catalogue_changes import UPDATES_MAX, TableUpdate, TableVersions
from engine.runtime.front_end.catalogue_cache import TableCopy
from tests.work_growth import grows_linearly


class Owner:
    """A table with its chronicle."""

    def __init__(self, opening: int = 0) -> None:
        self.table: dict[str, str] = {}
        self.chronicle = TableVersions[str, str](opening)

    def add(self, key: str) -> int:
        self.table[key] = f"value of {key}"
        return self.chronicle.note(key, self.table[key])

    def remove(self, key: str) -> int:
        del self.table[key]
        return self.chronicle.note(key, None)

    def reopened(self, opening: int) -> "Owner":
        owner = Owner(opening)
        owner.table = dict(self.table)
        return owner

    def since(self, seen: int) -> TableUpdate[str, str]:
        return self.chronicle.since(seen, self.table.copy)


def test_who_has_seen_nearly_all_is_told_the_rest_and_others_are_told_all():
    owner = Owner(10)
    assert owner.since(0).whole == {}
    owner.add("a")
    owner.add("b")
    owner.remove("a")
    assert owner.since(0) == TableUpdate(13, whole={"b": "value of b"})
    assert owner.since(9).whole is not None
    assert owner.since(10).changes == [("a", "value of a"), ("b", "value of b"), ("a", None)]
    assert owner.since(12) == TableUpdate(13, changes=[("a", None)])
    assert owner.since(13) == TableUpdate(13)
    assert owner.since(14).whole is not None, "of another time"


def test_what_is_told_one_by_one_is_bounded():
    owner = Owner()
    for number in range(UPDATES_MAX + 1):
        owner.add(str(number))
    assert owner.since(0).whole == owner.table
    assert len(owner.since(1).changes) == UPDATES_MAX


def all_pages(copy: TableCopy[str, str], most: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    while page := copy.page(found[-1][0] if found else None, most):
        assert len(page) <= most
        found += page
    return found


def test_the_work_of_a_page_does_not_grow_with_the_table():
    copies = {}
    for count in (5_000, 20_000):
        owner, copies[count] = Owner(), TableCopy[str, str]()
        for number in range(count + count // 4):
            owner.add(str(number))
        copies[count].take(owner.since(0))
        for number in range(0, count, 4):
            copies[count].note_removed(str(number), owner.remove(str(number)))
    assert grows_linearly(lambda count: all_pages(copies[count], 100), 5_000)


def test_pages_cover_all_entries_once_and_a_page_after_what_is_gone_is_none():
    owner, copy = Owner(), TableCopy[str, str]()
    for key in "abcdefg":
        version = owner.add(key)
    copy.take(owner.since(0))
    for key in "xy":
        version = owner.add(key)
        copy.note_added(key, "value of " + key, version)
    for most in (1, 2, 4, 9, 10):
        assert all_pages(copy, most) == copy.entries() == list(owner.table.items())
    assert copy.page("y", 1) == []
    copy.note_removed("c", owner.remove("c"))
    assert copy.page("c", 1) is None
    assert copy.page("b", 1) == [("d", "value of d")]


@pytest.mark.parametrize("seed", range(60))
def test_copies_come_to_what_the_owner_has_whatever_order_words_and_changes_come_in(seed):
    """Two copies make changes, hear of them late, and ask questions whose answers overtake each other."""
    draw = random.Random(seed)
    owner, copies = Owner(), [TableCopy[str, str](), TableCopy[str, str]()]
    on_the_way: list[tuple[TableCopy[str, str], TableUpdate[str, str]]] = []
    own: list[set[str]] = [set(), set()]
    gone: list[set[str]] = [set(), set()]
    for step in range(120):
        which = draw.randrange(2)
        copy = copies[which]
        match draw.choice(
            ["add", "add", "remove", "ask", "hear", "hear", "reopen" if step % 40 == 7 else "ask"]
        ):
            case "add":
                key = f"k{step}"
                copy.note_added(key, f"value of {key}", owner.add(key))
                own[which].add(key)
            case "remove" if owner.table:
                key = draw.choice(list(owner.table))
                copy.note_removed(key, owner.remove(key))
                own[which].discard(key)
                own[1 - which].discard(key)
                gone[which].add(key)
            case "ask":
                on_the_way.append((copy, owner.since(copy.seen)))
            case "hear" if on_the_way:
                hearer, news = on_the_way.pop(draw.randrange(len(on_the_way)))
                hearer.take(news)
            case "reopen":
                owner = owner.reopened(owner.chronicle.version + 1000)
        for index, one in enumerate(copies):
            assert all(key in one and one.get(key) == f"value of {key}" for key in own[index])
            assert not any(key in one for key in gone[index])
            keys = [int(key[1:]) for key, _ in one.entries()]
            assert keys == sorted(keys), "in the order of creation"
            assert all_pages(one, 1 + step % 3) == one.entries()
    for hearer, news in on_the_way:
        hearer.take(news)
    for copy in copies:
        copy.take(owner.since(copy.seen))
        assert copy.entries() == list(owner.table.items())


def quickest_s(work: Callable[[], None]) -> float:
    times = []
    for _ in range(5):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return min(times)


def a_copy_of(count: int) -> Callable[[], None]:
    owner, copy = Owner(), TableCopy[str, str]()
    for number in range(count):
        owner.add(str(number))
    copy.take(owner.since(0))

    def change() -> None:
        for number in range(200):
            key = f"new {number}"
            copy.note_added(key, "", owner.add(key))
            copy.take(owner.since(copy.seen))
            copy.note_removed(key, owner.remove(key))
            copy.take(owner.since(copy.seen))

    return change


def a_catalogue_of(count: int) -> Callable[[], None]:
    state = CatalogueState(detectors={str(number): "" for number in range(count)})

    def change() -> None:
        for number in range(200):
            for made in (DetectorCreated(f"new {number}", ""), DetectorRemoved(f"new {number}")):
                catalogue_state.apply(made, state)
            catalogue_state.apply(DetectorPurged(f"new {number}"), state)

    return change


@pytest.mark.parametrize("make", [a_copy_of, a_catalogue_of])
def test_a_change_costs_no_more_where_there_are_a_hundred_times_as_many_entries(make):
    assert quickest_s(make(100_000)) < 10 * quickest_s(make(1_000))
