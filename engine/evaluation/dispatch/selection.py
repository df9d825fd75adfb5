"""The members that an event selects one by one, so that each runs at most once.

A member with several triggers is in several buckets, and an event may meet more than one of them. Its row is
kept here, as a tuple. The members that an event selects are collected first and then run by shape.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from engine.evaluation.dispatch.compiler import Observe

SelectedRow: TypeAlias = tuple[Any, ...]
"""The constants of a member, the member, and the function of its shape."""

Rows: TypeAlias = dict[int, SelectedRow]
"""Rows by member."""

Selection: TypeAlias = dict[int, dict[Observe, Rows]]
"""Rows by temporal depth and shape: rules under 0, the updates of memories under the depth of their nodes."""

CompileSelected = Callable[[int], SelectedRow]

_PENDING_MAX: Final = 16
"""The most members that wait for the next event to compile them, which takes half a millisecond."""


class SelectedRows:
    """The rows of all members that are selected one by one."""

    __slots__ = ("_compile", "_depths", "_pending", "_rows")

    def __init__(self, compile_member: CompileSelected) -> None:
        self._compile = compile_member
        self._rows: Rows = {}
        self._depths: dict[int, int] = {}
        """The depths of the updates."""
        self._pending: dict[int, None] = {}

    def add(self, member: int, depth: int) -> None:
        """Add a rule with depth 0, or the update of a memory with the temporal depth of its node."""
        if depth:
            self._depths[member] = depth
        self._pending[member] = None
        if len(self._pending) >= _PENDING_MAX:
            self._take_in()

    def remove(self, member: int) -> None:
        """Undo `add`."""
        self._depths.pop(member, None)
        if member in self._pending:
            del self._pending[member]
        else:
            del self._rows[member]

    def row(self, member: int) -> SelectedRow:
        """Give the row of a member."""
        if self._pending:
            self._take_in()
        return self._rows[member]

    def _take_in(self) -> None:
        """Compile the members that are pending, several at a time, so that they are close in memory."""
        for member in self._pending:
            self._rows[member] = self._compile(member)
        self._pending.clear()


def rows_at(depth: int, selections: Sequence[Selection]) -> Iterable[tuple[Observe, Rows]]:
    """Give the rows at a depth that are in some selections, each once, in parts of one shape."""
    found = [selection[depth] for selection in selections if depth in selection]
    if len(found) <= 1:
        return found[0].items() if found else ()
    by_shape: dict[Observe, list[Rows]] = {}
    for shapes in found:
        for observe, rows in shapes.items():
            by_shape.setdefault(observe, []).append(rows)
    return [(observe, part) for observe, parts in by_shape.items() for part in _disjoint(parts)]


def _disjoint(parts: list[Rows]) -> list[Rows]:
    """Give the rows of some parts without repetition. The largest part may be large, and is not copied."""
    if len(parts) == 1:
        return parts
    largest = max(parts, key=len)
    others: Rows = {}
    for part in parts:
        if part is not largest:
            others.update(part)
    for member in others.keys() & largest.keys():
        del others[member]
    return [largest, others]
