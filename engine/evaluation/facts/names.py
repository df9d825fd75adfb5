"""Looks up many names in an event at once, by iterating over the names or the values, whichever are fewer."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from engine.evaluation.facts.look_up import (
    ELEMENTS_MAX,
    OF_ELEMENTS,
    RUNS_PARTS_MAX,
    Look,
    Name,
    fields_of_element,
    split_elements,
    split_name,
)
from engine.language.condition import STRINGS

T = TypeVar("T")


LOOKED_UP_MAX: Final = 8
"""Up to this many facts are looked up one by one."""


class _Branch(Generic[T]):
    """The dotted names that share a prefix of steps."""

    __slots__ = ("above", "item", "runs", "steps", "whole")

    def __init__(self, above: "tuple[_Branch[T], ...]" = (), whole: str = "") -> None:
        self.whole = whole
        """The prefix."""
        self.above = above
        """The branches of the shorter prefixes."""
        self.item: T | None = None
        """The item of the name that equals the prefix, if any."""
        self.steps: dict[str, _Branch[T]] = {}
        """The branches one step further."""
        self.runs: dict[str, _Branch[T]] = {}
        """The branches several steps further, by those steps; at the root, only those with further steps."""


class FactNames(Generic[T]):
    """Items by fact: of fields, of vars (`$` names), and of elements of arrays."""

    __slots__ = ("_arrays", "_inside", "of_fields", "of_vars")

    def __init__(self) -> None:
        self.of_fields: Names[T] = Names()
        self.of_vars: Names[T] = Names()
        self._inside: dict[str, FactNames[T]] = {}
        """The items in the elements of each array."""
        self._arrays: FactNames[FactNames[T]] | None = None
        """The same by the array's fact, to find the arrays in an event."""

    @property
    def of_elements(self) -> bool:
        """Whether there are facts of elements, of which an event may have several values."""
        return bool(self._inside)

    def add(self, fact: str, item: T) -> None:
        """Add a fact, or replace its item."""
        array, inside = split_elements(fact)
        if inside:
            if array not in self._inside:
                self._inside[array] = FactNames()
                self._arrays = self._arrays or FactNames()
                self._arrays.add(array, self._inside[array])
            self._inside[array].add(inside, item)
            return
        name = split_name(fact)
        (self.of_vars if name.of_vars else self.of_fields).add(name, item)

    def remove(self, fact: str) -> None:
        """Remove a fact."""
        array, inside = split_elements(fact)
        if inside:
            self._inside[array].remove(inside)
            if not self._inside[array]:
                del self._inside[array]
                assert self._arrays is not None, "it has all arrays"
                self._arrays.remove(array)
            return
        name = split_name(fact)
        (self.of_vars if name.of_vars else self.of_fields).remove(name)

    def found_in(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[tuple[T, Any]]:
        """Return each item whose fact has a value in the event, with the value; of elements, one for each."""
        found = self.of_fields.found_in(fields)
        if sent:
            found += self.of_vars.found_in(sent)
        if self._arrays is not None:
            for inside, array in self._arrays.found_in(fields, sent):
                if type(array) is list and len(array) <= ELEMENTS_MAX:
                    for element in array:
                        found += inside.found_in(fields_of_element(element), _NOTHING)
        return found

    def __bool__(self) -> bool:
        return bool(self.of_fields or self.of_vars or self._inside)


class Names(Generic[T]):
    """Items by name: of fields only, or of vars only."""

    __slots__ = ("_dotted", "_far", "_plain", "_root")

    def __init__(self) -> None:
        self._plain: dict[str, T] = {}
        """Items by name without dots."""
        self._dotted: dict[str, T] = {}
        self._root: _Branch[T] = _Branch()
        """The items of `_dotted` as a tree by the steps of their names."""
        self._far: dict[str, tuple[Name, T]] = {}
        """The items of names that are looked up one by one."""

    def add(self, name: Name, item: T) -> None:
        """Add a name, or replace its item."""
        if not name.steps:
            self._plain[name.whole] = item
        elif _is_far(name):
            self._far[name.whole] = name, item
        else:
            self._dotted[name.whole] = item
            passed, steps = [self._root], name.steps
            for place, step in enumerate(steps):
                branch = passed[-1].steps.get(step)
                if branch is None:
                    whole = ".".join(steps[: place + 1])
                    branch = passed[-1].steps[step] = _Branch((*passed,), whole)
                    for start in range(1, place):
                        passed[start].runs[".".join(steps[start : place + 1])] = branch
                if 1 <= place < len(steps) - 1:
                    self._root.runs[branch.whole] = branch
                passed.append(branch)
            passed[-1].item = item

    def remove(self, name: Name) -> None:
        """Remove a name."""
        steps = name.steps
        if not steps:
            del self._plain[name.whole]
            return
        if _is_far(name):
            del self._far[name.whole]
            return
        del self._dotted[name.whole]
        passed = [self._root]
        for step in steps:
            passed.append(passed[-1].steps[step])
        passed[-1].item = None
        while len(passed) > 1 and passed[-1].item is None and not passed[-1].steps:
            passed.pop()
            place = len(passed) - 1
            del passed[-1].steps[steps[place]]
            for start in range(1, place):
                del passed[start].runs[".".join(steps[start : place + 1])]
            if not passed[-1].steps:
                self._root.runs.pop(passed[-1].whole, None)

    def __bool__(self) -> bool:
        return bool(self._plain or self._dotted or self._far)

    def found_in(self, values: Mapping[str, Any]) -> list[tuple[T, Any]]:
        """Return each item whose name has a value, with the value; see `look_up`."""
        found = _common(self._plain, values)
        if self._dotted:
            found += _common(self._dotted, values)
            _find_behind(self._root, values, values, found, _NONE)
        for name, item in self._far.values():
            value = name.look(values)
            if value is not None:
                found.append((item, value))
        return found


def few_looks(items: Mapping[str, T]) -> list[tuple[T, Look]] | None:
    """Return the items with the look-ups of their facts. None if many, or not all of fields."""
    if len(items) > LOOKED_UP_MAX or any(fact[:1] == "$" or OF_ELEMENTS in fact for fact in items):
        return None
    return [(item, split_name(fact).look) for fact, item in items.items()]


def _is_far(name: Name) -> bool:
    """Return whether a name has too many steps for the tree, or stands for all strings."""
    return len(name.steps) > RUNS_PARTS_MAX or name.whole == STRINGS


_NONE: Final[frozenset[Any]] = frozenset()
_NOTHING: Final[Mapping[str, Any]] = {}


def _common(names: Mapping[str, T], values: Mapping[str, Any]) -> list[tuple[T, Any]]:
    found = []
    # For so few items, a loop takes half the time of a comprehension.
    if len(names) <= len(values):
        for name, item in names.items():
            value = values.get(name)
            if value is not None:
                found.append((item, value))
    else:
        for name, value in values.items():
            if value is not None and name in names:
                found.append((names[name], value))
    return found


def _reached(names: Mapping[str, T], values: Mapping[str, Any]) -> list[tuple[T, Any]]:
    """Like `_common`, including names whose value is `null`."""
    if len(names) <= len(values):
        return [(item, values[name]) for name, item in names.items() if name in values]
    return [(names[name], value) for name, value in values.items() if name in names]


def _find_behind(
    branch: _Branch[T],
    values: Mapping[str, Any],
    fields: Mapping[str, Any],
    found: list[tuple[T, Any]],
    excluded: frozenset[_Branch[T]],
) -> None:
    """Add the items behind a branch whose names lead to values in an object, but are not fields as a whole.

    Excluded branches are reached by longer runs from an enclosing object.
    """
    reached = _common(branch.steps, values)
    longer = _reached(branch.runs, values) if branch.runs else None
    behind: dict[_Branch[T], list[_Branch[T]]] | None = None
    for each, value in reached + longer if longer else reached:
        if excluded and (each in excluded or not excluded.isdisjoint(each.above)):
            continue
        if value is not None and each.item is not None and each.whole not in fields:
            found.append((each.item, value))
        if each.steps and type(value) is dict:
            elsewhere = excluded
            if longer:
                behind = behind or _behind(longer)
                elsewhere = excluded.union(behind.get(each, ()))
            _find_behind(each, value, fields, found, elsewhere)


def _behind(reached: Iterable[tuple[_Branch[T], Any]]) -> dict[_Branch[T], list[_Branch[T]]]:
    """Return the reached branches, grouped by each of their ancestors."""
    behind: dict[_Branch[T], list[_Branch[T]]] = {}
    for each, _ in reached:
        for before in each.above:
            behind.setdefault(before, []).append(each)
    return behind
