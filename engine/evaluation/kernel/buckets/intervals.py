"""Finds the intervals that contain a number, among many.

Intervals are grouped by length: up to 2, 4, 8 … numbers. A grid of that length divides the numbers into
cells, and an interval is at a node: the border that it crosses, or the middle of the cell that contains it.
All intervals of a node contain one number. Their lower ends tell which of them also contain a smaller number,
their upper ends which contain a larger one. This is an interval tree (Edelsbrunner, 1980) that needs no
balancing, and in which similar intervals are neighbours.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from engine.evaluation.kernel.buckets.buckets import SelectedRow, member_of

_WORD_BITS: Final = 64

_HASHED_MAX: Final = 1 << 60
"""Larger numbers are looked up as bytes, whose hash is not predictable."""

_SMALL_MAX: Final = 2048
_NEIGHBOURS: Final = 32
_ADDED: Final = 8
"""Rows scattered in memory take several times as long to read. So a small list moves all its rows together
whenever their number has doubled; a large list moves some neighbours of every eighth added row."""

Ends: TypeAlias = "array[int] | list[int]"


class _Node:
    """Overlapping intervals, ordered by their lower and by their upper ends."""

    __slots__ = ("by_high", "by_low", "highs", "lows")

    def __init__(self, lows: Ends, highs: Ends) -> None:
        self.lows = lows
        self.by_low: list[SelectedRow] = []
        """The rows in the order of `lows`."""
        self.highs = highs
        self.by_high: list[SelectedRow] = []


class Intervals:
    """Intervals of integers from 0 on, both ends included, each with the row of a member."""

    __slots__ = ("_levels", "_width")

    def __init__(self, bits: int) -> None:
        """`bits` is the maximum number of bits of a number."""
        self._width = bits // 8 + 1
        self._levels: dict[int, dict[int | bytes, _Node]] = {}
        """The nodes by the bits of a cell, and by place: twice the number of a cell, plus 1 for its
        middle."""

    def __bool__(self) -> bool:
        return bool(self._levels)

    def add(self, low: int, high: int, row: SelectedRow) -> None:
        """Add an interval."""
        level, place = self._node(low, high)
        nodes = self._levels.get(level)
        if nodes is None:
            nodes = self._levels[level] = {}
        node = nodes.get(place)
        if node is None:
            node = nodes[place] = _Node(self._no_ends(), self._no_ends())
        _insert(node.lows, node.by_low, low, row)
        _insert(node.highs, node.by_high, high, row)

    def remove(self, low: int, high: int, member: int) -> None:
        """Remove a member's interval."""
        level, place = self._node(low, high)
        nodes = self._levels[level]
        node = nodes[place]
        _delete(node.lows, node.by_low, low, member)
        _delete(node.highs, node.by_high, high, member)
        if not node.lows:
            del nodes[place]
            if not nodes:
                del self._levels[level]

    def containing(self, number: int) -> list[SelectedRow]:
        """Return the rows of the intervals that contain a number."""
        found: list[SelectedRow] = []
        # The loop of `_near`, because through a common function an event takes a tenth longer.
        for level, nodes in self._levels.items():
            place: Any = number >> level << 1
            border, middle, next_border = place, place + 1, place + 2
            if next_border > _HASHED_MAX:
                border, middle, next_border = map(self._hashed, (border, middle, next_border))
            if border in nodes:
                node = nodes[border]
                found += node.by_high[bisect_left(node.highs, number) :]
            if middle in nodes:
                node = nodes[middle]
                if number >> (level - 1) & 1:
                    found += node.by_high[bisect_left(node.highs, number) :]
                else:
                    found += node.by_low[: bisect_right(node.lows, number)]
            if next_border in nodes:
                node = nodes[next_border]
                found += node.by_low[: bisect_right(node.lows, number)]
        return found

    def containing_any(self, numbers: Iterable[int]) -> Iterator[SelectedRow]:
        """Yield the rows of the intervals that contain at least one of some numbers, each once or twice.

        All intervals of a node contain one number. An interval that contains another one also contains those
        between. So of the numbers on each side, the nearest decides.
        """
        firsts: dict[_Node, int] = {}
        counts: dict[_Node, int] = {}
        for number in numbers:
            for node, is_passed in self._near(number):
                if is_passed:
                    first = bisect_left(node.highs, number)
                    firsts[node] = min(first, firsts.get(node, first))
                else:
                    counts[node] = max(bisect_right(node.lows, number), counts.get(node, 0))
        for node, first in firsts.items():
            yield from node.by_high[first:]
        for node, count in counts.items():
            yield from node.by_low[:count]

    def _near(self, number: int) -> Iterator[tuple[_Node, bool]]:
        """Yield the nodes whose intervals may contain a number, and whether their own is at most this one."""
        for level, nodes in self._levels.items():
            place = number >> level << 1
            for each, is_passed in (
                (place, True),
                (place + 1, bool(number >> (level - 1) & 1)),
                (place + 2, False),
            ):
                node = nodes.get(self._hashed(each))
                if node is not None:
                    yield node, is_passed

    def _node(self, low: int, high: int) -> tuple[int, int | bytes]:
        """Return the level and the place of an interval."""
        assert 0 <= low <= high, (low, high)
        level = (high - low).bit_length() or 1
        cell = low >> level
        return level, self._hashed(2 * cell + (1 if high >> level == cell else 2))

    def _hashed(self, place: int) -> int | bytes:
        return place if place <= _HASHED_MAX else place.to_bytes(self._width)

    def _no_ends(self) -> Ends:
        return array("Q") if self._width * 8 <= _WORD_BITS + 8 else []


def _insert(ends: Ends, rows: list[SelectedRow], end: int, row: SelectedRow) -> None:
    place = _place(ends, rows, end, member_of(row))
    ends.insert(place, end)
    rows.insert(place, row)
    count = len(rows)
    if count <= _SMALL_MAX:
        if not count & (count - 1):
            rows[:] = map(_moved, rows)
            if isinstance(ends, list):
                ends[:] = _moved(ends)
    elif not count % _ADDED:
        first, last = max(0, place - _NEIGHBOURS), place + _NEIGHBOURS
        rows[first:last] = map(_moved, rows[first:last])


def _moved(row: Iterable[Any]) -> SelectedRow:
    """Return a copy of a row or of ends, and of their numbers. Copies made together are close in memory."""
    return tuple([each + 0 if type(each) is int or type(each) is float else each for each in row])


def _delete(ends: Ends, rows: list[SelectedRow], end: int, member: int) -> None:
    place = _place(ends, rows, end, member)
    assert member_of(rows[place]) == member, "the interval was added"
    del ends[place]
    del rows[place]


def _place(ends: Ends, rows: list[SelectedRow], end: int, member: int) -> int:
    """Return the place of a member. Members with equal ends are in the order of their numbers."""
    first = bisect_left(ends, end)
    return bisect_left(rows, member, first, bisect_right(ends, end, first), key=member_of)
