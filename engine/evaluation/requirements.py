"""The requirements of a rule: memories, relations, patterns, literals; and the births of its histories."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from engine.evaluation.facts.look_up import element_fact
from engine.evaluation.operators.interface import LookingBack, Memory
from engine.evaluation.operators.table import OPERATORS, parts_of, remembering
from engine.evaluation.paths import ANY_BIRTH, Filter, Path, filter_of
from engine.evaluation.stamps import UNSET
from engine.language import condition as language
from engine.language.condition import Compare, Condition, Keyed, children, walk
from engine.language.forms.table import FORM_OF_NODE
from engine.language.nodes import Node, TermNode
from engine.language.terms import Fact, Term, conditions_in, terms_in
from engine.patterns.text_tests import literal_of


class Part(NamedTuple):
    """A part of a condition under a path. The `where` of a key is represented as `Keyed(where, key)`."""

    node: Node
    path: Path


class Birth(NamedTuple):
    """The beginning of a history."""

    birth: int
    """The number of earlier events of the detector."""
    born: int
    """The stamp of the last of these."""


_NONE: Final[Mapping[Part, Birth]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Births:
    """The birth of a rule's history, and those of parts that are older because a change kept them."""

    birth: int = 0
    born: int = UNSET
    kept: Mapping[Part, Birth] = field(default_factory=lambda: _NONE, hash=False)

    def of(self, node: Node, path: Path) -> "Births":
        """Return the births for the inside of a part."""
        if not self.kept:
            return self
        return Births(*self.kept.get(Part(node, path), (self.birth, self.born)))

    def of_where(self, keyed: Keyed, path: Path) -> "Births":
        """Return the births for the inside of a key's `where`."""
        return self if not self.kept or keyed.where is None else self.of(where_of(keyed), path)

    def step(self, keyed: Keyed, path: Path) -> Path:
        """Return the path inside a `keyed`, given the path around it."""
        if keyed.where is None:
            return (*path, keyed.key)
        return (*path, filter_of(keyed.key, keyed.where, self.of_where(keyed, path).birth))

    def of_slices(self, path: Path) -> "Births":
        """Return the births for the condition that `membership_of` returns."""
        steps = {part: birth for part, birth in self.kept.items() if isinstance(part.node, Keyed)}
        for place in reversed(range(len(path))):
            step = path[place]
            if isinstance(step, Filter):
                own = self.of(Keyed(step.where, step.fact), path[:place])
                birth = own.birth, own.born
                if step.birth not in (own.birth, ANY_BIRTH):
                    # The key is inside a part with an older history.
                    birth = next(each for each in self.kept.values() if each[0] == step.birth)
                return Births(*birth, steps)
        return self

    def name(self, node: Condition, path: Path) -> object:
        """Return a value that distinguishes histories of equal conditions under the same path."""
        return tuple([self.of(part, path).birth for part in parts_of(node)]) if self.kept else self.birth


def where_of(keyed: Keyed) -> Keyed:
    """Return the node that represents the `where` of a key in a `Part`."""
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
            within = births.of(node, path) if type(node) in OPERATORS else births
            yield from ((child, within, path) for child in children(node))


class Around(NamedTuple):
    """A `keyed` around a condition, with its births and the path around it."""

    keyed: Keyed
    births: Births
    path: Path


def births_alone(node: Compare, births: Births, path: Path, around: Iterable[Around]) -> Births:
    """Return births for a comparison with only its keys around it, equal to those in its rule."""
    kept = {}
    for keyed, outside, outer in around:
        if keyed.where is not None:
            own = outside.of_where(keyed, outer)
            kept[Part(where_of(keyed), outer)] = Birth(own.birth, own.born)
    for part in parts_of(node):
        own = births.of(part, path)
        kept[Part(part, path)] = Birth(own.birth, own.born)
    return Births(births.birth, births.born, kept)


class MemoryName(NamedTuple):
    """Identifies a memory under a path of keys, for rules of one birth, or of any."""

    memory: Memory
    path: Path
    birth: int


