"""Finds the texts of an event that patterns are matched against, and arrays that are too long."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.evaluation.facts.look_up import ELEMENTS_MAX, OF_ELEMENTS
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

    def __len__(self) -> int:
        return self._count

    def are_short(self, fields: Mapping[str, Any], sent: Mapping[str, Any], chars_max: int) -> bool:
        """Tell quickly whether all texts are surely within their bounds and of at most `chars_max`."""
        for (_, bytes_max), text in self._names.found_in(fields, sent):
            # A character takes up to four bytes.
            if type(text) is str and (len(text) > chars_max or 4 * len(text) > bytes_max):
                return False
        return True

    def found_in(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[tuple[str, int, str]]:
        """Return the facts whose values are texts, sorted, each with its bound and the longest text."""
        longest: dict[tuple[str, int], str] = {}
        for name, text in self._names.found_in(fields, sent):
            # Elements of an array may give several.
            if type(text) is str and len(text) >= len(longest.get(name, "")):
                longest[name] = text
        return sorted((fact, bytes_max, text) for (fact, bytes_max), text in longest.items())


_ASKED_FOR_MAX: Final = 8
"""So few names are looked up one by one."""


class Arrays:
    """The arrays whose elements rules ask about."""

    def __init__(self, facts: Iterable[str]) -> None:
        self._facts = sorted(facts)
        self._names: FactNames[str] = FactNames()
        for fact in self._facts:
            self._names.add(fact, fact)
        has_marks = any(mark in fact for fact in self._facts for mark in (".", "$", OF_ELEMENTS))
        self._are_plain = len(self._facts) <= _ASKED_FOR_MAX and not has_marks

    def __len__(self) -> int:
        return len(self._facts)

    def long_in(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, int]:
        """Return those with more elements than are looked at, each with the most that it has in the event."""
        longest: dict[str, int] = {}
        if self._are_plain:
            # Nearly always the answer is that there are none, which costs little so.
            found: Iterable[tuple[str, Any]] = [(fact, fields.get(fact)) for fact in self._facts]
        else:
            found = self._names.found_in(fields, sent)
        for fact, array in found:
            if type(array) is list and len(array) > max(ELEMENTS_MAX, longest.get(fact, 0)):
                longest[fact] = len(array)
        return longest


NO_TEXTS: Final = Texts(())
"""Those of rules without patterns."""
