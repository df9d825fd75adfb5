"""Finds the slices that an event may enter."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from engine.evaluation.facts.names import FactNames
from engine.evaluation.paths import fact_of
from engine.evaluation.slices.slices import Slices

VISITED_ALL_MAX: Final = 8
"""The slices of so many paths are given for every event; of more paths, those for whose last key an event has
a value."""


class SlicesFinder:
    """The slices of some paths with keys."""

    def __init__(self, slices: Collection[Slices]) -> None:
        self._every = slices if len(slices) <= VISITED_ALL_MAX else None
        self._names: FactNames[list[Slices]] = FactNames()
        self._given: Collection[Slices] = slices
        by_key: dict[str, list[Slices]] = {}
        for each in slices:
            by_key.setdefault(fact_of(each.path[-1]), []).append(each)
        for fact, of_key in by_key.items():
            self._names.add(fact, of_key)

    def switch_to(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Collection[Slices]:
        """Return the slices that an event may enter. All others have no key."""
        if self._every is not None:
            return self._every
        for each in self._given:
            each.leave()
        self._given = [each for found, _ in self._names.found_in(fields, sent) for each in found]
        return self._given