class Use(NamedTuple):
    """A condition or term with a memory, at its place in a rule."""

    node: Node
    path: Path
    births: Births
    """The births for its inside."""
    operator: LookingBack[Any]
    name: MemoryName
    """The memory that it reads. Rules of all births share it if its operands and slices do not depend on
    them."""
    nodes: int
    """The number of nodes that decide an event's outcome for the memory, including itself; see
    `Requirements.nodes`."""
    nests: bool
    """Whether anything inside it has a memory, too."""
    keep: int
    """The maximum number of stamps, values or panes of a record that it needs."""
    window_us: int | None
    """How long an entry can matter to it; None for ever."""

    @property
    def stage(self) -> int:
        """The number of memories that must be updated in sequence, ending with its own."""
        inside = max(map(temporal_depth, self.name.memory.operands)) if self.nests else 0
        return path_depth(self.path) + inside + 1


class Requirements(NamedTuple):
    """The requirements of one condition."""

    size: int
    """The number of its nodes."""
    nodes: int
    """The number of nodes that no memory decides. A `not` does not count."""
    memories: tuple[Use, ...]
    """The readers of memories, in the order of `walk`."""
    outermost: int
    """The number of these that are not inside another."""
    relations: frozenset[str]
    patterns: frozenset[tuple[str, str]]
    """Each pattern to search for, as (fact, pattern)."""
    text_tests: frozenset[tuple[str, str]]
    """The same for patterns that methods of `str` decide."""
    literals: frozenset[tuple[str, str]]
    """Each literal to search for, as (fact, literal)."""
    arrays: frozenset[str]
    """The facts whose elements `some` uses."""
    of_elements: int
    """The number of nodes evaluated for elements."""
    computed: int
    """The number of terms that are computed from the event, and of tests for networks."""
    related: int
    """The number of tests for tuples of relations."""


class _Use:
    """A `Use` that is not complete yet."""

    __slots__ = ("births", "nests", "node", "nodes", "path")

    def __init__(self, node: Node, births: Births, path: Path) -> None:
        self.node, self.births, self.path = node, births, path
        self.nodes = 1
        self.nests = False

    def known(self) -> Use:
        """Return the Use, once everything inside is known."""
        depends_on_birth = self.nests or any(map(_is_of_birth, self.path))
        operator = remembering(self.node)
        memory = operator.memory(self.node)
        is_shared = memory.splits and not depends_on_birth
        name = MemoryName(memory, self.path, ANY_BIRTH if is_shared else self.births.birth)
        needed = operator.keep(self.node), operator.window_us(self.node)
        return Use(self.node, self.path, self.births, operator, name, self.nodes, self.nests, *needed)


class _Place(NamedTuple):
    """A condition at its place in a rule."""

    node: Condition
    births: Births
    path: Path
    arrays: tuple[str, ...]
    """The arrays around it whose elements it concerns."""
    within: _Use | None
    """The innermost memory that observes it."""


def _is_of_birth(step: str | Filter) -> bool:
    return isinstance(step, Filter) and step.birth != ANY_BIRTH


_BIRTHS: Final = Births()


# Adding a rule calls this twice, and a process often reactivates the same detectors.
@lru_cache(64)
def requirements_of(condition: Condition, births: Births = _BIRTHS, path: Path = ()) -> Requirements:
    """Return the requirements of a condition under a path, for a rule with these births."""
    uses: list[_Use] = []
    relations, arrays = set[str](), set[str]()
    patterns, tests, literals = set[tuple[str, str]](), set[tuple[str, str]](), set[tuple[str, str]]()
    size = nodes = of_elements = outermost = computed = related = 0
    pending = [_Place(condition, births, path, (), None)]
    while pending:
        place = pending.pop()
        node, own, around, arrays_around, within = place
        size += 1
        of_elements += bool(arrays_around)
        computed += isinstance(node, language.InNetwork)
        related += isinstance(node, language.InRelation)
        parts: list[_Use] = []
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
            case Compare(left, _, right):
                parts = [_Use(part, own.of(part, around), around) for part in parts_of(node)]
                computed += sum(map(_is_computed, (*terms_in(left), *terms_in(right)))) - len(parts)
            case _ if type(node) in OPERATORS:
                parts = [_Use(node, own.of(node, around), around)]
        uses += parts
        if within is None:
            outermost += len(parts)
        elif parts:
            within.nests = True
        if isinstance(node, Compare) or not (parts or isinstance(node, language.Not)):
            if within is None or parts:
                nodes += 1
            else:
                within.nodes += 1
        pending += reversed(_places_inside(place, parts))
    return Requirements(
        size=size,
        nodes=nodes,
        memories=tuple([use.known() for use in uses]),
        outermost=outermost,
        relations=frozenset(relations),
        patterns=frozenset(patterns),
        text_tests=frozenset(tests),
        literals=frozenset(literals),
        arrays=frozenset(arrays),
        of_elements=of_elements,
        computed=computed,
        related=related,
    )


