"""A relation as stored with a detector: rows, the networks among them, and dicts that never pause.

It is immutable: a change creates another relation, which shares most parts. So a snapshot, a fork or an
explanation keeps a reference without a pause, however large the relation is.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from math import isfinite
from operator import itemgetter
from typing import Any, Final, NamedTuple

from engine.evaluation.facts.relations import network_key
from engine.evaluation.facts.values import key_of, part_of_key, scalar_of
from engine.evaluation.key_sizes import key_bytes
from engine.language.condition import Scalar
from engine.language.diagnostics import Entry, Refusal, json_type
from engine.language.validation.networks import Network, network_of

# -- rows: tuples in the form in which they are looked up ---------------------------------------------------

Row = tuple[Any, ...]

_TEXTS: Final = frozenset({str})
_SCALARS: Final = frozenset({str, int, float, bool})

_ROW_BYTES: Final = 64
"""The size of a row's place in the set."""


class TupleRefused(Refusal):
    """Error 1001 for a tuple. `index` is its place, from 0, among the tuples that were passed together."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(Entry(1001, f"tuples[{index}]: {reason}"))
        self.index, self.reason = index, reason

    def __reduce__(self) -> Any:
        """Pickle the place and the reason."""
        return type(self), (self.index, self.reason)


def rows_of(tuples: Iterable[Sequence[Scalar] | Scalar], arity: int | None, first: int = 0) -> list[Row]:
    """Return the rows of tuples, which must all have one length: `arity`, if known.

    A scalar stands for a tuple of one. Raises TupleRefused, whose index counts from `first`.
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
    """Return the scalars of a row. Whole numbers become integers."""
    return [scalar_of(part) for part in row]


def row_bytes(row: Row) -> int:
    """Return the estimated size of a row in a relation, which depends only on the row."""
    return _ROW_BYTES + key_bytes(row)


# -- dicts in parts -----------------------------------------------------------------------------------------

_SMALL_MAX: Final = 4_096
"""Up to this many entries, there is only one part."""

_PARTS: Final = 256
_SHIFT: Final = 32
"""The part of a key is chosen by other bits of its hash than its place inside."""


class PartedDict:
    """A dict in parts. Its order is that of hashes, which differs between processes."""

    __slots__ = ("_own", "count", "parts")

    def __init__(self) -> None:
        self.count = 0
        self.parts: list[dict[Any, Any]] = [{}]
        self._own = bytearray(b"\1")
        """For each part, whether no copy shares it."""

    def copy(self) -> "PartedDict":
        """Return a copy for writing. This dict must not be written to any more."""
        copied = PartedDict()
        copied.count, copied.parts, copied._own = self.count, self.parts[:], bytearray(len(self.parts))
        return copied

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        parts = self.parts
        return parts[hash((key,)) >> _SHIFT & len(parts) - 1].get(key, default)

    def __contains__(self, key: Hashable) -> bool:
        parts = self.parts
        return key in parts[hash((key,)) >> _SHIFT & len(parts) - 1]

    def __len__(self) -> int:
        return self.count

    def __setitem__(self, key: Hashable, value: Any) -> None:
        part = self._part(key)
        before = len(part)
        part[key] = value
        self.count += len(part) - before
        if self.count > _SMALL_MAX and len(self.parts) == 1:
            self._divide()

    def __delitem__(self, key: Hashable) -> None:
        del self._part(key)[key]
        self.count -= 1

    def _part(self, key: Hashable) -> dict[Any, Any]:
        """Return the part of a key, for writing."""
        number = hash((key,)) >> _SHIFT & len(self.parts) - 1
        if not self._own[number]:
            self.parts[number] = self.parts[number].copy()
            self._own[number] = 1
        return self.parts[number]

    def _divide(self) -> None:
        whole = self.parts[0]
        self.parts = [{} for _ in range(_PARTS)]
        self._own = bytearray(b"\1" * _PARTS)
        for key, value in whole.items():
            self.parts[hash((key,)) >> _SHIFT & _PARTS - 1][key] = value


# -- networks among the tuples ------------------------------------------------------------------------------

NETWORK_BYTES: Final = 128
"""The estimated size of a network."""

_DIGITS: Final = frozenset("0123456789abcdefABCDEF:")


