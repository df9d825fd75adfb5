"""Rows: tuples of scalars in the form in which they are looked up.

In a row, texts stand for themselves, and other scalars are parts of keys, so `1` equals `1.0` but neither
`true` nor `"1"`.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from math import isfinite
from typing import Any, Final

from engine.evaluation.facts.values import key_of, part_of_key, scalar_of
from engine.evaluation.key_sizes import key_bytes
from engine.language.condition import Scalar
from engine.language.diagnostics import Entry, Refusal, json_type

Row = tuple[Any, ...]

_TEXTS: Final = frozenset({str})
_SCALARS: Final = frozenset({str, int, float, bool})

_ROW_BYTES: Final = 64
"""What a row takes in the set, besides itself."""


class TupleRefused(Refusal):
    """Error 1001 for a tuple. `index` is its place among those that were given together, from 0."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(Entry(1001, f"tuples[{index}]: {reason}"))
        self.index, self.reason = index, reason

    def __reduce__(self) -> Any:
        """Pickle the place and the reason."""
        return type(self), (self.index, self.reason)


def rows_of(tuples: Iterable[Sequence[Scalar] | Scalar], arity: int | None, first: int = 0) -> list[Row]:
    """Return the rows of tuples, which all have one length: `arity`, if that is known.

    A scalar stands for a tuple of one. Raises TupleRefused, which counts the tuples from `first` on.
    """
    lists = [[one] if isinstance(one, str) or not isinstance(one, Sequence) else one for one in tuples]
    lengths = set(map(len, lists))
    if len(lengths | {arity} - {None}) > 1:
        expected = len(lists[0]) if arity is None else arity
        index = next(index for index, one in enumerate(lists) if len(one) != expected)
        raise TupleRefused(first + index, f"expected a tuple of {expected}, got one of {len(lists[index])}")
    kinds = set(map(type, chain.from_iterable(lists)))
    if kinds <= _TEXTS:
        return list(map(tuple, lists))
    if not kinds <= _SCALARS:
        index, value = next(
            (index, value) for index, one in enumerate(lists) for value in one if type(value) not in _SCALARS
        )
        raise TupleRefused(first + index, f"expected strings, numbers and booleans, got {json_type(value)}")
    if float in kinds:
        for index, one in enumerate(lists):
            if any(type(value) is float and not isfinite(value) for value in one):
                raise TupleRefused(first + index, "expected finite numbers")
    return [tuple([one if type(one) is str else part_of_key(key_of(one)) for one in row]) for row in lists]


def tuple_of(row: Row) -> list[Scalar]:
    """Return the scalars of a row. A whole number is an integer, however it was given."""
    return [scalar_of(part) for part in row]


def row_bytes(row: Row) -> int:
    """Estimate the memory that a row takes in a relation, in bytes. It depends on nothing but the row."""
    return _ROW_BYTES + key_bytes(row)
