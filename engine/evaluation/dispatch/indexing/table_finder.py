"""Finds the key tables that an event has a key for, among many."""

from collections.abc import Collection, Mapping
from typing import Any

from engine.evaluation.facts.names import FactNames
from engine.evaluation.paths import fact_of
from engine.evaluation.state.storage.columns import ColumnTable


class TableFinder:
    """Finds the key tables that an event has a key for. If `every`, it gives them all."""

    def __init__(self, tables: Collection[ColumnTable], *, every: bool) -> None:
        self.every = tables if every else None
        self._names: FactNames[list[ColumnTable]] = FactNames()
        self._entered: list[ColumnTable] = []
        by_key: dict[str, list[ColumnTable]] = {}
        for table in tables:
            by_key.setdefault(fact_of(table.path[-1]), []).append(table)
            table.leave()
        for fact, of_key in by_key.items():
            self._names.add(fact, of_key)

    def switch_to(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Collection[ColumnTable]:
        """Return the tables whose last key has a value. All other tables leave the previous event."""
        if self.every is not None:
            return self.every
        for table in self._entered:
            table.leave()
        self._entered = [table for tables, _ in self._names.found_in(fields, sent) for table in tables]
        return self._entered


def table_finders(tables: Collection[ColumnTable], *, every: bool) -> tuple[TableFinder, TableFinder | None]:
    """Return two finders: of the tables without a `where`, and of those whose `where` comes first."""
    plain = [table for table in tables if not table.filtered]
    late = [table for table in tables if table.filtered]
    return TableFinder(plain, every=every), TableFinder(late, every=every) if late else None
