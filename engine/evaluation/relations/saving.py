"""Relations in a saved state: chunk by chunk, so that the numbers that pages go by stay the same.

A relation is [name, when it was changed, length of its tuples (0 if there are none), next number, chunks],
and a chunk [number, places, scalars]: those of all its tuples, one after another.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from engine.evaluation.facts.values import scalar_of
from engine.evaluation.relations.builder import RelationBuilder
from engine.evaluation.relations.rows import rows_of
from engine.evaluation.relations.stored import Chunk, StoredRelation
from engine.language.limits import Limits


def relations_packed(stored: Mapping[str, StoredRelation], pack: Any) -> Iterator[bytes]:
    """Yield the relations as an array, in pieces of a chunk, each made by the packer `pack`."""
    yield pack.pack_array_header(len(stored))
    for name, relation in stored.items():
        head = [name, relation.changed_ms, relation.arity or 0, relation.next_number]
        yield pack.pack_array_header(len(head) + 1) + b"".join(map(pack.pack, head))
        yield pack.pack_array_header(len(relation.chunks))
        for number, rows, places in relation.chunks:
            yield pack.pack([number, places, [scalar_of(part) for row in rows for part in row]])


def relations_unpacked(saved: list[Any], limits: Limits) -> dict[str, StoredRelation]:
    """Return the relations of such an array. Bounds that were lowered since then do not matter."""
    stored: dict[str, StoredRelation] = {}
    for name, changed_ms, arity, next_number, chunks in saved:
        builder = RelationBuilder(limits)
        for number, places, scalars in chunks:
            parts = iter(scalars)
            tuples = list(zip(*[parts] * arity, strict=True)) if arity else [()]
            builder.restore(Chunk(number, tuple(rows_of(tuples, arity)), places))
        stored[name] = builder.built(changed_ms, next_number)
    return stored
