"""Finds the texts of an event that patterns are matched against."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.evaluation.facts.names import FactNames


class Texts:
    """The facts with patterns, each with the smallest length bound of its patterns, in bytes."""

    def __init__(self, bounds: Iterable[tuple[str, int]]) -> None:
        # Sorted so that the smallest bound of each fact comes last, and replaces the others.
        smallest = dict(sorted(bounds, reverse=True))
        self._names: FactNames[tuple[str, int]] = FactNames()
        for fact, bytes_max in smallest.items():
            self._names.add(fact, (fact, bytes_max))
        self._count = len(smallest)
        self._least_bytes = min(smallest.values(), default=0)

    def __len__(self) -> int:
        return self._count

    def are_short(self, fields: Mapping[str, Any], sent: Mapping[str, Any], chars_max: int) -> bool:
        """Tell quickly whether all texts are surely within their bounds and of at most `chars_max`."""
        # A character takes up to four bytes.
        most = min(chars_max, self._least_bytes // 4)
        found = self._names.found_in(fields, sent)
        return not any(type(text) is str and len(text) > most for _, text in found)

    def found_in(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[tuple[str, int, str]]:
        """Return the facts whose values are texts, sorted, each with its bound and the text."""
        found = self._names.found_in(fields, sent)
        return sorted((fact, bytes_max, text) for (fact, bytes_max), text in found if type(text) is str)


NO_TEXTS: Final = Texts(())
"""Those of rules without patterns."""
