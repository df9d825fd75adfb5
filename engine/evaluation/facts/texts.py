"""Finds values of an event that may be too large: texts with patterns, and arrays."""

from collections.abc import Iterable, Mapping
from typing import Any

from engine.evaluation.facts.look_up import ELEMENTS_MAX
from engine.evaluation.facts.names import FactNames, few_looks


class Sizes:
    """Some facts with values of one type, texts or arrays, and the maximum size that is looked at."""

    def __init__(
        self, kind: type[str] | type[list[Any]], bounds: Mapping[str, int], sizes: Mapping[str, int]
    ) -> None:
        """Take the bound of each fact, and the largest size that is certainly within it."""
        self._kind, self._bounds = kind, bounds
        self._looks = few_looks(sizes)
        self._names: FactNames[tuple[str, int]] = FactNames()
        for fact, most in sizes.items():
            self._names.add(fact, (fact, most))

    def __len__(self) -> int:
        return len(self._bounds)

    def are_small(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
        """Return quickly whether all values are certainly within their bounds, as they nearly always are."""
        kind = self._kind
        if self._looks is None:
            found = self._names.found_in(fields, sent)
            return not any(type(value) is kind and len(value) > most for (_, most), value in found)
        for most, look in self._looks:
            value = look(fields)
            if type(value) is kind and len(value) > most:
                return False
        return True

    def largest_in(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[tuple[str, int, Any]]:
        """Return the facts with such a value, sorted, each with its bound and its largest value."""
        largest: dict[str, Any] = {}
        for (fact, _), value in self._names.found_in(fields, sent):
            # Elements of an array may give several.
            if type(value) is self._kind and len(value) >= len(largest.get(fact, ())):
                largest[fact] = value
        return [(fact, self._bounds[fact], largest[fact]) for fact in sorted(largest)]


def texts(bounds: Iterable[tuple[str, int]], chars_max: int) -> Sizes:
    """Return the facts with patterns, each with the smallest bound of its patterns, in bytes."""
    # Sorted so that the smallest bound of each fact comes last, and replaces the others.
    smallest = dict(sorted(bounds, reverse=True))
    # A character takes up to four bytes.
    return Sizes(str, smallest, {fact: min(chars_max, most // 4) for fact, most in smallest.items()})


def arrays(facts: Iterable[str]) -> Sizes:
    """Return the arrays whose elements rules use."""
    bounds = dict.fromkeys(sorted(facts), ELEMENTS_MAX)
    return Sizes(list, bounds, bounds)
