"""The facts in recorded events and their JSON types, for checking conditions."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from engine.language.diagnostics import json_type

NAMES_MAX: Final = 10_000
"""The maximum number of names in a sample. A line of some megabytes can have a million."""

ELEMENTS_MAX: Final = 1_000
"""The maximum number of elements of an array that are examined."""

PATH_CHARS_MAX: Final = 1_000
"""Longer paths to nested objects are not followed, because each member of an object would repeat them."""


class Sample:
    """The facts of some events, by the names that conditions use.

    A dotted name leads through nested objects, in each by the longest run of its parts that is a key. Memory
    grows with the number of different names, not with the number of events, and is bounded: see `overflows`.
    """

    def __init__(self) -> None:
        self.overflows = False
        """Whether the events had more than NAMES_MAX names. Then nothing is known about any name."""
        self.has_vars = False
        """Whether any event came with vars. If not, nothing is known about names that begin with `$`."""
        self._types: dict[str, set[str]] = {}
        self._element_types: dict[str, set[str]] = {}
        self._elements: dict[str, Sample] = {}
        """The elements of arrays, in which `some` looks names up."""
        self._vars: set[str] = set()

    def add(self, fields: Mapping[str, Any], sent: Mapping[str, Any] | None = None) -> None:
        """Add an event: its fields, and the vars sent with it, or None if the vars are unknown."""
        for name, value in _named(fields):
            if not self._note(name, value):
                return
        if sent is not None:
            self.has_vars = True
            self._vars.update(sent)
            for name, value in _named(sent):
                if not self._note(f"${name}", value):
                    return

    def names(self) -> frozenset[str]:
        """Return every name that leads to a value in some event, including JSON `null`."""
        return frozenset(self._types)

    def relations(self) -> frozenset[str]:
        """Return the names of the vars. Any of them may be a relation."""
        return frozenset(self._vars)

    def types(self, name: str) -> frozenset[str] | None:
        """Return the JSON types of a fact, such as `a string`, or None if no event has the fact.

        The set is empty if the fact is always `null`.
        """
        found = self._types.get(name)
        return None if found is None else frozenset(found)

    def element_types(self, name: str) -> frozenset[str]:
        """Return the JSON types of the elements of the fact whenever it is an array."""
        return frozenset(self._element_types.get(name, ()))

    def elements(self, name: str) -> "Sample":
        """Return the facts of the elements of the fact whenever it is an array."""
        return self._elements.get(name) or Sample()

    def _note(self, name: str, value: object) -> bool:
        """Record a value of a name. Return False if there are too many names."""
        if self.overflows or (len(self._types) >= NAMES_MAX and name not in self._types):
            self.overflows = True
            self._types.clear()
            self._element_types.clear()
            self._elements.clear()
            return False
        types = self._types.setdefault(name, set())
        if value is not None:
            types.add(json_type(value))
        if isinstance(value, list | tuple):
            self._element_types.setdefault(name, set()).update(map(json_type, value))
            elements = self._elements.setdefault(name, Sample())
            for element in value[:ELEMENTS_MAX]:
                elements.add(element if isinstance(element, Mapping) else {"it": element})
                # Names in elements count as names of the sample.
                self.overflows |= elements.overflows
        return True


def _named(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every name that leads to a value, with the value.

    Names in nested objects have at most PATH_CHARS_MAX characters before their last part. The function is
    iterative, so any depth of nesting is safe.
    """
    pending = [("", values, _NONE)]
    while pending:
        prefix, found, hidden = pending.pop()
        longer = _behind([name for name in found if "." in name])
        for name, value in found.items():
            path = prefix + name
            if hidden and not hidden.isdisjoint(_prefixes(path)):
                continue
            yield path, value
            if isinstance(value, Mapping) and len(path) < PATH_CHARS_MAX:
                others = hidden.union(prefix + run for run in longer.get(name, ()))
                pending.append((f"{path}.", value, others))


_NONE: Final[frozenset[str]] = frozenset()


def _behind(names: Iterable[str]) -> dict[str, list[str]]:
    """Return dotted names by each of their beginnings, over which they take precedence."""
    found: dict[str, list[str]] = {}
    for name in names:
        for beginning in _prefixes(name):
            if beginning != name:
                found.setdefault(beginning, []).append(name)
    return found


def _prefixes(name: str) -> Iterator[str]:
    """Yield the beginnings of a name that end before a dot, and the whole name."""
    yield from (name[:end] for end, letter in enumerate(name) if letter == ".")
    yield name
