"""The members of one fact that are selected by ranges of its value."""

import math
import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, cast

from engine.evaluation.dispatch.compilation.compiler import Observe
from engine.evaluation.dispatch.selection.intervals import Intervals
from engine.evaluation.dispatch.selection.selected_rows import (
    PENDING_MAX,
    Rows,
    SelectedRow,
    SelectedRows,
    Selection,
    member_of,
)
from engine.evaluation.plan.known import Within
from engine.evaluation.plan.triggers import Range
from engine.language.operators import LARGEST

_TEXT_BYTES: Final = 32
"""How many of a text's first bytes tell it from others. A range selects too much rather than too little."""

_NUMBER_BITS: Final = 64
_EXACT_MAX: Final = (1 << 53) - 1
"""The largest whole number up to which no two have the same ordinal."""

_HALF: Final = 1 << 63
_MOST: Final = int(LARGEST)

_pack = struct.Struct("<d").pack
_unpack = struct.Struct("<q").unpack
_pack_text = struct.Struct(f"{_TEXT_BYTES}sB").pack


class Selected(NamedTuple):
    """What an event selects, in the form of a bucket."""

    several: Selection
    pending: tuple[()] = ()
    groups: dict[Any, Any] = {}  # noqa: RUF012 -- it stays empty


class Ranges:
    """The ranges of one fact, each with the member that it selects."""

    __slots__ = ("_numbers", "_pending", "_repeated", "_rows", "_texts")

    def __init__(self, rows: SelectedRows) -> None:
        self._rows = rows
        self._numbers: dict[int, Intervals] = {}
        """The ranges of numbers, by stage."""
        self._texts: dict[int, Intervals] = {}
        self._repeated = 0
        """How many members have several ranges."""
        self._pending: dict[int, tuple[list[Range], int]] = {}
        """The ranges and stages of members that are not compiled yet."""

    def __bool__(self) -> bool:
        return bool(self._numbers or self._texts or self._pending)

    def add(self, ranges: list[Range], member: int, stage: int) -> None:
        """Add all ranges of a member; see `Bucket.add`."""
        self._repeated += len(ranges) > 1
        self._pending[member] = ranges, stage
        if len(self._pending) >= PENDING_MAX:
            self._compile_pending()

    def remove(self, ranges: list[Range], member: int, stage: int) -> None:
        """Undo `add`."""
        self._repeated -= len(ranges) > 1
        if self._pending.pop(member, None) is not None:
            return
        for trigger in ranges:
            by_stage = self._texts if isinstance(trigger.low, str) else self._numbers
            by_stage[stage].remove(ordinal(trigger.low), ordinal(trigger.high), member)
            if not by_stage[stage]:
                del by_stage[stage]

    def met_by(self, value: Any) -> Selected | None:
        """Return what an event with this value of the fact selects, or None."""
        if self._pending:
            self._compile_pending()
        kind = type(value)
        if kind is str:
            by_stage = self._texts
        elif kind is float or (kind is int and -_MOST <= value <= _MOST):
            by_stage = self._numbers
        else:
            return None
        found: dict[int, dict[Observe, Rows]] = {}
        if by_stage:
            number = ordinal(value)
            for stage, intervals in by_stage.items():
                rows = intervals.containing(number)
                if rows:
                    found[stage] = _by_shape(rows if not self._repeated else _each_once(rows))
        return Selected(found) if found else None

    def _compile_pending(self) -> None:
        """Compile the members that are pending."""
        for member, (ranges, stage) in self._pending.items():
            (trigger, *_) = ranges
            exact = _is_exact(trigger.low, -LARGEST) and _is_exact(trigger.high, LARGEST)
            row = self._rows.row(member, Within(*trigger[:3]) if exact else None)
            for trigger in ranges:
                is_text = isinstance(trigger.low, str)
                by_stage = self._texts if is_text else self._numbers
                if stage not in by_stage:
                    by_stage[stage] = Intervals(8 * (_TEXT_BYTES + 1) if is_text else _NUMBER_BITS)
                by_stage[stage].add(ordinal(trigger.low), ordinal(trigger.high), row)
        self._pending.clear()


def _by_shape(rows: Iterable[SelectedRow]) -> dict[Observe, Rows]:
    found: dict[Observe, list[SelectedRow]] = {}
    for row in rows:
        of_shape = found.get(row[-1])
        if of_shape is None:
            found[row[-1]] = [row]
        else:
            of_shape.append(row)
    return cast("dict[Observe, Rows]", found)


def _each_once(rows: list[SelectedRow]) -> Iterable[SelectedRow]:
    return {member_of(row): row for row in rows}.values()


def _is_exact(end: str | float, open_end: float) -> bool:
    """Return whether the ordinals of values tell exactly on which side of an end of a range they are."""
    if isinstance(end, str):
        return len(_encoded(end)) <= _TEXT_BYTES
    return -_EXACT_MAX <= end <= _EXACT_MAX or end == open_end


def _encoded(text: str) -> bytes:
    """Return the first bytes of a text, and one more if there are more."""
    return text[: _TEXT_BYTES + 1].encode("utf-8", "surrogatepass")[: _TEXT_BYTES + 1]


def ordinal(value: str | float) -> int:
    """Return a whole number for a number or a text, in their order. Neighbours may have the same.

    Numbers have that of the nearest double, as 64 bits; texts that of their first bytes as UTF-8, whose order
    is that of the code points, and of how many bytes there are.
    """
    if isinstance(value, str):
        encoded = _encoded(value)
        return int.from_bytes(_pack_text(encoded, len(encoded)))
    try:
        # The sum of -0.0 and 0.0 is 0.0.
        (bits,) = _unpack(_pack(value + 0.0))
    except OverflowError:
        # An integer beyond the doubles counts as infinite.
        (bits,) = _unpack(_pack(math.inf if value > 0 else -math.inf))
    return int(bits + _HALF if bits >= 0 else -1 - bits)
