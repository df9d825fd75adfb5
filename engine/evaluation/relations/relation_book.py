"""The relations of a detector: storing, changing, deleting and listing them."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from engine.evaluation.relations.builder import RelationBuilder, no_room
from engine.evaluation.relations.stored import RelationPage, RelationSummary, StoredRelation
from engine.evaluation.rules import check_name
from engine.language.condition import Scalar
from engine.language.diagnostics import Entry, Refusal, quoted
from engine.language.limits import Limits

RELATIONS_MAX: Final = 10_000
"""The maximum number of relations of a detector."""

Tuples = Iterable[Sequence[Scalar] | Scalar]


class _Readers(Protocol):
    def relation_changed(self, name: str) -> None:
        """Apply the change of a relation."""


class RelationBook:
    """The relations of one detector. All events after a change see it, and none before."""

    limits: Limits
    rule_set: _Readers
    """Notified of each change."""
    stored: dict[str, StoredRelation]
    """The relations by name."""

    def put_relation(self, name: str, tuples: Tuples, time_ms: float) -> StoredRelation:
        """Store a relation, replacing one with the same name. `time_ms` is the time of the change.

        All tuples have one length; a scalar stands for a tuple of one. Raises TupleRefused, Refusal 1001 for
        an invalid name, and 1400 if there is no room. Then nothing is changed.
        """
        builder = RelationBuilder(self.limits)
        builder.add(tuples)
        relation = builder.built(time_ms)
        self.install_relation(name, relation)
        return relation

    def change_relation(
        self, name: str, add: Tuples = (), remove: Tuples = (), *, time_ms: float
    ) -> StoredRelation:
        """Remove tuples from a relation, then add others, as one change.

        A relation that stays the same keeps the time of its last change. Raises Refusal 1203 if there is no
        such relation, and the errors of `put_relation`.
        """
        before = self.relation(name)
        builder = RelationBuilder(self.limits, before)
        builder.remove(remove)
        builder.add(add)
        relation = builder.built(time_ms)
        if relation.chunks == before.chunks:
            return before
        self.install_relation(name, relation)
        return relation

    def install_relation(self, name: str, relation: StoredRelation) -> None:
        """Store a built relation, in one short step. Raises the errors of `put_relation`."""
        check_name(name)
        before = self.stored.get(name)
        if before is None and len(self.stored) >= RELATIONS_MAX:
            raise Refusal(Entry(1400, f"the detector has {RELATIONS_MAX} relations; limit {RELATIONS_MAX}"))
        less = 0 if before is None else before.bytes
        taken = self.relations_bytes - less + relation.bytes
        # After the bound was lowered, a detector may exceed it, but its relations can still become smaller.
        if relation.bytes > less and taken > self.limits.relations_bytes_max:
            raise no_room(taken, self.limits)
        gone = [] if before is None else before.pieces()
        del before
        self.stored[name] = relation
        self.rule_set.relation_changed(name)
        _drop(gone)

    def delete_relation(self, name: str) -> None:
        """Delete a relation. Raises Refusal 1203 if it does not exist."""
        gone = self.relation(name).pieces()
        del self.stored[name]
        self.rule_set.relation_changed(name)
        _drop(gone)

    def relation(self, name: str) -> StoredRelation:
        """Return a relation, as the base of a RelationBuilder. Raises Refusal 1203."""
        try:
            return self.stored[name]
        except KeyError:
            raise Refusal(Entry(1203, f"there is no relation {quoted(name)} in this detector")) from None

    def relations(self) -> list[RelationSummary]:
        """Return the name and the size of each relation, sorted by name."""
        return [
            RelationSummary(name, len(one), one.arity, one.changed_ms, one.bytes)
            for name, one in sorted(self.stored.items())
        ]

    def relation_page(self, name: str, after: int = 0, limit: int = 100) -> RelationPage:
        """Return up to `limit` tuples in the order in which they were added, and where the next page begins.

        `after` is the `next` of the previous page. A change in the meantime does not skip tuples that stay,
        nor repeat any, unless the relation was replaced. Raises Refusal 1203.
        """
        return self.relation(name).page(after, limit)

    @property
    def relations_bytes(self) -> int:
        """The estimated size of all relations."""
        return sum(relation.bytes for relation in self.stored.values())


def _drop(pieces: list[Any]) -> None:
    """Free a relation that may be large in steps, between which other threads run."""
    while pieces:
        pieces.pop()
