"""The facts of recorded events and their JSON types, to check conditions against."""

from collections.abc import Iterator, Mapping
from typing import Any

from engine.language.diagnostics import json_type


class Sample:
    """The facts of some events, by the names that conditions use.

    A dotted name leads through nested objects unless an event has the whole name as a key. Memory grows with
    the number of distinct names, not with the number of events.
    """

    def __init__(self) -> None:
        self.has_vars = False
        """Whether vars came with any event. If not, nothing is known about names that begin with `$`."""
        self._types: dict[str, set[str]] = {}
        self._element_types: dict[str, set[str]] = {}
        self._vars: set[str] = set()

    def add(self, fields: Mapping[str, Any], sent: Mapping[str, Any] | None = None) -> None:
        """Add an event: its fields, and the vars sent with it, or None if the vars are unknown."""
        for name, value in _named(fields).items():
            self._note(name, value)
        if sent is not None:
            self.has_vars = True
            self._vars.update(sent)
            for name, value in _named(sent).items():
                self._note(f"${name}", value)

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

    def _note(self, name: str, value: object) -> None:
        types = self._types.setdefault(name, set())
        if value is not None:
            types.add(json_type(value))
        if isinstance(value, list | tuple):
            self._element_types.setdefault(name, set()).update(map(json_type, value))


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every name that leads to one."""
    # Whole names come last and so take precedence over paths through objects.
    return {**dict(_nested(values)), **values}


def _nested(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values in nested objects by their dotted names. Iterative: any depth of nesting is safe."""
    pending = [(f"{name}.", value) for name, value in values.items() if "." not in name]
    while pending:
        prefix, value = pending.pop()
        if not isinstance(value, Mapping):
            continue
        for name, member in value.items():
            # A nested key with a dot cannot be looked up.
            if "." not in name:
                yield prefix + name, member
                pending.append((f"{prefix}{name}.", member))
