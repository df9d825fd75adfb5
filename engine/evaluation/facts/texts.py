"""Finds the texts of an event that patterns are matched against."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from engine.evaluation.facts.names import Names
from engine.evaluation.facts.values import split_name


class Texts:
    """The facts with patterns, each with the smallest length bound of its patterns, in bytes."""

    def __init__(self, bounds: Iterable[tuple[str, int]]) -> None:
        self._of_fields: Names[tuple[str, int]] = Names()
        self._of_vars: Names[tuple[str, int]] = Names()
        # The smallest bound of a fact comes last, so it is the one that remains.
        smallest = dict(sorted(bounds, reverse=True))
        for said, bytes_max in smallest.items():
            name = split_name(said)
            (self._of_vars if name.of_vars else self._of_fields).add(name, (said, bytes_max))

        self._count = len(smallest)
        self._least_bytes = min(smallest.values(), default=0)

    def __len__(self) -> int:
        return self._count

    def are_short(self, fields: Mapping[str, Any], sent: Mapping[str, Any], chars_max: int) -> bool:
        """Tell quickly whether all texts are surely within their bounds and of at most `chars_max`."""
        # A character takes up to four bytes.
        most = min(chars_max, self._least_bytes // 4)
        for names, values in ((self._of_fields, fields), (self._of_vars, sent)):
            for _, text in names.found_in(values):
                if type(text) is str and len(text) > most:
                    return False
        return True

    def found_in(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[tuple[str, int, str]]:
        """Return the facts whose values are texts, sorted, each with its bound and the text."""
        found = chain(self._of_fields.found_in(fields), self._of_vars.found_in(sent))
        return sorted((said, bytes_max, text) for (said, bytes_max), text in found if type(text) is str)
