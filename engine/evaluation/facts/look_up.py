"""Looks names up: at each object, the longest run of the parts that remain which is one of its keys leads on.

The parts of a name stand between its dots. There is no going back to a shorter run.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import accumulate
from operator import methodcaller
from typing import Any, Final, NamedTuple, TypeAlias

from engine.language.condition import STRINGS

Look: TypeAlias = Callable[[Any], Any]
"""Gives the value that a name has in fields or vars, or None if it is missing."""

Runs: TypeAlias = "tuple[tuple[str, Runs], ...]"
"""The runs that can lead on from an object, the longest first, each with those that follow it."""

RUNS_PARTS_MAX: Final = 16
"""Of names with more parts, runs are made when they are looked up. They are quadratic in the parts."""

_KEY_CHARS: Final = 64
"""To try one key of an object takes about as long as to make a run of so many characters."""


ELEMENTS_MAX: Final = 10_000
"""Longer arrays are taken to have no elements, as `some` does."""

OF_ELEMENTS: Final = "\ud800"
"""Stands between the names of an array and of a fact of its elements. No name has half a surrogate pair."""

_SHOWN: Final = "the strings of the event"
"""What messages call the fact STRINGS."""

ELEMENT: Final = "it"
"""The name of an element that is no object."""


class Name(NamedTuple):
    """A name split into what a look-up needs."""

    of_vars: bool
    whole: str
    steps: tuple[str, ...]
    """The parts between the dots; empty for a name without dots."""
    look: Look


@lru_cache(4_096)
def split_name(name: str) -> Name:
    """Split a valid name."""
    of_vars = name.startswith("$")
    whole = name[1:] if of_vars else name
    steps = tuple(whole.split(".")) if "." in whole else ()
    return Name(of_vars, whole, steps, strings_in if name == STRINGS else _look(whole, steps))


def value_of(name: Name, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Any:
    """Return the value of a name in an event's fields or vars, or None if it is missing."""
    return name.look(sent if name.of_vars else fields)


def element_fact(array: str, name: str) -> str:
    """Return the name by which a fact of the elements of an array is told from the facts of the event."""
    return name if name.startswith("$") else f"{array}{OF_ELEMENTS}{name}"


def split_elements(fact: str) -> tuple[str, str]:
    """Return the name of the array, and that in its elements; the second is empty for a fact of the event."""
    array, _, name = fact.partition(OF_ELEMENTS)
    return array, name


def strings_in(values: Any) -> list[str]:
    """Return the strings in a value, at any depth, in their order; the names of members do not count."""
    found: list[str] = []
    pending = [values]
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind is str:
            found.append(value)
        elif kind is dict:
            pending += reversed(value.values())
        elif kind is list:
            pending += reversed(value)
    return found


def fields_of_element(element: Any) -> Mapping[str, Any]:
    """Return the values in which names are looked up in an element of an array."""
    return element if type(element) is dict else {ELEMENT: element}


def fact_shown(fact: str) -> str:
    """Return a fact as messages show it: `files[].name` for one of the elements of `files`."""
    return fact.replace(STRINGS, _SHOWN).replace(OF_ELEMENTS, "[].")


def field_names(name: str) -> tuple[str, ...]:
    """Return the names of the fields that may hold a fact: of `a.b`, they are `a` and `a.b`."""
    return tuple(accumulate(name.split("."), "{}.{}".format))


def _look(whole: str, steps: tuple[str, ...]) -> Look:
    if not steps:
        return methodcaller("get", whole)
    if len(steps) == len("ab"):
        return _look_at_two(whole, *steps)
    if len(steps) == len("abc"):
        return _look_at_three(whole, *steps)
    if len(steps) <= RUNS_PARTS_MAX:
        return _look_along(whole, _runs(steps)[1:])
    return lambda values: _look_far(values, whole)


def _look_at_two(whole: str, a: str, b: str) -> Look:
    def look(values: Any) -> Any:
        if whole in values:
            return values[whole]
        if a not in values:
            return None
        inner = values[a]
        return inner.get(b) if type(inner) is dict else None

    return look


def _look_at_three(whole: str, a: str, b: str, c: str) -> Look:
    ab, bc = f"{a}.{b}", f"{b}.{c}"

    def look(values: Any) -> Any:
        if whole in values:
            return values[whole]
        if ab in values:
            inner = values[ab]
        elif a in values:
            inner = values[a]
            if type(inner) is not dict:
                return None
            if bc in inner:
                return inner[bc]
            inner = inner.get(b)
        else:
            return None
        return inner.get(c) if type(inner) is dict else None

    return look


def _look_along(whole: str, first: Runs) -> Look:
    def look(values: Any) -> Any:
        if whole in values:
            return values[whole]
        found, runs = values, first
        while runs:
            if type(found) is not dict:
                return None
            for key, following in runs:
                if key in found:
                    found, runs = found[key], following
                    break
            else:
                return None
        return found

    return look


def _runs(steps: tuple[str, ...]) -> Runs:
    count = len(steps)
    made: list[Runs] = [()] * (count + 1)
    for start in reversed(range(count)):
        made[start] = tuple((".".join(steps[start:end]), made[end]) for end in range(count, start, -1))
    return made[0]


def _look_far(values: Any, rest: str) -> Any:
    """Return the value of a name of many parts, without making more runs than are looked up."""
    found = values
    while True:
        if rest in found:
            return found[rest]
        ends = [at for at, letter in enumerate(rest) if letter == "."]
        if len(ends) * len(rest) <= _KEY_CHARS * len(found):
            run = next((run for end in reversed(ends) if (run := rest[:end]) in found), None)
        else:
            run = max((key for key in found if rest.startswith(f"{key}.")), key=len, default=None)
        if run is None:
            return None
        found, rest = found[run], rest[len(run) + 1 :]
        if type(found) is not dict:
            return None
