"""Finds what an event has values for, among many names: key tables by their last key, texts to match."""

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any

from engine.evaluation.facts.names import Names
from engine.evaluation.facts.values import split_name
from engine.evaluation.paths import fact_of
from engine.evaluation.state.tables import KeyTable


class Turning:
    """Finds the few key tables that an event has a key for, among many. If `every`, they are all turned."""

    def __init__(self, tables: Collection[KeyTable], *, every: bool) -> None:
        self.every = tables if every else None
        self._of_fields: Names[list[KeyTable]] = Names()
        self._of_vars: Names[list[KeyTable]] = Names()
        self._turned: list[KeyTable] = []
        by_key: dict[str, list[KeyTable]] = {}
        for table in tables:
            by_key.setdefault(fact_of(table.path[-1]), []).append(table)
            table.leave()
        for said, of_key in by_key.items():
            name = split_name(said)
            (self._of_vars if name.of_vars else self._of_fields).add(name, of_key)

    def tables_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Collection[KeyTable]:
        """Return the tables whose last key has a value. All other tables leave the previous event."""
        if self.every is not None:
            return self.every
        for table in self._turned:
            table.leave()
        found = chain(self._of_fields.found_in(fields), self._of_vars.found_in(sent))
        self._turned = [table for tables, _ in found for table in tables]
        return self._turned


def turnings(tables: Collection[KeyTable], *, every: bool) -> tuple[Turning, Turning | None]:
    """Return the tables that turn to each event, and those that first wait for what decides about it."""
    plain = [table for table in tables if not table.filtered]
    late = [table for table in tables if table.filtered]
    return Turning(plain, every=every), Turning(late, every=every) if late else None


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
