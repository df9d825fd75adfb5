"""Many names: finds those that lead to a value, by the names or by the values, whichever are fewer."""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from engine.evaluation.values import Name

T = TypeVar("T")


class _Branch(Generic[T]):
    """What lies behind a step of dotted names."""

    __slots__ = ("branches", "item", "whole")

    def __init__(self) -> None:
        self.branches: dict[str, _Branch[T]] = {}
        self.item: T | None = None
        self.whole = ""
        """The name that ends here, if there is an item."""


class Names(Generic[T]):
    """Items by name, all of fields or all of vars."""

    __slots__ = ("_branches", "_dotted", "_plain")

    def __init__(self) -> None:
        self._plain: dict[str, T] = {}
        """By names without dots."""
        self._dotted: dict[str, T] = {}
        self._branches: dict[str, _Branch[T]] = {}
        """The dotted ones once more, by their first step."""

    def __bool__(self) -> bool:
        return bool(self._plain or self._dotted)

    def add(self, name: Name, item: T) -> None:
        """Add a name, which is not there."""
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
        """Remove a name, which is there."""
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

    def found_in(self, values: Mapping[str, Any]) -> Iterator[tuple[T, Any]]:
        """Give each item whose name leads to a value, with the value. Looks names up as `values.dig` does."""
        yield from _common(self._plain, values)
        if self._dotted:
            yield from _common(self._dotted, values)
            if type(values) is dict:
                yield from _behind(self._branches, values, values)


def _common(names: Mapping[str, T], values: Mapping[str, Any]) -> Iterator[tuple[T, Any]]:
    if len(names) <= len(values):
        for name, item in names.items():
            value = values.get(name)
            if value is not None:
                yield item, value
    else:
        for name, value in values.items():
            if value is not None and name in names:
                yield names[name], value


def _behind(
    branches: Mapping[str, _Branch[T]], values: Mapping[str, Any], fields: Mapping[str, Any]
) -> Iterator[tuple[T, Any]]:
    for branch, value in _common(branches, values):
        # A field that has the whole name comes first, even if it is null.
        if branch.item is not None and branch.whole not in fields:
            yield branch.item, value
        if branch.branches and type(value) is dict:
            yield from _behind(branch.branches, value, fields)
