"""What a rule requires of its detector: memories, relations, patterns, literals; and when it began to."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from types import MappingProxyType
from typing import Final, NamedTuple, cast

from engine.evaluation.facts.look_up import element_fact
from engine.evaluation.operators.table import operator_of, parts_of, remembering
from engine.evaluation.paths import Filter, Path, step_of
from engine.evaluation.stamps import UNSET
from engine.language import condition as language
from engine.language.condition import Compare, Condition, Keyed, children, walk
from engine.language.nodes import Node, TermNode
from engine.language.terms import Term, conditions_in
from engine.patterns.text_tests import literal_of


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


class Requirements(NamedTuple):
    """The requirements of one condition."""

    size: int
    """The number of its nodes."""
    memories: tuple[tuple[Node, Path], ...]
    """Each node or term that has a memory, and its path, in the order of `walk`."""
    births: tuple[Births, ...]
    """The births of each of these memories."""
    relations: frozenset[str]
    patterns: frozenset[tuple[str, str]]
    """Each pattern that is searched for, after the fact that it is matched against."""
    text_tests: frozenset[tuple[str, str]]
    """The same for the patterns that Python's own methods of texts decide."""
    literals: frozenset[tuple[str, str]]
    """Each text that is looked for in others, after its fact."""
    arrays: frozenset[str]
    """The facts whose elements `some` asks about."""
    of_elements: int
    """The number of nodes that elements decide."""


_BIRTHS: Final = Births()


# Adding a rule asks several times, and a process often activates the same detectors again.
@lru_cache(64)
def requirements_of(condition: Condition, births: Births = _BIRTHS, path: Path = ()) -> Requirements:
    """Return the requirements of a condition under a path, for a rule with these births."""
    remembered = list(_remembered(condition, births, path))
    relations, arrays = set[str](), set[str]()
    patterns, tests, literals = set[tuple[str, str]](), set[tuple[str, str]](), set[tuple[str, str]]()
    of_elements = 0
    for node, arrays_around in _with_arrays(condition):
        of_elements += bool(arrays_around)
        match node:
            case language.InRelation(relation) | language.InNetwork(_, language.NetworksOf(relation)):
                relations.add(relation)
            case language.Leaf(fact, "matches", value):
                literal = literal_of(str(value))
                (patterns if literal is None else tests).add((_inside(arrays_around, fact), str(value)))
                if literal is not None and literal.text and not (literal.at_start or literal.at_end):
                    literals.add((_inside(arrays_around, fact), literal.text))
            case language.Leaf(fact, "contains", str() as value) if value:
                literals.add((_inside(arrays_around, fact), value))
            case language.Some(fact):
                arrays.add(_inside(arrays_around, fact))
    return Requirements(
        size=sum(1 for _ in walk(condition)),
        memories=tuple([(part, path) for part, path, _ in remembered]),
        births=tuple([each for *_, each in remembered]),
        relations=frozenset(relations),
        patterns=frozenset(patterns),
        text_tests=frozenset(tests),
        literals=frozenset(literals),
        arrays=frozenset(arrays),
        of_elements=of_elements,
    )


def _remembered(node: Condition, births: Births, path: Path) -> Iterator[tuple[Node, Path, Births]]:
    """Yield each part of a condition with its path and births."""
    yield from ((part, path, births.of(part, path)) for part in parts_of(node))
    for child in inside(node, births, path):
        yield from _remembered(*child)


def _with_arrays(
    node: Condition, arrays: tuple[str, ...] = ()
) -> Iterator[tuple[Condition, tuple[str, ...]]]:
    """Yield a condition and all inside it, each with the arrays whose elements it asks about."""
    yield node, arrays
    inner = (*arrays, node.fact) if isinstance(node, language.Some) else arrays
    for child in children(node):
        yield from _with_arrays(child, inner)


def _inside(arrays: Sequence[str], fact: str) -> str:
    """Return a fact of the elements of arrays, which are nested in one another."""
    return reduce(lambda name, array: element_fact(array, name), reversed(arrays), fact)


def is_temporal(node: Condition) -> bool:
    """Return whether a node, or a term that it compares, has a memory."""
    return bool(parts_of(node))


def keys_of(condition: Condition) -> tuple[str, ...]:
    """Return the keys of a rule: the names of the `per` that stand under no temporal node, in order."""
    return tuple(dict.fromkeys(_keys(condition)))


def _keys(condition: Condition) -> Iterator[str]:
    if isinstance(condition, Keyed):
        yield condition.key
    if not is_temporal(condition):
        for child in children(condition):
            yield from _keys(child)


def temporal_depth(node: Condition) -> int:
    """Return how many temporal nodes are nested in one another at most, this one included."""
    if isinstance(node, Keyed) and node.where is not None:
        # The slices of inner are known only once `where` is.
        return temporal_depth(node.where) + temporal_depth(node.inner)
    return is_temporal(node) + max(map(temporal_depth, children(node)), default=0)


def path_depth(path: Path) -> int:
    """Return how many memories come one after another before the slices of an event are known."""
    return sum(temporal_depth(step.where) for step in path if isinstance(step, Filter))


def size_of(node: Node) -> int:
    """Return the number of conditions of a temporal node, without temporal ones inside it. A term is none."""
    if isinstance(node, TermNode):
        return sum(size_of(each) for each in remembering(node).memory(node).operands if not is_temporal(each))
    return 1 + sum(size_of(child) for child in children(cast("Condition", node)) if not is_temporal(child))


def lookback_us(condition: Condition) -> int | None:
    """Return how far back events can matter for a condition, in microseconds; None without a bound."""
    inner = [lookback_us(child) for child in children(condition)]
    if None in inner:
        return None
    known = [each for each in inner if each is not None]
    # `where` looks back from each event of the slices that the inner condition looks back at.
    furthest = sum(known) if isinstance(condition, Keyed) else max(known, default=0)
    back_us = [remembering(part).lookback_us(part) for part in parts_of(condition)]
    known_back = [each for each in back_us if each is not None]
    return None if len(known_back) < len(back_us) else furthest + max(known_back, default=0)
