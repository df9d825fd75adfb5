"""Triggers: what an event has by which rules and memories are found."""

from collections.abc import Hashable
from typing import Any, Final, NamedTuple, TypeAlias

from engine.evaluation.facts.look_up import split_elements
from engine.evaluation.facts.values import key_of
from engine.language import condition as language
from engine.language.condition import Condition

PRESENT: Final = ("present",)
"""Stands for any value of a fact."""


class Hit(NamedTuple):
    """Met if a fact has this value, in the form of `key_of`; if it is PRESENT, any value."""

    fact: str
    value: object
    kind: str = "hit"
    """Distinguishes the types: named tuples of different types are equal if their fields are."""


class Range(NamedTuple):
    """Met if a fact is from `low` to `high`. Both are numbers, or both are texts."""

    fact: str
    low: str | float
    high: str | float
    kind: str = "range"


class Element(NamedTuple):
    """Met if a fact is an array with an element of this key, or a text that contains this text."""

    fact: str
    value: object
    kind: str = "element"


class Found(NamedTuple):
    """Met if the pattern matches the text of a fact."""

    fact: str
    pattern: str
    kind: str = "found"


class Beginning(NamedTuple):
    """Met if a fact is a text that begins with this one."""

    fact: str
    text: str
    kind: str = "beginning"


class Ending(NamedTuple):
    """Met if a fact is a text that ends with this one."""

    fact: str
    text: str
    kind: str = "ending"


class InNetwork(NamedTuple):
    """Met if a fact is an address in the network that has this number."""

    fact: str
    number: int
    kind: str = "network"


class Related(NamedTuple):
    """Met if a fact is, or may be, in a tuple of a stored relation, or if the caller sends the relation."""

    fact: str
    relation: str
    shape: Any
    """The length of the tuples, the place of the fact, and the places of literals; or NETWORKS."""
    literals: tuple[Any, ...] = ()
    """Those that the tuple has, in the form of rows."""
    kind: str = "related"


NETWORKS: Final = "networks"
"""The shape of a trigger that is met if a fact is an address in a network of the relation."""

Bucketed: Final = (Hit, Element, Found, Beginning, Ending, InNetwork, Related)
"""The triggers that have a bucket each."""

Trigger = Hit | Range | Element | Found | Beginning | Ending | InNetwork | Related | Any
"""Any other trigger is met because of what the event's slice remembers."""

Triggers = frozenset[Any]
"""Triggers, of which an event meets at least one."""


def may_meet_several(triggers: Triggers | None) -> bool:
    """Return whether one event may meet several of the triggers, or a range several times.

    A fact of the event has only one value at a time, a fact of the elements of an array several.
    """
    if triggers is None:
        return False
    if len(triggers) == 1:
        return any(isinstance(trigger, Range) and _is_of_elements(trigger) for trigger in triggers)
    facts = {
        trigger.fact
        if isinstance(trigger, Hit) and trigger.value is not PRESENT and not _is_of_elements(trigger)
        else None
        for trigger in triggers
    }
    return len(facts) > 1 or None in facts


def _is_of_elements(trigger: Trigger) -> bool:
    return bool(split_elements(trigger.fact)[1])


class Value(NamedTuple):
    """The value of a fact, in the form of `key_of`."""

    fact: str
    value: Hashable

    def truth_of(self, leaf: language.Leaf) -> bool | None:
        """Return the truth of a leaf if it is decided, otherwise None."""
        match leaf:
            case language.Leaf(self.fact, "eq", value) if not isinstance(value, tuple):
                return bool(key_of(value) == self.value)
            case language.Leaf(self.fact, "in", value) if isinstance(value, tuple):
                return self.value in map(key_of, value)
            case _:
                return None


class Within(NamedTuple):
    """The range in which a fact is, from `low` to `high`. Both are numbers, or both are texts."""

    fact: str
    low: Any
    high: Any

    def truth_of(self, leaf: language.Leaf) -> bool | None:
        """Return the truth of a leaf if it is decided, otherwise None."""
        match leaf:
            case language.Leaf(self.fact, "between", (low, high)):
                alike = isinstance(low, str) is isinstance(self.low, str)
                return True if alike and low <= self.low and self.high <= high else None
            case _:
                return None


Known: TypeAlias = Value | Within


def truth(node: Condition, known: Known) -> bool | None:
    """Return the truth of a node if what is known decides it, otherwise None."""
    match node:
        case language.Leaf():
            return known.truth_of(node)
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
