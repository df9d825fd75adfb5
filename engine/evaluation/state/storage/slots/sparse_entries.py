"""Which columns have an entry at a slot outside of their pages."""

from typing import Generic, TypeVar

ColumnT = TypeVar("ColumnT")


class SparseEntries(dict[int, ColumnT | dict[ColumnT, None]], Generic[ColumnT]):
    """For each slot, the columns with an entry there in `few` or `ticks`; a single one without a dict."""

    __slots__ = ()

    def add(self, slot: int, column: ColumnT) -> None:
        """Record that a column has an entry in `few` or `ticks` at a slot."""
        columns = self.get(slot)
        if columns is None:
            self[slot] = column
        elif isinstance(columns, dict):
            columns[column] = None
        elif columns is not column:
            self[slot] = {columns: None, column: None}

    def drop(self, slot: int, column: ColumnT) -> None:
        """Undo `add`."""
        columns = self[slot]
        if columns is column:
            del self[slot]
        elif isinstance(columns, dict):
            del columns[column]
            if not columns:
                del self[slot]

    def at(self, slot: int) -> tuple[ColumnT, ...]:
        """Return the columns with such an entry at a slot."""
        columns = self.get(slot)
        if columns is None:
            return ()
        return tuple(columns) if isinstance(columns, dict) else (columns,)