def _places_inside(place: _Place, parts: Sequence[_Use]) -> list[_Place]:
    """Return the conditions directly inside a condition with their places, in document order."""
    node, births, path, arrays, within = place
    if isinstance(node, Keyed):
        inner = place._replace(node=node.inner, path=births.step(node, path))
        if node.where is None:
            return [inner]
        return [inner, place._replace(node=node.where, births=births.of_where(node, path))]
    if isinstance(node, Compare) or parts:
        return [
            _Place(child, use.births, path, arrays, use)
            for use in parts
            for child in _conditions_in(use.node)
        ]
    if isinstance(node, language.Some):
        arrays = (*arrays, node.fact)
    return [_Place(child, births, path, arrays, within) for child in _conditions_in(node)]


def _conditions_in(node: Node) -> Iterator[Condition]:
    """Yield the conditions directly inside a condition, or a term that has a memory."""
    for field_, is_array in FORM_OF_NODE[type(node)].nested:
        held = getattr(node, field_)
        if held is not None:
            yield from held if is_array else (held,)


def _is_computed(term: Term) -> bool:
    return isinstance(term, TermNode) and not isinstance(term, Fact)


def _inside(arrays: Sequence[str], fact: str) -> str:
    """Return the name of a fact of elements of nested arrays."""
    return reduce(lambda name, array: element_fact(array, name), reversed(arrays), fact)


def is_temporal(node: Condition) -> bool:
    """Return whether a node, or a term that it compares, has a memory."""
    return type(node) in OPERATORS or (isinstance(node, Compare) and bool(parts_of(node)))


def looks_back(condition: Condition) -> bool:
    """Return whether a condition has a temporal node inside, or is one."""
    return any(is_temporal(node) for node, _ in walk(condition))


def keys_of(condition: Condition) -> tuple[str, ...]:
    """Return the keys of a rule, in order: the names of the `per` that are not inside a temporal node."""
    return tuple(dict.fromkeys(_keys(condition)))


def _keys(condition: Condition) -> Iterator[str]:
    if isinstance(condition, Keyed):
        yield condition.key
    if not is_temporal(condition):
        for child in children(condition):
            yield from _keys(child)


def temporal_depth(node: Condition) -> int:
    """Return the maximum number of nested temporal nodes, including this one."""
    if isinstance(node, Keyed) and node.where is not None:
        # The slices of `inner` are known only after `where`.
        return temporal_depth(node.where) + temporal_depth(node.inner)
    return is_temporal(node) + max(map(temporal_depth, children(node)), default=0)


def path_depth(path: Path) -> int:
    """Return how many memories must be updated in sequence before the slices of an event are known."""
    return sum(temporal_depth(step.where) for step in path if isinstance(step, Filter))


def lookback_us(condition: Condition) -> int | None:
    """Return how far back events can matter for a condition, in microseconds; None if unlimited."""
    inner = [lookback_us(child) for child in children(condition)]
    if None in inner:
        return None
    known = [each for each in inner if each is not None]
    # For each event of the slices that `inner` looks back at, `where` looks back further.
    furthest = sum(known) if isinstance(condition, Keyed) else max(known, default=0)
    back_us = [remembering(part).lookback_us(part) for part in parts_of(condition)]
    known_back = [each for each in back_us if each is not None]
    return None if len(known_back) < len(back_us) else furthest + max(known_back, default=0)
