"""Groups the rules and updates that are evaluated together: by shape, as rows of one loop."""

from array import array
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self, TypeAlias

from engine.evaluation.kernel.selection.selected_rows import (
    PENDING_MAX,
    Observe,
    Row,
    SelectedRow,
    SelectedRows,
)
from engine.evaluation.kernel.selection.triggers import Known

_ARRAY_INT_MAX: Final = (1 << 63) - 1

Compile = Callable[[int, Known | None], Row]
"""Compiles a member for events of which `Known` is known. The number of a rule is its priority, that of an
update is below 0."""


Numbers: TypeAlias = "array[int] | array[float] | list[Any]"
"""One constant of each row."""


class Group(NamedTuple):
    """The rows of one shape in a bucket."""

    stage: int
    """See `update_stage`."""
    observe: Observe
    constants: list[Numbers]
    """The constants of the first test, by column. Columns of numbers are arrays, which are contiguous."""
    rest: list[Any]
    """The other constants, row after row; each row ends with its member."""
    width: int
    """The length of a row in `rest`."""

    @classmethod
    def like(cls, stage: int, row: Row) -> Self:
        """Return an empty group for rows of one shape."""
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
        """Remove the row of a member. Tell whether there was one."""
        priorities = self.rest[self.width - 1 :: self.width]
        if priority not in priorities:
            return False
        row = priorities.index(priority)
        for column in self.constants:
            del column[row]
        del self.rest[row * self.width : (row + 1) * self.width]
        return True


def _type_code(value: Any) -> str | None:
    """Return the type code of an array that can hold the value, or None."""
    if type(value) is int:
        return "q" if -_ARRAY_INT_MAX <= value <= _ARRAY_INT_MAX else None
    return "d" if type(value) is float else None


class Bucket:
    """The members of one trigger: rules to evaluate, and memories to update.

    New members are compiled several at a time, so that the constants of one bucket are close in memory. With
    a hundred thousand rules, evaluating fifty that are scattered takes several times as long.
    """

    __slots__ = ("_compile", "_known", "_selected", "groups", "pending", "several", "size")

    def __init__(self, compile_member: Compile, selected: SelectedRows, known: Known | None = None) -> None:
        self._compile = compile_member
        self._selected = selected
        self._known = known
        self.groups: dict[tuple[int, Observe], Group] = {}
        """The rows, by stage and shape."""
        self.several: dict[int, dict[Observe, dict[int, SelectedRow]]] = {}
        """The members with several triggers. Their rows are in `SelectedRows`."""
        self.pending: list[tuple[int, int, bool]] = []
        self.size = 0

    def add(self, member: int, stage: int, *, several: bool = False) -> None:
        """Add a rule, or the update of a memory, with its stage.

        `several` tells whether an event may meet more than one bucket of this member.
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
        """Compile the members that are pending."""
        while self.pending:
            member, stage, several = self.pending.pop(0)
            if several:
                row = self._selected.row(member)
                self.several.setdefault(stage, {}).setdefault(row[-1], {})[member] = row
                continue
            compiled = self._compile(member, self._known)
            name = stage, compiled.observe
            group = self.groups.get(name)
            if group is None:
                group = self.groups[name] = Group.like(stage, compiled)
            group.add(compiled.constants, [*compiled.rest, member])
