"""Builds a relation from pieces, independently of its detector; also from a saved state."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from engine.evaluation.facts.values import scalar_of
from engine.evaluation.relations.stored import (
    ALL_PLACES,
    CHUNK,
    NETWORK_BYTES,
    Chunk,
    PartedDict,
    Row,
    StoredNetworks,
    StoredRelation,
    chunks_by_number,
    row_bytes,
    rows_of,
    without,
)
from engine.language.condition import Scalar
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

RELATION_BYTES: Final = 2_048
"""The estimated size of a relation without its tuples."""


class RelationBuilder:
    """Builds a relation, or another version of one: call `add` and `remove` with pieces, then `built`.

    Nothing else sees it in the meantime, so any thread may build. A piece of a thousand tuples takes about
    two milliseconds. After an exception, the builder must not be used.
    """

    def __init__(self, limits: Limits, base: StoredRelation | None = None) -> None:
        self._limits = limits
        if base is None:
            self._rows, self._networks = PartedDict(), StoredNetworks()
            self._chunks: list[Chunk] = []
            self._bytes, self._next = RELATION_BYTES, 0
            self._arity: int | None = None
        else:
            self._rows, self._networks = base.rows.copy(), base.networks.copy()
            self._chunks = base.chunks[:]
            self._bytes, self._next, self._arity = base.bytes, base.next_number, base.arity
        self._given = 0

    def add(self, tuples: Iterable[Sequence[Scalar] | Scalar]) -> None:
        """Add tuples; ones that exist already change nothing. A scalar stands for a tuple of one.

        Raises TupleRefused for a tuple of a different length, or with a value that is not a scalar, and
        Refusal 1400 if the relation exceeds the detector's limits.
        """
        rows = self._rows
        coming = [row for row in self._taken(tuples) if row not in rows]
        if not coming:
            return
        self._count(coming)
        self._append(coming)
        self._check()

    def remove(self, tuples: Iterable[Sequence[Scalar] | Scalar]) -> None:
        """Remove tuples; ones that do not exist change nothing. Raises TupleRefused like `add`."""
        rows = self._rows
        going = {row: rows.get(row) for row in self._taken(tuples) if row in rows}
        networks_before = len(self._networks)
        for row in going:
            del rows[row]
            self._networks.remove(row)
        self._bytes -= sum(map(row_bytes, going)) + (networks_before - len(self._networks)) * NETWORK_BYTES
        emptied = False
        for number, gone in chunks_by_number(going.items()).items():
            place = bisect_left(self._chunks, number, key=lambda chunk: chunk.number)
            self._chunks[place] = without(self._chunks[place], gone)
            emptied = emptied or not self._chunks[place].rows
        if emptied:
            self._chunks = [chunk for chunk in self._chunks if chunk.rows]
        if not self._chunks:
            self._arity = None

    def restore(self, chunk: Chunk) -> None:
        """Add the next chunk of a saved relation."""
        self._count(chunk.rows)
        for row in chunk.rows:
            self._rows[row] = chunk.number
        self._chunks.append(chunk)

    def built(self, changed_ms: float, next_number: int | None = None) -> StoredRelation:
        """Return the relation, with the time of its change. The builder must not be used any more.

        `next_number` is that of a saved relation.
        """
        return StoredRelation(
            chunks=self._chunks,
            rows=self._rows,
            networks=self._networks,
            bytes=self._bytes,
            next_number=self._next if next_number is None else next_number,
            changed_ms=changed_ms,
        )

    def _taken(self, tuples: Iterable[Sequence[Scalar] | Scalar]) -> dict[Row, None]:
        """Return the rows of tuples, without duplicates."""
        rows = rows_of(tuples, self._arity, self._given)
        self._given += len(rows)
        return dict.fromkeys(rows)

    def _count(self, coming: Sequence[Row]) -> None:
        """Add the size of rows, and the networks among them."""
        self._arity = len(coming[0])
        networks_before = len(self._networks)
        for row in coming:
            self._networks.add(row)
        self._bytes += sum(map(row_bytes, coming)) + (len(self._networks) - networks_before) * NETWORK_BYTES

    def _append(self, coming: list[Row]) -> None:
        """Put rows into chunks; the first ones into the last chunk if it has room."""
        left = iter(coming)
        number, place = divmod(self._next, CHUNK)
        while some := (*islice(left, CHUNK - place),):
            for row in some:
                self._rows[row] = number
            self._next += len(some)
            places = ALL_PLACES[place : place + len(some)]
            if self._chunks and self._chunks[-1].number == number:
                last = self._chunks.pop()
                some, places = last.rows + some, last.places + places
            self._chunks.append(Chunk(number, some, places))
            number, place = divmod(self._next, CHUNK)

    def _check(self) -> None:
        limits = self._limits
        if len(self._rows) > limits.relation_tuples_max:
            raise Refusal(Entry(1400, f"the relation has more than {limits.relation_tuples_max} tuples"))
        if self._bytes > limits.relations_bytes_max:
            raise no_room(self._bytes, limits)


def no_room(taken: int, limits: Limits) -> Refusal:
    """Return the Refusal 1400 for relations that take too much memory."""
    most = f"limit {limits.relations_bytes_max} (--max-relations-bytes)"
    return Refusal(Entry(1400, f"the relations of the detector take {taken} bytes; {most}"))


# -- saved states -------------------------------------------------------------------------------------------


def relations_packed(stored: Mapping[str, StoredRelation], pack: Any) -> Iterator[bytes]:
    """Yield the relations as an array, in pieces of a chunk. `pack` is the packer."""
    yield pack.pack_array_header(len(stored))
    for name, relation in stored.items():
        head = [name, relation.changed_ms, relation.arity or 0, relation.next_number]
        yield pack.pack_array_header(len(head) + 1) + b"".join(map(pack.pack, head))
        yield pack.pack_array_header(len(relation.chunks))
        for number, rows, places in relation.chunks:
            yield pack.pack([number, places, [scalar_of(part) for row in rows for part in row]])


def relations_unpacked(saved: list[Any], limits: Limits) -> dict[str, StoredRelation]:
    """Undo `relations_packed`. Bounds that were lowered since then do not apply."""
    stored: dict[str, StoredRelation] = {}
    for name, changed_ms, arity, next_number, chunks in saved:
        builder = RelationBuilder(limits)
        for number, places, scalars in chunks:
            parts = iter(scalars)
            tuples = list(zip(*[parts] * arity, strict=True)) if arity else [()]
            builder.restore(Chunk(number, tuple(rows_of(tuples, arity)), places))
        stored[name] = builder.built(changed_ms, next_number)
    return stored
