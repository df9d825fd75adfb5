"""A tournament tree: the minimum of very many numbers, most of which only grow, even unreported."""

from typing import TYPE_CHECKING, Final

from engine.evaluation.times import FOREVER

if TYPE_CHECKING:
    from array import array

PART_BITS: Final = 7
"""The size of a part, as a power of two. Scanning 128 numbers takes about 5 µs."""

_PART: Final = 1 << PART_BITS
_FAN_BITS: Final = 4
_FAN: Final = 1 << _FAN_BITS
"""The number of entries below one entry. A million numbers are 8 192 parts below three levels."""

_NONE: Final = (FOREVER, -1)


class Minima:
    """The minimum of each part of an array, and of the whole array.

    Call `changed` for each number that falls, so that no entry exceeds the minimum of its part. Growth may be
    reported later or never: a number that seems to be the minimum has its part scanned again. If growth is
    reported, too, `least` takes constant time. A scan reads one part and `_FAN` entries of each level,
    whatever the length of the array.

    FOREVER stands for no number.
    """

    __slots__ = ("_least", "_levels", "_values")

    def __init__(self, values: "array[int]") -> None:
        self._values = values
        self._levels: list[list[tuple[int, int]]] = [[]]
        """Level 0 has the minimum of each part with its place, each level above the minima of `_FAN` entries.
        """
        self._least = _NONE

    def changed(self, place: int) -> None:
        """Update the entries for a number that has changed. Its place may be beyond the end of the array."""
        part = place >> PART_BITS
        self._reach(part + 1)
        value = self._values[place] if place < len(self._values) else FOREVER
        least, at = self._levels[0][part]
        if (value, place) < (least, at):
            self._put(part, (value, place))
        elif at == place and value != least:
            self._look(part)

    def least(self) -> tuple[int, int]:
        """Return the minimum and its first place; FOREVER and -1 if there is no number."""
        while self._least != _NONE and self._values[self._least[1]] != self._least[0]:
            self._look(self._least[1] >> PART_BITS)
        return self._least

    def _look(self, part: int) -> None:
        """Scan a part."""
        first = part << PART_BITS
        numbers = self._values[first : first + _PART]
        least = min(numbers, default=FOREVER)
        self._put(part, _NONE if least == FOREVER else (least, first + numbers.index(least)))

    def _put(self, at: int, entry: tuple[int, int]) -> None:
        """Set the entry of a part, and the entries above it that change."""
        for level in self._levels:
            if level[at] == entry:
                return
            level[at] = entry
            at >>= _FAN_BITS
            entry = min(level[at << _FAN_BITS : (at + 1) << _FAN_BITS])
        self._least = entry

    def _reach(self, parts: int) -> None:
        """Extend the levels to this many parts."""
        if parts <= len(self._levels[0]):
            return
        for level in self._levels:
            level.extend([_NONE] * (parts - len(level)))
            parts = (parts + _FAN - 1) >> _FAN_BITS
        while len(top := self._levels[-1]) > _FAN:
            self._levels.append([min(top[first : first + _FAN]) for first in range(0, len(top), _FAN)])
