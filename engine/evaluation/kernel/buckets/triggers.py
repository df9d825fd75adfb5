"""Triggers: properties of events by which rules and memories are found, and the triggers of a condition.

A rule may skip an event at which its condition is false, and a memory one whose outcome is `idle`. Every
other event meets at least one trigger. If no triggers ensure that, no event is skipped. Triggers are the
access predicates of content-based publish/subscribe (Fabret et al., "Filtering Algorithms and Implementation
for Very Fast Publish/Subscribe Systems", 2001).
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, cast

from engine.evaluation.facts.look_up import element_fact
from engine.evaluation.facts.relations import network_key
from engine.evaluation.facts.values import key_of, part_of_key
from engine.evaluation.operators import compare
from engine.evaluation.operators.interface import Memory
from engine.evaluation.operators.table import operator_of
from engine.evaluation.paths import Path
from engine.evaluation.requirements import Births
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.slices import Remembered
from engine.language import condition as language
from engine.language.condition import Condition, FactArg, Scalar
from engine.language.nodes import Node
from engine.language.validation.networks import network_of
from engine.patterns.text_tests import literal_of

PRESENT: Final = ("present",)
"""Stands for any value of a fact."""


class Hit(NamedTuple):
    """Met if a fact has this value, in the form of `key_of`; any value if it is PRESENT."""

    fact: str
    value: object
    kind: str = "hit"
    """Distinguishes the types: named tuples of different types are equal if their fields are."""


class Range(NamedTuple):
    """Met if a fact is from `low` to `high`, which are both numbers or both texts."""

    fact: str
    low: str | float
    high: str | float
    kind: str = "range"


class Element(NamedTuple):
    """Met if a fact is an array with an element that has this key, or a text that contains this text."""

    fact: str
    value: object
    kind: str = "element"


class Found(NamedTuple):
    """Met if the pattern matches the text of a fact."""

    fact: str
    pattern: str
    kind: str = "found"


class Beginning(NamedTuple):
    """Met if a fact is a text with this prefix."""

    fact: str
    text: str
    kind: str = "beginning"


class Ending(NamedTuple):
    """Met if a fact is a text with this suffix."""

    fact: str
    text: str
    kind: str = "ending"


class InNetwork(NamedTuple):
    """Met if a fact is an address in the network with this number, in its hashable form."""

    fact: str
    number: Any
    kind: str = "network"


class Related(NamedTuple):
    """Met if a fact is, or may be, in a tuple of a stored relation, or if the event has the relation."""

    fact: str
    relation: str
    shape: Any
    """The length of the tuples, the place of the fact, and the places of literals; or NETWORKS."""
    literals: tuple[Any, ...] = ()
    """The literals in the tuple, in the form of rows."""
    kind: str = "related"


class Holding(NamedTuple):
    """Met if a memory has an entry in the event's slice."""

    remembered: Remembered
    kind: str = "holding"


NETWORKS: Final = "networks"
"""The shape of a trigger that is met if a fact is an address in a network of the relation."""

Trigger = Hit | Range | Element | Found | Beginning | Ending | InNetwork | Related | Holding

Triggers = frozenset[Any]
"""Triggers of which an event must meet at least one."""

Known = Hit | Range
"""What is known of events that meet a trigger: the value of a fact, or a range that contains it."""


Cheapest = Callable[[Iterable[Triggers]], Triggers]
"""Chooses the set of triggers that the fewest events meet, by an estimate."""


