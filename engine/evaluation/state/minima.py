"""The least of very many numbers, most of which only grow, and without notice: a tournament tree."""

from typing import TYPE_CHECKING, Final

from engine.evaluation.temporal import FOREVER

if TYPE_CHECKING:
    from array import array

PART_BITS: Final = 7
"""The size of a part, as a power of two: looking through 128 numbers takes some 5 µs."""

_PART: Final = 1 << PART_BITS
_FAN_BITS: Final = 4
_FAN: Final = 1 << _FAN_BITS
"""So many entries have one above them: a million numbers are 8 192 parts below three levels."""

_NONE: Final = (FOREVER, -1)


class Minima:
    """The least numbers of an array, part by part, and the least of all of them.

    The entry of a part is never above its least number, as long as `changed` is called for each number that
    falls. A number that grows may be reported later, or never: it is looked at again when it seems to be the
    least. So the least is always found, and in constant time if what grows is reported too. No call does more
    than look through one part and `_FAN` entries of each level, however many numbers there are.

    FOREVER stands for no number at all.
    """

    __slots__ = ("_least", "_levels", "_values")

    def __init__(self, values: "array[int]") -> None:
        self._values = values
        self._levels: list[list[tuple[int, int]]] = [[]]
        """The least number of each part and its place; above, the least of each `_FAN` entries below."""
        self._least = _NONE

    def changed(self, place: int) -> None:
        """Take note that the number at a place, which may be past the end by now, is another one."""
        part = place >> PART_BITS
        self._reach(part + 1)
        value = self._values[place] if place < len(self._values) else FOREVER
        least, at = self._levels[0][part]
        if value < least:
            self._put(part, (value, place))
        elif at == place and value != least:
            self._look(part)

    def look(self, first: int, until: int) -> None:
        """Take note that all numbers in a range may be others."""
        parts = range(first >> PART_BITS, (until + _PART - 1) >> PART_BITS)
        self._reach(parts.stop)
        for part in parts:
            self._look(part)

    def least(self) -> tuple[int, int]:
        """Give the least number and its place, the first of several; FOREVER and -1 where there is none."""
        while self._least != _NONE and self._values[self._least[1]] != self._least[0]:
            self._look(self._least[1] >> PART_BITS)
        return self._least

    def _look(self, part: int) -> None:
        """Look a part through."""
        first = part << PART_BITS
        numbers = self._values[first : first + _PART]
        least = min(numbers, default=FOREVER)
        self._put(part, _NONE if least == FOREVER else (least, first + numbers.index(least)))

    def _put(self, at: int, entry: tuple[int, int]) -> None:
        """Set the entry of a part, and those above it as far as they change."""
        for level in self._levels:
            if level[at] == entry:
                return
            level[at] = entry
            at >>= _FAN_BITS
            entry = min(level[at << _FAN_BITS : (at + 1) << _FAN_BITS])
        self._least = entry

    def _reach(self, parts: int) -> None:
        """Have an entry for so many parts."""
        if parts <= len(self._levels[0]):
            return
        for level in self._levels:
            level.extend([_NONE] * (parts - len(level)))
            parts = (parts + _FAN - 1) >> _FAN_BITS
        while len(top := self._levels[-1]) > _FAN:
            self._levels.append([min(top[first : first + _FAN]) for first in range(0, len(top), _FAN)])
