"""Values of events: which are equal, which keys they have, and what relations hold."""

import itertools
from collections.abc import Container, Iterator
from fractions import Fraction
from time import thread_time
from typing import Any

import pytest

from engine.evaluation.facts.relations import Relations
from engine.evaluation.facts.values import (
    FALSE_KEY,
    KEY_CHARS_MAX,
    TRUE_KEY,
    canonical,
    double,
    equal,
    holds,
    key_of,
    part_of_key,
    scalar_of,
    scaled,
    slice_key_of,
)

PLAIN = 1 << 16
"""Smaller whole numbers are their own keys."""

DECIMAL = 1 << 60
"""Smaller ones have their digits as a key."""

NUMBERS = (0, 1, -1, 1.0, 0.0, -0.0, 1.5, 0.1, 1e300, 5e-324, 2**53 + 1, float(2**53), 10**400)
NUMBERS += tuple(
    sign * number
    for end in (PLAIN, DECIMAL)
    for number in (end - 1, end, end + 1, float(end), 1e22)
    for sign in (1, -1)
)
NUMBERS += (-(10**400), PLAIN + 0.5, 123_456_789.125)
TEXTS = ("", "1", "1.0", "true", "text", "é", "\ud800", "x" * KEY_CHARS_MAX, "x" * (KEY_CHARS_MAX + 1))
SCALARS = (*NUMBERS, *TEXTS, True, False)
OTHERS = (
    *(None, [], [1], [1.0], [True], ["1"], [1, 2], [2, 1], [[1]], [None], [10**5000], [1.0, 10**5000]),
    *({}, {"a": 1}, {"a": 1.0}, {"a": True}, {"b": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": [1.0]}),
)


def plain(value: Any) -> Any:
    """Return a value in a form in which Python compares it as JSON does."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__, value
    if isinstance(value, list):
        return "list", *map(plain, value)
    if isinstance(value, dict):
        return "dict", frozenset((name, plain(each)) for name, each in value.items())
    return "number", Fraction(value)


def test_values_are_equal_if_their_types_and_contents_are() -> None:
    for value, other in itertools.product((*SCALARS, *OTHERS), repeat=2):
        alike = plain(value) == plain(other)
        assert equal(value, other) is alike
        assert (canonical(value) == canonical(other)) is alike
        assert holds([None, other], value) is (alike or value is None)
        assert holds([other], value) is alike
        assert holds(value, other) is (type(value) is list and plain(other) in map(plain, value))


@pytest.mark.parametrize("make", [key_of, slice_key_of, lambda value: part_of_key(key_of(value))])
def test_scalars_have_equal_keys_if_they_are_equal(make: Any) -> None:
    for one, other in itertools.product(SCALARS, repeat=2):
        same = make(one) == make(other)
        assert same is (plain(one) == plain(other))
        assert not same or hash(make(one)) == hash(make(other))
    assert [make(value) for value in (None, [], [1], {})] == [None] * 4


def test_the_key_of_a_number_is_plain_only_where_it_is_small_and_whole() -> None:
    small = [5, 1.0, 1 - PLAIN, PLAIN - 1]
    assert [key_of(number) for number in small] == small
    for number in (PLAIN, -PLAIN, 2 * PLAIN + 1, float(PLAIN), DECIMAL - 1, 1 - DECIMAL):
        assert key_of(number) == b"%d" % int(number)
    for number in (DECIMAL, -DECIMAL, 2 * DECIMAL + 1, float(DECIMAL), 10**4_000, 1e308):
        assert key_of(number) == ("number", hex(int(number)))
    for number in (1.5, -0.1, 5e-324):
        assert type(key_of(number)) is bytes
        assert scalar_of(key_of(number)) == number
    assert [key_of(True), key_of(False), key_of("x")] == [TRUE_KEY, FALSE_KEY, "x"]


def looked_for(number: int, taken: Container[int], mask: int) -> Iterator[int]:
    """Yield the taken places of a dict in which it looks for a number, up to the first free one."""
    place, left = number & mask, number
    while place in taken:
        yield place
        left >>= 5
        place = (place * 5 + left + 1) & mask


@pytest.mark.storm
def test_numbers_for_which_a_dict_looks_in_the_same_places_have_keys_for_which_it_does_not() -> None:
    mask, half = (1 << 13) - 1, 2_000
    # Once the bits of a number are used up, a dict goes through all places in one order.
    order = [0]
    while len(order) < half:
        order.append((order[-1] * 5 + 1) & mask)
    taken = {place: count for count, place in enumerate(order)}
    crafted = []
    for number in range(PLAIN, 16 * PLAIN):
        if number & mask in taken and len(list(looked_for(number, taken, mask))) > half // 2:
            crafted.append(number)
            *_, last = looked_for(number, taken, mask)
            taken[(last * 5 + 1) & mask] = 0
        if len(crafted) == half:
            break
    assert len(crafted) > half // 10
    ordinary = [number + PLAIN for number in range(len(crafted))]

    def seconds(keys: list[Any]) -> float:
        times = []
        for _ in range(7):
            begun = thread_time()
            dict.fromkeys([*order, *keys])
            times.append(thread_time() - begun)
        return min(times)

    assert seconds(crafted) > 5 * seconds(ordinary)
    assert seconds(list(map(key_of, crafted))) < 8 * seconds(list(map(key_of, ordinary)))


def test_the_key_of_a_long_text_is_small_and_a_part_of_a_key_is_bytes() -> None:
    # Snapshots hold keys: with another bound, no event would find those of the texts in between.
    assert KEY_CHARS_MAX == 256
    assert slice_key_of("x" * KEY_CHARS_MAX) == "x" * KEY_CHARS_MAX
    kind, digest = slice_key_of("x" * (KEY_CHARS_MAX + 1))
    assert (kind, len(digest)) == ("text", 64)
    assert [part_of_key(key) for key in (1, -2, 1.0, b"70000", "x", TRUE_KEY, None)] == [
        *(b"1", b"-2", b"1", b"70000", "x", TRUE_KEY, None)
    ]


def test_a_scalar_is_read_back_from_its_key() -> None:
    for value in SCALARS:
        keys = [key_of(value), part_of_key(key_of(value))]
        assert all(plain(scalar_of(key)) == plain(value) for key in keys)


def test_a_number_as_a_double_is_near_it_and_others_have_none() -> None:
    assert [double(value) for value in (1, 1.5, True, "1", None, [1], 10**400)] == [1.0, 1.5, *[None] * 5]
    assert type(double(1)) is float
    assert [scaled(value, 2.0) for value in (3, 1.5, True, 10**400)] == [6.0, 3.0, None, None]


@pytest.mark.parametrize(
    ("sent", "row", "held"),
    [
        ([["a", "b"], ["c", "d"]], ("c", "d"), True),
        ([["a", "b"]], ("b", "a"), False),
        (["a", ["b"]], ("b",), True),
        (["a"], ("a",), True),
        (["a"], ("a", "a"), False),
        ([["a", 1]], ("a", 1.0), True),
        ([["a", 1.0]], ("a", 1), True),
        ([["a", 1.5]], ("a", 1.5), True),
        ([["a", 1]], ("a", True), False),
        ([["a", 1, 1.5, True]], ("a", 1, 1.5, True), True),
        ([[True]], (True,), True),
        ([[True]], (1,), False),
        ([[1], ["1"]], ("1",), True),
        ([[1 << 70]], (1 << 70,), True),
        ([["a", 1], ["b", None]], ("a", 1), False),
        ([["a", [1]]], ("a", 1), False),
        ([["a"]], (None,), False),
        ([[1]], ([1],), False),
        ([[]], (), True),
        ("a", ("a",), False),
        ({"a": 1}, ("a",), False),
        (None, ("a",), False),
    ],
)
def test_a_relation_holds_the_rows_that_were_sent(sent: Any, row: tuple[Any, ...], held: bool) -> None:
    relations = Relations({"r": sent})
    assert [relations.holds("r", *row), relations.holds("r", *row)] == [held, held]
    assert not relations.holds("other", *row)


def test_a_relation_is_read_once_for_an_event() -> None:
    asked = []

    class Sent(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            asked.append(name)
            return super().get(name, default)

    relations = Relations(Sent(r=[["a"]]))
    assert [relations.holds("r", "a"), relations.holds("r", "b"), relations.holds("s", "a")] == [
        True,
        False,
        False,
    ]
    assert not relations.holds("s", "b")
    assert asked == ["r", "s"]