class Analysis:
    """Finds the triggers of a rule and of its memories.

    It visits each part of the condition once, however deeply temporal nodes are nested.
    """

    def __init__(self, histories: Histories, births: Births, cheapest: Cheapest) -> None:
        self.births = births
        """The births of the rule, or of the inside of one of its parts."""
        self._histories, self._cheapest = histories, cheapest
        self._inside: dict[Births, Analysis] = {}
        self._found: dict[tuple[int, Path, bool], tuple[Condition, Triggers | None]] = {}
        """The results so far, by the id of a node, path and truth: comparing nodes would compare everything
        in them. The node is kept, so that its id stays unique."""

    def union(self, parts: Iterable[Triggers | None]) -> Triggers | None:
        """Return triggers for events that meet at least one of the parts; None if one part is None."""
        whole: set[Any] = set()
        for part in parts:
            if part is None:
                return None
            whole |= part
        return frozenset(whole)

    def best(self, parts: Iterable[Triggers | None]) -> Triggers | None:
        """Return the triggers of the cheapest part, for events that meet all parts."""
        known = [part for part in parts if part is not None]
        return self._cheapest(known) if known else None

    def present(self, fact: str) -> Triggers:
        """Return triggers for the events that have a fact."""
        return frozenset({Hit(fact, PRESENT)})

    def equal(self, fact: str, value: Scalar) -> Triggers:
        """Return triggers for the events at which a fact equals a value."""
        return frozenset({Hit(fact, key_of(value))})

    def within(self, fact: str, low: float, high: float) -> Triggers:
        """Return triggers for the events at which a fact is a number from `low` to `high`."""
        return frozenset({Range(fact, low, high)})

    def holding(self, memory: Memory, path: Path) -> Triggers | None:
        """Return triggers for events whose slice has an entry of a memory; None if nearly all have one."""
        remembered = self._histories.remembered(memory, path, self.births.birth)
        return None if remembered.by_exception else frozenset({Holding(remembered)})

    def of(self, node: Node, path: Path) -> "Analysis":
        """Return the analysis of the inside of a part, whose history may be older than the rule's."""
        return self.inside(self.births.of(node, path)) if self.births.kept else self

    def inside(self, births: Births) -> "Analysis":
        """Return the analysis of the inside of a part with these births."""
        if births == self.births:
            return self
        if births not in self._inside:
            self._inside[births] = Analysis(self._histories, births, self._cheapest)
        return self._inside[births]

    def true(self, node: Condition, path: Path) -> Triggers | None:
        """Return triggers such that any event at which the node is true meets one."""
        found, name = self._found, (id(node), path, True)
        if name not in found:
            found[name] = node, self._true(node, path)
        return found[name][1]

    def false(self, node: Condition, path: Path) -> Triggers | None:
        """Return triggers such that any event at which the node is false meets one."""
        found, name = self._found, (id(node), path, False)
        if name not in found:
            found[name] = node, self._false(node, path)
        return found[name][1]

    def _true(self, node: Condition, path: Path) -> Triggers | None:
        match node:
            case language.Leaf(fact, "eq", value) if not isinstance(value, tuple):
                return frozenset({Hit(fact, key_of(value))})
            case language.Leaf(fact, "in", value) if isinstance(value, tuple):
                return frozenset(Hit(fact, key_of(element)) for element in value)
            case language.Leaf(fact, "matches", value):
                return self._matching(fact, str(value))
            case language.Leaf(fact, "contains", value) if value != "" and not isinstance(value, tuple):
                return frozenset({Element(fact, key_of(value))})
            case language.Leaf(fact, "between"):
                return _within([node])
            case language.Leaf(fact):
                return self.present(fact)
            case language.Ref(fact, _, reference):
                return self.best([self.present(fact), self.present(reference)])
            case language.Compare():
                return compare.true_at(node, self, path)
            case language.InNetwork(fact, networks):
                return self._in_network(fact, networks)
            case language.Some(fact, inner):
                return self.best([self.present(fact), _in_elements(fact, self.true(inner, path))])
            case language.InRelation(relation, args):
                return self._in_relation(relation, args)
            case language.All(members):
                return self.best([*_ranges(node), *[self.true(member, path) for member in members]])
            case language.Any(members):
                return self.union([self.true(member, path) for member in members])
            case language.Not(inner):
                return self.false(inner, path)
            case language.Keyed(inner, key, where):
                parts = [self.true(inner, self.births.step(node, path)), self.present(key)]
                if where is not None:
                    of_where = self.births.of_where(node, path)
                    parts.append(self.inside(of_where).true(where, path))
                return self.best(parts)
            case _:
                operator = operator_of(node)
                assert operator is not None, node
                return operator.true_at(node, self.of(node, path), path)

    def _matching(self, fact: str, pattern: str) -> Triggers:
        literal = literal_of(pattern)
        if literal is None:
            return frozenset({Found(fact, pattern)})
        text, at_start, at_end = literal
        if at_start and at_end:
            return frozenset({Hit(fact, key_of(text))})
        if not text:
            return self.present(fact)
        if at_start:
            return frozenset({Beginning(fact, text[:ENDS_CHARS_MAX])})
        if at_end:
            return frozenset({Ending(fact, text[-ENDS_CHARS_MAX:])})
        return frozenset({Element(fact, text)})

    def _in_network(self, fact: str, networks: tuple[str, ...] | language.NetworksOf) -> Triggers:
        if isinstance(networks, language.NetworksOf):
            return frozenset({Related(fact, networks.relation, NETWORKS)})
        found = [network for network in map(network_of, networks) if network is not None]
        return frozenset(InNetwork(fact, network_key(network.key)) for network in found)

    def _in_relation(self, relation: str, args: tuple[FactArg | Scalar, ...]) -> Triggers | None:
        facts = {place: one.fact for place, one in enumerate(args) if isinstance(one, FactArg)}
        if len(args) > ARGUMENTS_MAX:
            return self.best(map(self.present, facts.values()))
        given = [(place, one) for place, one in enumerate(args) if not isinstance(one, FactArg)]
        literals = tuple([one if isinstance(one, str) else part_of_key(key_of(one)) for _, one in given])
        places = tuple([place for place, _ in given])
        return self.best(
            frozenset({Related(fact, relation, (len(args), place, places), literals)})
            for place, fact in facts.items()
        )

    def _false(self, node: Condition, path: Path) -> Triggers | None:
        match node:
            case language.Not(inner):
                return self.true(inner, path)
            case language.All(members):
                return self.union([self.false(member, path) for member in members])
            case language.Any(members):
                return self.best([self.false(member, path) for member in members])
            case _:
                operator = operator_of(node)
                # A predicate is also false if its fact is missing, and a missing fact meets no trigger.
                return None if operator is None else operator.false_at(node, self.of(node, path), path)


