"""The names of memories."""

from bisect import bisect_left, insort
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

from engine.evaluation.paths import Path
from engine.language.condition import Condition

K = TypeVar("K")

_birth: Final = attrgetter("birth")


class NodeName(NamedTuple):
    """The name of a memory. Two nodes have equal names exactly if they always remember the same."""

    condition: Condition
    path: Path
    birth: int
    """The number of events that the detector had seen when the rule's history began."""


class Joined(NamedTuple):
    """The older memory that rules read in place of one of their own birth."""

    name: NodeName
    since_us: int
    """Only later times in that memory count for these rules."""


class NamesByBirth(dict[K, list[NodeName]]):
    """The names that have something in common, in order of birth."""

    __slots__ = ()

    def add(self, key: K, name: NodeName) -> None:
        """Add a name."""
        insort(self.setdefault(key, []), name, key=_birth)

    def from_birth_on(self, key: K, name: NodeName) -> list[NodeName]:
        """Return the names that were born with a name or later."""
        names = self.get(key, [])
        return names[bisect_left(names, name.birth, key=_birth) :]

    def remove(self, key: K, name: NodeName) -> int:
        """Remove a name; return its place among the others."""
        names = self[key]
        place = bisect_left(names, name.birth, key=_birth)
        del names[place]
        if not names:
            del self[key]
        return place
