"""Groups and runs the rules and updates that are evaluated together: by shape, as rows of one loop."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, Self, TypeAlias

from engine.evaluation.facts.relations import Relations
from engine.evaluation.kernel.selection.selected_rows import (
    PENDING_MAX,
    Fire,
    Loop,
    Observe,
    Row,
    Selected,
    SelectedRow,
    SelectedRows,
    Shapes,
    each_once,
    loop_over,
)
from engine.evaluation.kernel.selection.triggers import Known
from engine.evaluation.slices.slices import Slices

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


class SliceTest(NamedTuple):
    """Slices with filtered keys, and the row that fires if an event with those keys belongs to one."""

    stage: int
    """The stage of the last updates on which the row depends."""
    slices: Slices
    row: Group

    @classmethod
    def of(cls, stage: int, slices: Slices, row: Row) -> Self:
        """Return a slice test whose row assumes nothing about the event."""
        group = Group.like(stage, row)
        group.add(row.constants, [*row.rest, 0])
        return cls(stage, slices, group)

    def enter(self, *event: Any) -> Sequence[Bucket]:
        """Have an event enter its slice, and return the buckets that it then meets.

        The event is given as to `run`, from its fields to its relations.
        """
        fields, sent, now_us, tick, relations = event
        belongs: list[int] = []
        _, observe, constants, rest, _ = self.row
        observe(constants, rest, fields, sent, now_us, tick, relations, belongs.append)
        if not belongs:
            self.slices.leave()
            return ()
        self.slices.enter(fields, sent)
        return self.slices.meet()


def run(  # noqa: PLR0917 -- keyword arguments would cost more than many rules
    met: Sequence[Bucket | Selected],
    tests: Sequence[SliceTest],
    fields: Mapping[str, Any],
    sent: Mapping[str, Any],
    now_us: int,
    tick: int,
    relations: Relations | None,
    fire: Fire,
) -> None:
    """Evaluate an event for the buckets that it meets and what it selects, each member once.

    Each stage is complete before the next. Between them, the event enters the slices that have waited for
    updates, in the order of their stages.
    """
    groups: list[Loop] = []
    selections: dict[int, list[Shapes]] = {}
    for test in (*tests, None) if tests else _NO_TEST:
        for bucket in met:
            if bucket.pending:
                bucket.take_in()
            groups += bucket.groups.values()
            if bucket.several:
                for stage, shapes in bucket.several.items():
                    selections.setdefault(stage, []).append(shapes)
        # At most events no slices have waited, and nothing is selected.
        due = groups if test is None and not selections else _due(groups, selections, test)
        if len(due) > 1:
            due.sort(key=_stage)
        for _, observe, constants, rest, _ in due:
            observe(constants, rest, fields, sent, now_us, tick, relations, fire)
        if test is not None:
            met = test.enter(fields, sent, now_us, tick, relations)


def _due(groups: list[Loop], selections: dict[int, list[Shapes]], test: SliceTest | None) -> list[Loop]:
    """Remove and return the loops and selections up to the stage of a test; without a test, all of them."""
    if test is None:
        due, stages = groups, [*selections]
    else:
        due = [group for group in groups if group[0] <= test.stage]
        groups[:] = [group for group in groups if group[0] > test.stage]
        stages = [stage for stage in selections if stage <= test.stage]
    for stage in stages:
        due += [loop_over(stage, observe, rows) for observe, rows in each_once(selections.pop(stage))]
    return due


_stage: Final = itemgetter(0)
_NO_TEST: Final = (None,)
