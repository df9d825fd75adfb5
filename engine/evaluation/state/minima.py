"""The least of very many numbers, most of which only ever grow, and grow without saying so."""

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from engine.evaluation.temporal import FOREVER

if TYPE_CHECKING:
    from array import array

PART_BITS: Final = 7
"""So many numbers, as a power of two, are looked through at once: some 5 µs."""

_PART: Final = 1 << PART_BITS
_NONE: Final = (FOREVER, -1)
_DEAD_SHARE: Final = 8
"""So large a share of the heap may be dead: the least of all is found behind no more of it than take 1 ms."""


class Minima:
    """The least numbers of an array, part by part, and the least of all of them.

    What stands here of a part is never above its least number, as long as `changed` tells of each number that
    falls. A number that grows may be told of later, or never: it is looked at again when it seems to be the
    least. So the least is always found, and in constant time where what grows is told of too.

    FOREVER stands for no number at all.
    """

    __slots__ = ("_heap", "_least", "_values")

    def __init__(self, values: "array[int]") -> None:
        self._values = values
        self._least: list[tuple[int, int]] = []
        """Of each part, the least number and its place."""
        self._heap: list[tuple[int, int]] = []
        """The same of all parts, and some that hold no more."""

    def changed(self, place: int) -> None:
        """Take note that the number at a place, which may be past the end by now, is another one."""
        part = place >> PART_BITS
        if part >= len(self._least):
            self._least += [_NONE] * (part + 1 - len(self._least))
        value = self._values[place] if place < len(self._values) else FOREVER
        least, at = self._least[part]
        if value < least:
            self._put(part, (value, place))
        elif at == place and value != least:
            self._look(part)

    def look(self, first: int, until: int) -> None:
        """Take note that all numbers in a range may be others."""
        parts = range(first >> PART_BITS, (until + _PART - 1) >> PART_BITS)
        self._least += [_NONE] * (parts.stop - len(self._least))
        for part in parts:
            self._look(part)

    def least(self) -> tuple[int, int]:
        """Give the least number and its place, the first of several; FOREVER and -1 where there is none."""
        heap, values = self._heap, self._values
        while heap:
            entry = heap[0]
            value, place = entry
            if self._least[place >> PART_BITS] != entry:
                heappop(heap)
            elif values[place] != value:
                self._look(place >> PART_BITS)
            else:
                return entry
        return _NONE

    def _look(self, part: int) -> None:
        """Look a part through."""
        first = part << PART_BITS
        numbers = self._values[first : first + _PART]
        least = min(numbers, default=FOREVER)
        self._put(part, _NONE if least == FOREVER else (least, first + numbers.index(least)))

    def _put(self, part: int, entry: tuple[int, int]) -> None:
        self._least[part] = entry
        if entry == _NONE:
            return
        heappush(self._heap, entry)
        if len(self._heap) > len(self._least) + len(self._least) // _DEAD_SHARE + _PART:
            self._heap = [entry for entry in self._least if entry != _NONE]
            heapify(self._heap)
