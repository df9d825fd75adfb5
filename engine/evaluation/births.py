"""When the histories of a rule began: that of the rule, and of what a change of its condition has kept.

A *part* is what has a memory of its own: a condition that looks back, or a term that does. A part keeps its
history, or begins anew, together with all that is inside it; so does the `where` of a key.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, cast

from engine.evaluation.operators.table import operator_of, parts_of
from engine.evaluation.paths import Filter, Path, step_of
from engine.evaluation.stamps import UNSET
from engine.language.condition import Compare, Condition, Keyed, children
from engine.language.nodes import Node
from engine.language.terms import Term, conditions_in


class Part(NamedTuple):
    """A part of a condition under a path. A key with a `where` stands for it: `Keyed(where, key)`."""

    node: Node
    path: Path


class Birth(NamedTuple):
    """When a history began."""

    birth: int
    """The number of events that the detector had seen before."""
    born: int
    """The stamp of the last of them."""


_NONE: Final[Mapping[Part, Birth]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Births:
    """When the history of a rule began, and those of the parts that are older, because a change kept them."""

    birth: int = 0
    born: int = UNSET
    kept: Mapping[Part, Birth] = field(default_factory=lambda: _NONE, hash=False)

    def of(self, node: Node, path: Path) -> "Births":
        """Return the births of all that is inside a part."""
        if not self.kept:
            return self
        return Births(*self.kept.get(Part(node, path), (self.birth, self.born)))

    def of_where(self, keyed: Keyed, path: Path) -> "Births":
        """Return the births of all that is inside the `where` of a key."""
        return self if not self.kept or keyed.where is None else self.of(where_of(keyed), path)

    def step(self, keyed: Keyed, path: Path) -> Path:
        """Return the path inside a `keyed`, by the path around it."""
        return (*path, step_of(keyed, self.of_where(keyed, path).birth))

    def of_slices(self, path: Path) -> "Births":
        """Return the births for the condition that `membership_of` gives."""
        steps = {part: birth for part, birth in self.kept.items() if isinstance(part.node, Keyed)}
        for place in reversed(range(len(path))):
            step = path[place]
            if isinstance(step, Filter):
                own = self.of(Keyed(step.where, step.fact), path[:place])
                birth = own.birth, own.born
                if step.birth not in (own.birth, -1):
                    # The key stands inside of a part that is kept.
                    birth = next(each for each in self.kept.values() if each[0] == step.birth)
                return Births(*birth, steps)
        return self

    def name(self, node: Condition, path: Path) -> object:
        """Return what tells the history of a condition from that of an equal one under the same path."""
        return tuple([self.of(part, path).birth for part in parts_of(node)]) if self.kept else self.birth


def where_of(keyed: Keyed) -> Keyed:
    """Return the node that stands for the `where` of a key in a `Part`."""
    assert keyed.where is not None, "there is a where"
    return Keyed(keyed.where, keyed.key)


def inside(node: Condition, births: Births, path: Path) -> Iterator[tuple[Condition, Births, Path]]:
    """Yield the conditions directly inside a condition, with births and paths, in the order of `walk`."""
    match node:
        case Keyed(inner, _, where):
            yield inner, births, births.step(node, path)
            if where is not None:
                yield where, births.of_where(node, path), path
        case Compare():
            for part in parts_of(node):
                of_part = births.of(part, path)
                for child in conditions_in(cast("Term", part)):
                    yield cast("Condition", child), of_part, path
        case _:
            within = births if operator_of(node) is None else births.of(node, path)
            yield from ((child, within, path) for child in children(node))


class Around(NamedTuple):
    """A `keyed` around a condition, with its births and the path around it."""

    keyed: Keyed
    births: Births
    path: Path


def births_alone(node: Compare, births: Births, path: Path, around: Iterable[Around]) -> Births:
    """Return the births for a comparison that has only its keys around it, as they are where it stands."""
    kept = {}
    for keyed, outside, outer in around:
        if keyed.where is not None:
            own = outside.of_where(keyed, outer)
            kept[Part(where_of(keyed), outer)] = Birth(own.birth, own.born)
    for part in parts_of(node):
        own = births.of(part, path)
        kept[Part(part, path)] = Birth(own.birth, own.born)
    return Births(births.birth, births.born, kept)
