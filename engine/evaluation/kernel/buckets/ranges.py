"""The members that are selected by ranges of a fact's value."""

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from engine.evaluation.kernel.buckets.buckets import (
    PENDING_MAX,
    Place,
    RowsByPlace,
    SelectedRow,
    SelectedRows,
    member_of,
)
from engine.evaluation.kernel.buckets.intervals import Intervals
from engine.evaluation.kernel.buckets.triggers import Range
from engine.language.operators import LARGEST

_TEXT_BYTES: Final = 32
"""Texts are distinguished by this many first bytes. A range may select too much, but never too little."""

_NUMBER_BITS: Final = 64
FEW_MAX: Final = 16
"""Comparing a value with this many ranges takes about as long as searching those that contain it."""
_EXACT_MAX: Final = (1 << 53) - 1
"""Up to this size, different integers have different ordinals."""

_HALF: Final = 1 << 63
_MOST: Final = int(LARGEST)

_pack = struct.Struct("<d").pack
_unpack = struct.Struct("<q").unpack
_pack_text = struct.Struct(f"{_TEXT_BYTES}sB").pack


class Ranges:
    """The ranges of one fact, each with its member."""

    __slots__ = ("_numbers", "_pending", "_rows", "_texts")

    def __init__(self, rows: SelectedRows) -> None:
        self._rows = rows
        self._numbers = _OfKind(_NUMBER_BITS)
        self._texts = _OfKind(8 * (_TEXT_BYTES + 1))
        self._pending: dict[int, tuple[list[Range], Place]] = {}
        """The ranges and places of members not yet compiled."""

    def __bool__(self) -> bool:
        return bool(self._numbers or self._texts or self._pending)

    def add(self, ranges: list[Range], member: int, place: Place) -> None:
        """Add all ranges of a member."""
        self._pending[member] = ranges, place
        if len(self._pending) >= PENDING_MAX:
            self._compile_pending()

    def remove(self, ranges: list[Range], member: int, place: Place) -> None:
        """Undo `add`."""
        if self._pending.pop(member, None) is not None:
            return
        for trigger in ranges:
            self._of_kind(trigger).remove(trigger, member, place)

    def select(self, value: Any, found: RowsByPlace) -> None:
        """Add the rows that an event with this value of the fact selects."""
        if self._pending:
            self._compile_pending()
        kind = type(value)
        if kind is str:
            self._texts.select(value, found)
        elif kind is float or kind is int:
            self._numbers.select(value, found)

    def select_any(self, values: Iterable[Any], found: RowsByPlace) -> None:
        """Add the rows that any of these values of a fact of elements selects."""
        if self._pending:
            self._compile_pending()
        numbers, texts = list[Any](), list[Any]()
        for value in values:
            kind = type(value)
            if kind is str:
                texts.append(value)
            elif kind is float or kind is int:
                numbers.append(value)
        self._texts.select_any(texts, found)
        self._numbers.select_any(numbers, found)

    def _of_kind(self, trigger: Range) -> "_OfKind":
        return self._texts if isinstance(trigger.low, str) else self._numbers

    def _compile_pending(self) -> None:
        """Compile the pending members."""
        for member, (ranges, place) in self._pending.items():
            (trigger, *_) = ranges
            exact = _is_exact(trigger.low, -LARGEST) and _is_exact(trigger.high, LARGEST)
            row = self._rows.row(member, trigger if exact else None)
            for trigger in ranges:
                self._of_kind(trigger).add(trigger, place, row)
        self._pending.clear()


class _OfKind:
    """The ranges of numbers, or those of texts: a list while there are few, otherwise intervals."""

    __slots__ = ("_bits", "_few", "_many")

    def __init__(self, bits: int) -> None:
        """`bits` is the maximum number of bits of an ordinal."""
        self._bits = bits
        self._few: list[tuple[Any, Any, Place, SelectedRow]] = []
        self._many: dict[Place, Intervals] = {}

    def __bool__(self) -> bool:
        return bool(self._few or self._many)

    def add(self, trigger: Range, place: Place, row: SelectedRow) -> None:
        self._few.append((trigger.low, trigger.high, place, row))
        if self._many or len(self._few) > FEW_MAX:
            for low, high, its_place, its_row in self._few:
                if its_place not in self._many:
                    self._many[its_place] = Intervals(self._bits)
                self._many[its_place].add(ordinal(low), ordinal(high), its_row)
            self._few.clear()

    def remove(self, trigger: Range, member: int, place: Place) -> None:
        for number, (*_, row) in enumerate(self._few):
            if member_of(row) == member:
                del self._few[number]
                return
        self._many[place].remove(ordinal(trigger.low), ordinal(trigger.high), member)
        if not self._many[place]:
            del self._many[place]

    def select(self, value: Any, found: RowsByPlace) -> None:
        for low, high, place, row in self._few:
            if low <= value <= high:
                rows = found.get(place)
                if rows is None:
                    found[place] = [row]
                else:
                    rows.append(row)
        if self._many:
            number = ordinal(value)
            for place, intervals in self._many.items():
                if rows := intervals.containing(number):
                    found.setdefault(place, []).extend(rows)

    def select_any(self, values: Sequence[Any], found: RowsByPlace) -> None:
        for low, high, place, row in self._few:
            if any(low <= value <= high for value in values):
                found.setdefault(place, []).append(row)
        if self._many:
            numbers = set(map(ordinal, values))
            for place, intervals in self._many.items():
                found.setdefault(place, []).extend(intervals.containing_any(numbers))


def _is_exact(end: str | float, open_end: float) -> bool:
    """Return whether ordinals tell exactly on which side of this end of a range a value is."""
    if isinstance(end, str):
        return len(_encoded(end)) <= _TEXT_BYTES
    return -_EXACT_MAX <= end <= _EXACT_MAX or end == open_end


def _encoded(text: str) -> bytes:
    """Return the first bytes of a text, and one more if it is longer."""
    return text[: _TEXT_BYTES + 1].encode("utf-8", "surrogatepass")[: _TEXT_BYTES + 1]


def ordinal(value: str | float) -> int:
    """Return an integer that sorts like the number or text. Neighbours may have the same one.

    For a number, it consists of the 64 bits of the nearest double. For a text, it consists of the first bytes
    in UTF-8, which sort like the code points, and of their number.
    """
    if isinstance(value, str):
        encoded = _encoded(value)
        return int.from_bytes(_pack_text(encoded, len(encoded)))
    if type(value) is int and not -_MOST <= value <= _MOST:
        # An integer beyond the range of doubles counts as infinite.
        value = math.inf if value > 0 else -math.inf
    # The sum of -0.0 and 0.0 is 0.0.
    (bits,) = _unpack(_pack(value + 0.0))
    return int(bits + _HALF if bits >= 0 else -1 - bits)
