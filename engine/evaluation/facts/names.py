"""Looks up many names in an event at once: goes through the names or the values, whichever are fewer."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from engine.evaluation.facts.values import Name, split_name

T = TypeVar("T")


class _Branch(Generic[T]):
    """The dotted names that share a prefix of steps."""

    __slots__ = ("branches", "item", "whole")

    def __init__(self) -> None:
        self.branches: dict[str, _Branch[T]] = {}
        self.item: T | None = None
        self.whole = ""
        """The whole name of the item, if there is one."""


class FactNames(Generic[T]):
    """Items by fact: those of fields, and those of vars, whose names begin with `$`."""

    __slots__ = ("of_fields", "of_vars")

    def __init__(self) -> None:
        self.of_fields: Names[T] = Names()
        self.of_vars: Names[T] = Names()

    def add(self, fact: str, item: T) -> None:
        """Add a fact, or replace its item."""
        name = split_name(fact)
        (self.of_vars if name.of_vars else self.of_fields).add(name, item)

    def remove(self, fact: str) -> None:
        """Remove a fact."""
        name = split_name(fact)
        (self.of_vars if name.of_vars else self.of_fields).remove(name)

    def found_in(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[tuple[T, Any]]:
        """Return each item whose fact has a value in an event, with the value."""
        found = self.of_fields.found_in(fields)
        return found + self.of_vars.found_in(sent) if sent else found


class Names(Generic[T]):
    """Items by name: either names of fields or names of vars."""

    __slots__ = ("_branches", "_dotted", "_plain")

    def __init__(self) -> None:
        self._plain: dict[str, T] = {}
        """Items by name without dots."""
        self._dotted: dict[str, T] = {}
        self._branches: dict[str, _Branch[T]] = {}
        """The items of `_dotted` again, in trees by the steps of their names."""

    def add(self, name: Name, item: T) -> None:
        """Add a name, or replace its item."""
        if not name.steps:
            self._plain[name.whole] = item
            return
        self._dotted[name.whole] = item
        branches = self._branches
        for step in name.steps:
            branch = branches.setdefault(step, _Branch())
            branches = branch.branches
        branch.item, branch.whole = item, name.whole

    def remove(self, name: Name) -> None:
        """Remove a name."""
        if not name.steps:
            del self._plain[name.whole]
            return
        del self._dotted[name.whole]
        passed = []
        branches = self._branches
        for step in name.steps:
            passed.append((branches, step))
            branches = branches[step].branches
        for branches, step in reversed(passed):
            branch = branches[step]
            if branch.whole == name.whole:
                branch.item = None
            if branch.item is not None or branch.branches:
                break
            del branches[step]

    def found_in(self, values: Mapping[str, Any]) -> list[tuple[T, Any]]:
        """Return each item whose name leads to a value, with the value. Looks up as `values.dig` does."""
        found = _common(self._plain, values)
        if self._dotted:
            found += _common(self._dotted, values)
            if type(values) is dict:
                _find_behind(self._branches, values, values, found)
        return found


def _common(names: Mapping[str, T], values: Mapping[str, Any]) -> list[tuple[T, Any]]:
    if len(names) <= len(values):
        return [(item, value) for name, item in names.items() if (value := values.get(name)) is not None]
    return [(names[name], value) for name, value in values.items() if value is not None and name in names]


def _find_behind(
    branches: Mapping[str, _Branch[T]],
    values: Mapping[str, Any],
    fields: Mapping[str, Any],
    found: list[tuple[T, Any]],
) -> None:
    for branch, value in _common(branches, values):
        # A field with the whole name takes precedence, even if it is null.
        if branch.item is not None and branch.whole not in fields:
            found.append((branch.item, value))
        if branch.branches and type(value) is dict:
            _find_behind(branch.branches, value, fields, found)