ENDS_CHARS_MAX: Final = 32
"""The number of characters by which longer beginnings and endings are looked up, and the maximum number of
look-ups."""


ARGUMENTS_MAX: Final = 16
"""A condition with more arguments of a relation is a candidate at every event that has one of its facts."""


def _in_elements(array: str, triggers: Triggers | None) -> Triggers | None:
    """Return the triggers of a condition on the elements of an array as triggers of the event."""
    if triggers is None:
        return None
    return frozenset(trigger._replace(fact=element_fact(array, trigger.fact)) for trigger in triggers)


def _ranges(node: language.All) -> list[Triggers]:
    """Return the joint trigger of several `between` on one fact, as in `x > 1 and x < 5`."""
    by_fact: dict[str, list[language.Leaf]] = {}
    pending = [node]
    while pending:
        for member in pending.pop().members:
            if isinstance(member, language.All):
                pending.append(member)
            elif isinstance(member, language.Leaf) and member.op == "between":
                by_fact.setdefault(member.fact, []).append(member)
    return [_within(leaves) for leaves in by_fact.values() if len(leaves) > 1]


def _within(leaves: list[language.Leaf]) -> Triggers:
    """Return the trigger for events at which all of these `between` on one fact are true, or an empty set."""
    values: list[Any] = [leaf.value for leaf in leaves]
    if len({isinstance(low, str) for low, _ in values}) > 1:
        return frozenset()
    low = max(low for low, _ in values)
    high = min(high for _, high in values)
    return frozenset({Range(leaves[0].fact, low, high)} if low <= high else ())


def truth(node: Condition, known: Known) -> bool | None:
    """Return the truth of a node if what is known decides it, otherwise None."""
    match node:
        case language.Leaf(known.fact):
            return _truth_of_leaf(node, known)
        case language.All(members) | language.Any(members):
            decisive = isinstance(node, language.Any)
            truths = [truth(member, known) for member in members]
            if all(found is not None and found is not decisive for found in truths):
                return not decisive
            return decisive if decisive in truths else None
        case language.Not(inner):
            found = truth(inner, known)
            return None if found is None else not found
        case _:
            return None


def _truth_of_leaf(leaf: language.Leaf, known: Known) -> bool | None:
    wanted = leaf.value
    match leaf.op:
        case "eq" if isinstance(known, Hit) and not isinstance(wanted, tuple):
            return bool(key_of(wanted) == known.value)
        case "in" if isinstance(known, Hit) and isinstance(wanted, tuple):
            return known.value in map(key_of, wanted)
        case "between" if isinstance(known, Range) and isinstance(wanted, tuple):
            low, high = cast("tuple[Any, Any]", wanted)
            alike = isinstance(low, str) is isinstance(known.low, str)
            return True if alike and low <= known.low and known.high <= high else None
        case _:
            return None
