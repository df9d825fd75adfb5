"""The buckets of the index: rules and updates that are evaluated together, by shape, as rows of one loop.

A member with several triggers is in several buckets, and an event may meet more than one of them. Its row is
kept once, as a tuple. An event's rows of this kind are first collected and then run by shape; see `running`.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias

from engine.evaluation.facts.relations import Relations
from engine.evaluation.kernel.buckets.triggers import Known

Values = Mapping[str, Any]

Fire = Callable[[int], None]
"""Called with the priority of each rule that fires."""

Observe = Callable[[list[Any], Iterable[Any], Values, Values, int, int, Relations | None, Fire], None]
"""Evaluates an event for rows of one shape: (constants, rest, fields, vars, stamp of the event's time, number
of the event, relations, fire)."""


class Row(NamedTuple):
    """The function of a shape, and the constants of one row.

    `rest` holds the constants that are read only if the first test succeeds; for rows selected one by one,
    all constants.
    """

    observe: Observe
    constants: list[Any]
    rest: list[Any]


SelectedRow: TypeAlias = tuple[Any, ...]
"""The constants of a member, the member, and the function of its shape."""

Rows: TypeAlias = dict[int, SelectedRow] | list[SelectedRow]
"""Rows without duplicates; in a dict by member."""

Shapes: TypeAlias = Mapping[Observe, Rows]
"""Rows by the function of their shape."""

Place: TypeAlias = tuple[int, bool]
"""The stage of a member, and whether an event may select it more than once."""

RowsByPlace: TypeAlias = dict[Place, list[SelectedRow]]
"""The rows that an event has selected, by place."""

member_of: Final = itemgetter(-2)
"""Returns the member of a row."""

PENDING_MAX: Final = 16
"""The maximum number of members not yet compiled. The next event compiles them, in half a millisecond."""


class Compile(Protocol):
    """Compiles a member for events of which `known` is known; for `selected` see `Row`."""

    def __call__(self, number: int, known: Known | None, *, selected: bool) -> Row:
        """Return the row of a member. A rule's number is its priority; others have negative numbers."""


class SelectedRows:
    """The rows of members with several triggers. Rows of other members are compiled on request."""

    __slots__ = ("_compile", "_pending", "_rows")

    def __init__(self, compile_member: Compile) -> None:
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
        """Return the row of a member; for a member with one trigger, for events of which `known` is known."""
        self._compile_pending()
        return self._rows.get(member) or self._compiled(member, known)

    def _compile_pending(self) -> None:
        """Compile the pending members together, so that they are close in memory."""
        for member in self._pending:
            self._rows[member] = self._compiled(member, None)
        self._pending.clear()

    def _compiled(self, member: int, known: Known | None) -> SelectedRow:
        observe, _, constants = self._compile(member, known, selected=True)
        return (*constants, member, observe)


Numbers: TypeAlias = "array[int] | array[float] | list[Any]"
"""One constant of each row."""


class Group(NamedTuple):
    """The rows of one shape in a bucket."""

    stage: int
    """Lower stages are evaluated first; see `Member`."""
    observe: Observe
    constants: list[Numbers]
    """The constants of the first test, by column. Columns of numbers are contiguous arrays."""
    rest: list[Any]
    """The other constants, row by row. Each row ends with its member."""
    width: int
    """The length of a row in `rest`."""

    @classmethod
    def like(cls, stage: int, row: Row) -> Self:
        """Return an empty group for rows of the same shape."""
        return cls(stage, row.observe, [[] for _ in row.constants], [], len(row.rest) + 1)

    def add(self, constants: list[Any], rest: list[Any]) -> None:
        """Add a row."""
        assert len(constants) == len(self.constants), "rules of one shape have as many constants"
        assert len(rest) == self.width, "rules of one shape have as many constants"
        for place, value in enumerate(constants):
            column, kind = self.constants[place], _type_code(value)
            if not column and kind is not None:
                column = self.constants[place] = array(kind)
            elif isinstance(column, array) and column.typecode != kind:
                column = self.constants[place] = list(column)
            column.append(value)
        self.rest.extend(rest)

    def remove(self, priority: int) -> bool:
        """Remove the row of a member. Return whether there was one."""
        priorities = self.rest[self.width - 1 :: self.width]
        if priority not in priorities:
            return False
        row = priorities.index(priority)
        for column in self.constants:
            del column[row]
        del self.rest[row * self.width : (row + 1) * self.width]
        return True


_ARRAY_INT_MAX: Final = (1 << 63) - 1


def _type_code(value: Any) -> str | None:
    """Return the type code of an array that can hold the value, or None."""
    if type(value) is int:
        return "q" if -_ARRAY_INT_MAX <= value <= _ARRAY_INT_MAX else None
    return "d" if type(value) is float else None


@dataclass(slots=True, eq=False)
class Bucket:
    """The members with one trigger in common: rules to evaluate, and memories to update.

    New members are compiled several at a time, so that the constants of one bucket are close in memory. With
    a hundred thousand rules, evaluating fifty scattered ones takes several times as long.
    """

    _compile: Compile
    _selected: SelectedRows
    _known: Known | None = None
    groups: dict[tuple[int, Observe], Group] = field(default_factory=dict)
    """The rows, by stage and shape."""
    several: dict[int, dict[Observe, dict[int, SelectedRow]]] = field(default_factory=dict)
    """The members with several triggers. Their rows are in `SelectedRows`."""
    pending: list[tuple[int, int, bool]] = field(default_factory=list)
    size: int = 0

    def add(self, member: int, stage: int, *, several: bool = False) -> None:
        """Add a rule, or the update of a memory, with its stage.

        `several` tells whether an event may meet more than one bucket with this member.
        """
        self.size += 1
        self.pending.append((member, stage, several))
        if len(self.pending) >= PENDING_MAX:
            self.take_in()

    def remove(self, member: int, stage: int, *, several: bool = False) -> None:
        """Undo `add`."""
        self.size -= 1
        if (member, stage, several) in self.pending:
            self.pending.remove((member, stage, several))
            return
        if several:
            self._remove_selected(member, stage)
            return
        for name, group in self.groups.items():
            if group.stage == stage and group.remove(member):
                if not group.rest:
                    del self.groups[name]
                return
        raise AssertionError(member)

    def _remove_selected(self, member: int, stage: int) -> None:
        observe = self._selected.row(member)[-1]
        shapes = self.several[stage]
        del shapes[observe][member]
        if not shapes[observe]:
            del shapes[observe]
            if not shapes:
                del self.several[stage]

    def take_in(self) -> None:
        """Compile the pending members."""
        while self.pending:
            member, stage, several = self.pending.pop(0)
            if several:
                row = self._selected.row(member)
                self.several.setdefault(stage, {}).setdefault(row[-1], {})[member] = row
                continue
            compiled = self._compile(member, self._known, selected=False)
            name = stage, compiled.observe
            group = self.groups.get(name)
            if group is None:
                group = self.groups[name] = Group.like(stage, compiled)
            group.add(compiled.constants, [*compiled.rest, member])
