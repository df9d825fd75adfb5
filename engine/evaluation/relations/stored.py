"""A relation as it is stored with a detector.

It never changes: a change makes another one, which shares most of it. So a snapshot, a fork or an explanation
just keeps it, however large it is, and nothing pauses for them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import compress
from operator import itemgetter
from typing import Any, Final, NamedTuple

from engine.evaluation.relations.networks import StoredNetworks
from engine.evaluation.relations.parts import PartedDict
from engine.evaluation.relations.rows import Row, tuple_of
from engine.language.condition import Scalar

CHUNK: Final = 256
"""The most tuples of a chunk."""

ALL_PLACES: Final = bytes(range(CHUNK))

_NUMBER: Final = itemgetter(0)


class Chunk(NamedTuple):
    """Tuples that were added one after another. The number of a tuple is `number * CHUNK` and its place."""

    number: int
    rows: tuple[Row, ...]
    places: bytes
    """The place of each, ascending. Those of removed tuples are free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRelation:
    """Tuples of one length, numbered in the order in which they were added."""

    chunks: list[Chunk] = field(repr=False)
    """In order of their numbers. None is empty."""
    rows: PartedDict = field(repr=False)
    """The number of the chunk that has a tuple, by tuple."""
    networks: StoredNetworks = field(repr=False)
    bytes: int
    """The estimated memory that it takes."""
    next_number: int
    """More than the number of any tuple that it has, or had."""
    changed_ms: float
    """When it was changed last, in milliseconds since 1970."""

    def __len__(self) -> int:
        return self.rows.count

    @property
    def arity(self) -> int | None:
        """The length of its tuples; None if there are none."""
        return len(self.chunks[0].rows[0]) if self.chunks else None

    def listed(self) -> Iterator[Row]:
        """Yield the rows in the order in which they were added."""
        for chunk in self.chunks:
            yield from chunk.rows

    def page(self, after: int, limit: int) -> "RelationPage":
        """Return up to `limit` tuples with numbers from `after` on."""
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
    """Some tuples of a relation, and where the next page begins: None after the last one."""

    tuples: list[list[Scalar]]
    next: int | None


class RelationSummary(NamedTuple):
    """What a list of relations says about each."""

    name: str
    tuples: int
    """How many there are."""
    arity: int | None
    changed_ms: float
    bytes: int


def without(chunk: Chunk, gone: set[Row]) -> Chunk:
    """Return a chunk without some of its rows."""
    stays = [row not in gone for row in chunk.rows]
    return Chunk(chunk.number, tuple(compress(chunk.rows, stays)), bytes(compress(chunk.places, stays)))


def chunks_by_number(rows: Iterable[tuple[Row, Any]]) -> dict[int, set[Row]]:
    """Return sets of rows by the number of the chunk that comes with each."""
    found: dict[int, set[Row]] = {}
    for row, number in rows:
        found.setdefault(number, set()).add(row)
    return found
