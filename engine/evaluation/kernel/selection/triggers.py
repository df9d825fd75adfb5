"""Triggers: what an event has by which rules and memories are found."""

from typing import Any, Final, NamedTuple

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


Trigger = Hit | Range | Element | Found | Any
"""Any other trigger is met because of what the event's slice remembers."""

Triggers = frozenset[Any]
"""Triggers, of which an event meets at least one."""


def may_meet_several(triggers: Triggers | None) -> bool:
    """Return whether one event may meet several of the triggers. A fact has only one value at a time."""
    if triggers is None or len(triggers) == 1:
        return False
    facts = {
        trigger.fact if isinstance(trigger, Hit) and trigger.value is not PRESENT else None
        for trigger in triggers
    }
    return len(facts) > 1 or None in facts
