"""The buckets of conditions on whether a fact is in a stored relation, or in a network of one.

The buckets of rules do not depend on the tuples of relations. If a relation has few tuples, an event finds
the buckets by the value of the fact, however many relations there are; otherwise it searches the relation.
"""

from collections.abc import Mapping
from typing import Any, Final

from engine.evaluation.facts.relations import address
from engine.evaluation.facts.values import key_of, part_of_key
from engine.evaluation.kernel.buckets.buckets import Bucket
from engine.evaluation.kernel.buckets.triggers import NETWORKS, Related

FEW_MAX: Final = 1_000
"""Relations with more tuples are not listed by value, because each change would list them anew."""


class _Asking:
    """The buckets for one relation and shape: with the fact and the literals at the same places of tuples."""

    __slots__ = ("buckets", "listed", "relation", "shape")

    def __init__(self, trigger: Related) -> None:
        self.relation, self.shape = trigger.relation, trigger.shape
        self.buckets: dict[Any, Bucket] = {}
        """The buckets by literals."""
        self.listed: dict[Any, dict[Any, None]] | None = None
        """For each value of the fact, the literals of the tuples that have it. None if there are many
        tuples."""

    def list_tuples(self, stored: Any) -> None:
        """List the tuples of the relation, which is None if not stored."""
        self.listed = None
        if stored is None or (self.shape != NETWORKS and len(stored) <= FEW_MAX):
            self.listed = {}
            for row in () if stored is None else stored.listed():
                if len(row) == self.shape[0]:
                    literals = tuple([row[place] for place in self.shape[2]])
                    self.listed.setdefault(row[self.shape[1]], {})[literals] = None


class RelatedBuckets:
    """The buckets of one fact. `stored` has the detector's relations by name."""

    __slots__ = ("_by_value", "_many", "_of_relation", "_stored")

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._stored = stored
        self._of_relation: dict[str, dict[Any, _Asking]] = {}
        """All buckets, by relation and shape."""
        self._by_value: dict[Any, dict[_Asking, None]] = {}
        """Those that list a value."""
        self._many: dict[_Asking, None] = {}
        """Those that list no values, because the relation has many tuples."""

    def __bool__(self) -> bool:
        return bool(self._of_relation)

    def buckets_of(self, trigger: Related) -> dict[Any, Bucket]:
        """Return the buckets with a trigger's relation and shape, by literals."""
        shapes = self._of_relation.setdefault(trigger.relation, {})
        asking = shapes.get(trigger.shape)
        if asking is None:
            asking = shapes[trigger.shape] = _Asking(trigger)
            self._list(asking)
        return asking.buckets

    def drop_if_empty(self, trigger: Related) -> None:
        """Drop the relation and shape of a trigger if no bucket is left."""
        shapes = self._of_relation[trigger.relation]
        asking = shapes[trigger.shape]
        if not asking.buckets:
            self._unlist(asking)
            del shapes[trigger.shape]
            if not shapes:
                del self._of_relation[trigger.relation]

    def relation_changed(self, name: str) -> None:
        """List the tuples of a changed relation anew."""
        for asking in self._of_relation.get(name, {}).values():
            self._unlist(asking)
            self._list(asking)

    def meet(self, value: Any, sent: Mapping[str, Any], met: list[Any]) -> None:
        """Add the buckets met by an event with this value of the fact."""
        part = value if type(value) is str else part_of_key(key_of(value))
        if part is None:
            return
        for asking in self._by_value.get(part, ()):
            if asking.relation not in sent:
                assert asking.listed is not None, "it lists the value"
                literals, buckets = asking.listed[part], asking.buckets
                few, many = (literals, buckets) if len(literals) < len(buckets) else (buckets, literals)
                met += [buckets[one] for one in few if one in many]
        for asking in self._many:
            if asking.relation not in sent and self._may_have(asking, part):
                met += asking.buckets.values()
        if sent:
            # Relations sent with the event replace stored ones.
            for name in sent.keys() & self._of_relation.keys():
                for asking in self._of_relation[name].values():
                    met += asking.buckets.values()

    def _may_have(self, asking: _Asking, part: Any) -> bool:
        stored = self._stored[asking.relation]
        if asking.shape == NETWORKS:
            number = address(part)
            return number is not None and stored.networks.have(number)
        return asking.shape[0] > 1 or (part,) in stored.rows

    def _list(self, asking: _Asking) -> None:
        asking.list_tuples(self._stored.get(asking.relation))
        if asking.listed is None:
            self._many[asking] = None
        else:
            for part in asking.listed:
                self._by_value.setdefault(part, {})[asking] = None

    def _unlist(self, asking: _Asking) -> None:
        self._many.pop(asking, None)
        for part in asking.listed or ():
            del self._by_value[part][asking]
            if not self._by_value[part]:
                del self._by_value[part]
