"""Finds the texts of an event that patterns are matched against, and arrays that are too long."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.evaluation.facts.look_up import ELEMENTS_MAX
from engine.evaluation.facts.names import FactNames, few_looks


class _Sizes:
    """Tells quickly whether the values of some facts are small: nearly always, all of them are."""

    def __init__(self, kind: type[str] | type[list[Any]], sizes: Mapping[str, int]) -> None:
        """Take the largest size of a small value of each fact. Only values of one type can be large."""
        self._kind = kind
        self._looks = few_looks(sizes)
        self._names: FactNames[int] = FactNames()
        for fact, most in sizes.items():
            self._names.add(fact, most)

    def are_small(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
        kind = self._kind
        if self._looks is None:
            found = self._names.found_in(fields, sent)
            return not any(type(value) is kind and len(value) > most for most, value in found)
        for most, look in self._looks:
            value = look(fields)
            if type(value) is kind and len(value) > most:
                return False
        return True


class Texts:
    """The facts with patterns, each with the smallest length bound of its patterns, in bytes."""

    def __init__(self, bounds: Iterable[tuple[str, int]], chars_max: int) -> None:
        # Sorted so that the smallest bound of each fact comes last, and replaces the others.
        smallest = dict(sorted(bounds, reverse=True))
        self._names: FactNames[tuple[str, int]] = FactNames()
        for fact, bytes_max in smallest.items():
            self._names.add(fact, (fact, bytes_max))
        self._count = len(smallest)
        # A character takes up to four bytes.
        self._sizes = _Sizes(str, {fact: min(chars_max, most // 4) for fact, most in smallest.items()})

    def __len__(self) -> int:
        return self._count

    def are_short(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
        """Tell quickly whether all texts are surely within their bounds and have no more than `chars_max`."""
        return self._sizes.are_small(fields, sent)

    def found_in(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[tuple[str, int, str]]:
        """Return the facts whose values are texts, sorted, each with its bound and the longest text."""
        longest: dict[tuple[str, int], str] = {}
        for name, text in self._names.found_in(fields, sent):
            # Elements of an array may give several.
            if type(text) is str and len(text) >= len(longest.get(name, "")):
                longest[name] = text
        return sorted((fact, bytes_max, text) for (fact, bytes_max), text in longest.items())


class Arrays:
    """The arrays whose elements rules ask about."""

    def __init__(self, facts: Iterable[str]) -> None:
        self._names: FactNames[str] = FactNames()
        sizes = dict.fromkeys(sorted(facts), ELEMENTS_MAX)
        for fact in sizes:
            self._names.add(fact, fact)
        self._sizes = _Sizes(list, sizes)
        self._count = len(sizes)

    def __len__(self) -> int:
        return self._count

    def are_short(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
        """Tell quickly whether none has more elements than are looked at."""
        return self._sizes.are_small(fields, sent)

    def long_in(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, int]:
        """Return those with more elements than are looked at, each with the most that it has in the event."""
        longest: dict[str, int] = {}
        for fact, array in self._names.found_in(fields, sent):
            if type(array) is list and len(array) > max(ELEMENTS_MAX, longest.get(fact, 0)):
                longest[fact] = len(array)
        return longest


NO_TEXTS: Final = Texts((), 0)
"""Those of rules without patterns."""
