"""Which facts some recorded events have, and of which JSON types: what a condition can be held against."""

from collections.abc import Iterator, Mapping
from typing import Any

from engine.language.validation.violations import kind


class Sample:
    """The facts of some events, by the names that look them up.

    A dotted name leads through nested objects, unless an event has the whole name as one key. Memory grows
    with the number of different names, not of events.
    """

    def __init__(self) -> None:
        self.has_vars = False
        """Whether any event came with vars; without, nothing is known about names that begin with `$`."""
        self._kinds: dict[str, set[str]] = {}
        self._element_kinds: dict[str, set[str]] = {}
        self._vars: set[str] = set()

    def add(self, fields: Mapping[str, Any], sent: Mapping[str, Any] | None = None) -> None:
        """Add one event: its fields, and the vars that are sent with it, or None where that is not known."""
        for name, value in _named(fields).items():
            self._note(name, value)
        if sent is not None:
            self.has_vars = True
            self._vars.update(sent)
            for name, value in _named(sent).items():
                self._note(f"${name}", value)

    def names(self) -> frozenset[str]:
        """Give every name that leads to something in some event, JSON `null` included."""
        return frozenset(self._kinds)

    def relations(self) -> frozenset[str]:
        """Give the names under which vars were sent, each of which may be that of a relation."""
        return frozenset(self._vars)

    def kinds(self, name: str) -> frozenset[str] | None:
        """Give the JSON types of a fact, in words (`a string`), or None where no event has that fact.

        There are none where the fact is always `null`.
        """
        found = self._kinds.get(name)
        return None if found is None else frozenset(found)

    def element_kinds(self, name: str) -> frozenset[str]:
        """Give the JSON types of the elements of those arrays that the fact is."""
        return frozenset(self._element_kinds.get(name, ()))

    def _note(self, name: str, value: object) -> None:
        kinds = self._kinds.setdefault(name, set())
        if value is not None:
            kinds.add(kind(value))
        if isinstance(value, list | tuple):
            self._element_kinds.setdefault(name, set()).update(map(kind, value))


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Give every name that leads to a value, with that value."""
    # Whole names come last, and so win over those that lead through objects.
    return {**dict(_nested(values)), **values}


def _nested(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give the values in nested objects by their dotted names. No nesting is too deep."""
    waiting = [(f"{name}.", value) for name, value in values.items() if "." not in name]
    while waiting:
        prefix, value = waiting.pop()
        if not isinstance(value, Mapping):
            continue
        for name, member in value.items():
            # A key with a dot in it is found as a whole name or not at all.
            if "." not in name:
                yield prefix + name, member
                waiting.append((f"{prefix}{name}.", member))
