"""Looks up dotted names: in each object, the longest run of the remaining parts that is a key is followed.

There is no backtracking to a shorter run.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import accumulate
from operator import methodcaller
from typing import Any, Final, NamedTuple, TypeAlias

from engine.language.condition import STRINGS

Look: TypeAlias = Callable[[Any], Any]
"""Returns the value of a name in fields or vars, or None if it is missing."""

Runs: TypeAlias = "tuple[tuple[str, Runs], ...]"
"""The runs to try in an object, the longest first, each with the runs to try after it."""

RUNS_PARTS_MAX: Final = 16
"""Names with more parts have no precomputed runs, whose number is quadratic in the parts."""

_KEY_CHARS: Final = 64
"""Trying one key of an object takes about as long as building a run of this many characters."""


ELEMENTS_MAX: Final = 10_000
"""Longer arrays count as empty, as for `some`."""

OF_ELEMENTS: Final = "\ud800"
"""Separates the name of an array from that of a fact of its elements. No name has a lone surrogate."""

_SHOWN: Final = "the strings of the event"
"""The name of the fact STRINGS in messages."""

ELEMENT: Final = "it"
"""The name of an element that is not an object."""


class Name(NamedTuple):
    """A parsed name, ready to be looked up."""

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
    """Return a name for a fact of the elements of an array, different from all facts of the event."""
    return name if name.startswith("$") else f"{array}{OF_ELEMENTS}{name}"


def split_elements(fact: str) -> tuple[str, str]:
    """Return the name of the array and the name in its elements; the latter is empty for an event's fact."""
    array, _, name = fact.partition(OF_ELEMENTS)
    return array, name


def strings_in(values: Any) -> list[str]:
    """Return the strings in a value, at any depth, in order. Names of members are not included."""
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
    """Return the object in which names are looked up for an element of an array."""
    return element if type(element) is dict else {ELEMENT: element}


def fact_shown(fact: str) -> str:
    """Return the name of a fact in messages: `files[].name` for one of the elements of `files`."""
    return fact.replace(STRINGS, _SHOWN).replace(OF_ELEMENTS, "[].")


def field_names(name: str) -> tuple[str, ...]:
    """Return the names of the fields that may hold a fact: `a` and `a.b` for `a.b`."""
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
    """Return the value of a name of many parts. Only the runs that are tried are built."""
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
