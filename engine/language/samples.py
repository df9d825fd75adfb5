"""The facts of recorded events and their JSON types, to check conditions against."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from engine.language.diagnostics import json_type

NAMES_MAX: Final = 10_000
"""The most names in the events of a sample. A line of some megabytes can have a million."""

PATH_CHARS_MAX: Final = 1_000
"""Paths to nested objects that are longer are not followed: each of an object's members would repeat them."""


class Sample:
    """The facts of some events, by the names that conditions use.

    A dotted name leads through nested objects unless an event has the whole name as a key. Memory grows with
    the number of different names, not with the number of events, and is bounded: see `overflows`.
    """

    def __init__(self) -> None:
        self.overflows = False
        """Whether the events had more than NAMES_MAX names, after which nothing is known about any."""
        self.has_vars = False
        """Whether vars came with any event. If not, nothing is known about names that begin with `$`."""
        self._types: dict[str, set[str]] = {}
        self._element_types: dict[str, set[str]] = {}
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
        """Return every name that leads to a value in some event, JSON `null` included."""
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
        """Return the JSON types of the elements of the fact wherever it is an array."""
        return frozenset(self._element_types.get(name, ()))

    def _note(self, name: str, value: object) -> bool:
        """Note a value of a name; return False if there are too many names."""
        if self.overflows or (len(self._types) >= NAMES_MAX and name not in self._types):
            self.overflows = True
            self._types.clear()
            self._element_types.clear()
            return False
        types = self._types.setdefault(name, set())
        if value is not None:
            types.add(json_type(value))
        if isinstance(value, list | tuple):
            self._element_types.setdefault(name, set()).update(map(json_type, value))
        return True


def _named(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every name that leads to a value, and the value."""
    # Whole names take precedence over paths through objects.
    yield from (one for one in _nested(values) if one[0] not in values)
    yield from values.items()


def _nested(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values in nested objects by their dotted names, up to PATH_CHARS_MAX characters.

    Iterative: any depth of nesting is safe.
    """
    pending = [(f"{name}.", value) for name, value in values.items() if "." not in name]
    while pending:
        prefix, value = pending.pop()
        if not isinstance(value, Mapping) or len(prefix) > PATH_CHARS_MAX:
            continue
        for name, member in value.items():
            # A nested key with a dot cannot be looked up.
            if "." not in name:
                yield prefix + name, member
                pending.append((f"{prefix}{name}.", member))