class StoredNetworks:
    """Networks, each with the number of tuples that name it.

    An address costs one look-up for each length that prefixes ever had.
    """

    __slots__ = ("_counts", "_shifts")

    def __init__(self) -> None:
        self._counts = PartedDict()
        self._shifts: set[int] = set()

    def copy(self) -> "StoredNetworks":
        """Return a copy for writing. This object must not be written to any more."""
        copied = StoredNetworks()
        copied._counts, copied._shifts = self._counts.copy(), self._shifts.copy()
        return copied

    def __len__(self) -> int:
        return self._counts.count

    @property
    def parts(self) -> list[dict[Any, Any]]:
        """The dicts of networks."""
        return self._counts.parts

    def add(self, row: Row) -> None:
        """Add a tuple, if it is a network."""
        network = _network(row)
        if network is not None:
            key = network_key(network.key)
            self._counts[key] = self._counts.get(key, 0) + 1
            self._shifts.add(network.shift)

    def remove(self, row: Row) -> None:
        """Undo `add`."""
        network = _network(row)
        if network is not None:
            key = network_key(network.key)
            left = self._counts.get(key) - 1
            if left:
                self._counts[key] = left
            else:
                del self._counts[key]

    def have(self, address: int) -> bool:
        """Return whether an address is in one of them."""
        counts = self._counts
        return any(network_key(address >> shift) in counts for shift in self._shifts)


def _network(row: Row) -> Network | None:
    if len(row) != 1:
        return None
    (text,) = row
    # Most texts are not networks. The first character tells quickly.
    return network_of(text) if type(text) is str and text[:1] in _DIGITS else None


# -- relations ----------------------------------------------------------------------------------------------

CHUNK: Final = 256
"""The maximum number of tuples in a chunk."""

ALL_PLACES: Final = bytes(range(CHUNK))

_NUMBER: Final = itemgetter(0)


class Chunk(NamedTuple):
    """Tuples that were added one after another. A tuple's number is `number * CHUNK` plus its place."""

    number: int
    rows: tuple[Row, ...]
    places: bytes
    """The place of each tuple, ascending. Places of removed tuples stay free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRelation:
    """Tuples of one length, numbered in the order in which they were added."""

    chunks: list[Chunk] = field(repr=False)
    """In order of their numbers. None of them is empty."""
    rows: PartedDict = field(repr=False)
    """The number of the chunk of each tuple."""
    networks: StoredNetworks = field(repr=False)
    bytes: int
    """The estimated size."""
    next_number: int
    """Greater than the number of any tuple that it has or had."""
    changed_ms: float
    """The time of the last change, in milliseconds since 1970."""

    def __len__(self) -> int:
        return self.rows.count

    @property
    def arity(self) -> int | None:
        """The length of its tuples; None if there are none."""
        return len(self.chunks[0].rows[0]) if self.chunks else None

    def pieces(self) -> list[Any]:
        """Return the parts of the relation. An owner that drops them one by one never pauses for long."""
        return [*self.chunks, *self.rows.parts, *self.networks.parts]

    def listed(self) -> Iterator[Row]:
        """Yield the rows in the order in which they were added."""
        for chunk in self.chunks:
            yield from chunk.rows

    def page(self, after: int, limit: int) -> "RelationPage":
        """Return up to `limit` tuples whose numbers are at least `after`."""
        found: list[list[Scalar]] = []
        place = bisect_left(self.chunks, after // CHUNK, key=_NUMBER)
        for chunk in self.chunks[place : place + limit + 1]:
            for row, offset in zip(chunk.rows, chunk.places, strict=True):
                number = chunk.number * CHUNK + offset
                if number < after:
                    continue
                if len(found) == limit:
                    return RelationPage(found, number)
                found.append(tuple_of(row))
        return RelationPage(found, None)


class RelationPage(NamedTuple):
    """Some tuples of a relation, and where the next page begins; None after the last tuple."""

    tuples: list[list[Scalar]]
    next: int | None


class RelationSummary(NamedTuple):
    """The description of a relation in a list."""

    name: str
    tuples: int
    """The number of tuples."""
    arity: int | None
    changed_ms: float
    bytes: int


def without(chunk: Chunk, gone: set[Row]) -> Chunk:
    """Return a chunk without some of its rows."""
    stays = [row not in gone for row in chunk.rows]
    return Chunk(chunk.number, tuple(compress(chunk.rows, stays)), bytes(compress(chunk.places, stays)))


def chunks_by_number(rows: Iterable[tuple[Row, Any]]) -> dict[int, set[Row]]:
    """Group rows by the number of the chunk that comes with each."""
    found: dict[int, set[Row]] = {}
    for row, number in rows:
        found.setdefault(number, set()).add(row)
    return found
