"""Rows: rules and memories of one shape share a function, and each has its own constants."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from engine.evaluation.facts.relations import Relations

Values = Mapping[str, Any]

Fire = Callable[[int], None]
"""Called with the priority of each rule that fires."""

Observe = Callable[[list[Any], Iterable[Any], Values, Values, int, int, Relations | None, Fire], None]
"""Evaluates an event for rows of one shape: (constants, rest, fields, vars, the stamp of its time, number of
the event, relations, fire)."""


class Row(NamedTuple):
    """The function that a shape shares, and the constants of one row.

    `rest` holds the constants that are read only if the first test succeeds. For rows that are selected one
    by one, it holds all constants.
    """

    observe: Observe
    constants: list[Any]
    rest: list[Any]
