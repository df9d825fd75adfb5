"""The members that an event selects one by one, so that each runs at most once.

A member with several triggers is in several buckets, and an event may meet more than one of them. Its row is
kept here, as a tuple. The members that an event selects are collected first and then run by shape.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, Self, TypeAlias

from engine.evaluation.facts.relations import Relations
from engine.evaluation.kernel.selection.triggers import Known

Values = Mapping[str, Any]

Fire = Callable[[int], None]
"""Called with the priority of each rule that fires."""

Observe = Callable[[list[Any], Iterable[Any], Values, Values, int, int, Relations | None, Fire], None]
"""Evaluates an event for rows of one shape: (constants, rest, fields, vars, the stamp of its time, number of
the event, relations, fire)."""


class Row(NamedTuple):
    """The function that a shape shares, and the constants of one row.

    `rest` holds the constants that are read only if the first test succeeds. For rows that are selected one
    by one, it holds all constants.
    """

    observe: Observe
    constants: list[Any]
    rest: list[Any]


SelectedRow: TypeAlias = tuple[Any, ...]
"""The constants of a member, the member, and the function of its shape."""

Rows: TypeAlias = dict[int, SelectedRow] | list[SelectedRow]
"""Rows, each once; in a dict by member."""

Shapes: TypeAlias = Mapping[Observe, Rows]
"""Rows by the function of their shape."""

Selection: TypeAlias = Mapping[int, Shapes]
"""The rows by stage and by the function of their shape; see `requirements.update_stage`."""

Place: TypeAlias = tuple[int, bool]
"""The stage of a member, and whether an event may select it more than once."""

RowsByPlace: TypeAlias = dict[Place, list[SelectedRow]]
"""The rows that an event has selected, by place."""

Loop: TypeAlias = tuple[int, Observe, list[Any], Iterable[Any], int]
"""The stage, function, columns and rest of the rows of one shape; and the length of a row in the rest, 0 if
each is a tuple."""

CompileSelected = Callable[[int, Known | None], SelectedRow]

member_of: Final = itemgetter(-2)
"""Gives the member of a row."""

PENDING_MAX: Final = 16
"""The most members that wait for the next event to compile them, which takes half a millisecond."""


class SelectedRows:
    """The rows of members with several triggers. Those of other members are compiled when asked for."""

    __slots__ = ("_compile", "_pending", "_rows")

    def __init__(self, compile_member: CompileSelected) -> None:
        self._compile = compile_member
        self._rows: dict[int, SelectedRow] = {}
        self._pending: dict[int, None] = {}

    def add(self, member: int) -> None:
        """Add a member with several triggers."""
        self._pending[member] = None
        if len(self._pending) >= PENDING_MAX:
            self._compile_pending()

    def remove(self, member: int) -> None:
        """Undo `add`."""
        if member in self._pending:
            del self._pending[member]
        else:
            del self._rows[member]

    def row(self, member: int, known: Known | None = None) -> SelectedRow:
        """Return the row of a member; if it has one trigger, for events of which `known` is known."""
        self._compile_pending()
        return self._rows.get(member) or self._compile(member, known)

    def _compile_pending(self) -> None:
        """Compile the members that are pending, several at a time, so that they are close in memory."""
        for member in self._pending:
            self._rows[member] = self._compile(member, None)
        self._pending.clear()


class Selected(NamedTuple):
    """What an event selects, in the form of a bucket."""

    several: Selection
    groups: Mapping[Any, Loop]
    pending: tuple[()] = ()

    @classmethod
    def of(cls, found: RowsByPlace) -> Self:
        """Return what was found."""
        several: dict[int, Shapes] = {}
        groups: dict[Any, Loop] = {}
        for (stage, repeated), rows in found.items():
            if repeated:
                several[stage] = _by_shape({member_of(row): row for row in rows}.values())
            else:
                for observe, of_shape in _by_shape(rows).items():
                    groups[stage, observe] = loop_over(stage, observe, of_shape)
        return cls(several, groups)


def _by_shape(rows: Iterable[SelectedRow]) -> dict[Observe, list[SelectedRow]]:
    found: dict[Observe, list[SelectedRow]] = {}
    for row in rows:
        of_shape = found.get(row[-1])
        if of_shape is None:
            found[row[-1]] = [row]
        else:
            of_shape.append(row)
    return found


def loop_over(stage: int, observe: Observe, rows: Iterable[SelectedRow]) -> Loop:
    """Return the loop over rows that are selected one by one."""
    return stage, observe, _NO_COLUMNS, rows, 0


_NO_COLUMNS: Final[list[Any]] = []


def each_once(selected: Sequence[Shapes]) -> Iterable[tuple[Observe, Collection[SelectedRow]]]:
    """Yield the rows that were selected, each once, in parts of one shape."""
    by_shape: dict[Observe, list[Rows]] = {}
    for shapes in selected:
        for observe, rows in shapes.items():
            by_shape.setdefault(observe, []).append(rows)
    for observe, parts in by_shape.items():
        for part in parts if len(parts) == 1 else _disjoint(parts):
            yield observe, part if isinstance(part, list) else part.values()


def _disjoint(parts: list[Rows]) -> list[Rows]:
    """Return the rows of some parts without repetition. The largest part may be large, and is not copied."""
    dicts = [part if isinstance(part, dict) else {member_of(row): row for row in part} for part in parts]
    *smaller, largest = sorted(dicts, key=len)
    others: dict[int, SelectedRow] = {}
    for part in smaller:
        others.update(part)
    for member in others.keys() & largest.keys():
        del others[member]
    return [largest, others]
