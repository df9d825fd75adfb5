"""Groups the rules and updates that are evaluated together: by shape, as rows of one loop."""

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Self, TypeAlias

from engine.evaluation.dispatch.compiler import Fire, Observe, Row
from engine.evaluation.dispatch.indexing.ranges import Selected
from engine.evaluation.dispatch.indexing.selection import (
    PENDING_MAX,
    SelectedRow,
    SelectedRows,
    Shapes,
    each_once,
)
from engine.evaluation.facts.values import Relations
from engine.evaluation.plan.ir import Known
from engine.evaluation.state.storage.tables import KeyTable

_ARRAY_INT_MAX: Final = (1 << 63) - 1

Compile = Callable[[int, Known | None], Row]
"""Compiles a member for events of which `Known` is known. The number of a rule is its priority, that of an
update is below 0."""


Numbers: TypeAlias = "array[int] | array[float] | list[Any]"
"""One constant of each row."""


class Group:
    """The rows of one shape in a bucket."""

    __slots__ = ("constants", "rest", "width")

    def __init__(self, first: int, width: int) -> None:
        self.constants: list[Numbers] = [[] for _ in range(first)]
        """The constants of the first test, by column. Columns of numbers are arrays, which are contiguous."""
        self.rest: list[Any] = []
        """The other constants, row after row; each row ends with its member."""
        self.width = width
        """The length of a row in `rest`."""

    def add(self, constants: list[Any], rest: list[Any]) -> None:
        """Add a row."""
        assert len(constants) == len(self.constants), "rules of one shape have as many constants"
        assert len(rest) == self.width, "rules of one shape have as many constants"
        for place, value in enumerate(constants):
            column, kind = self.constants[place], _kind(value)
            if not column and kind is not None:
                column = self.constants[place] = array(kind)
            elif isinstance(column, array) and column.typecode != kind:
                column = self.constants[place] = list(column)
            column.append(value)
        self.rest += rest

    def take_over(self, other: "Group") -> None:
        """Add the rows of another group of the same shape."""
        for place, column in enumerate(other.constants):
            mine = self.constants[place]
            if not mine:
                self.constants[place] = column[:]
            elif isinstance(mine, array) and isinstance(column, array) and mine.typecode == column.typecode:
                mine += column  # type: ignore[operator]  # of one kind
            else:
                if isinstance(mine, array):
                    mine = self.constants[place] = list(mine)
                mine.extend(column)
        self.rest += other.rest

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


def _kind(value: Any) -> str | None:
    """Return the type code of an array that can hold the value, or None."""
    if type(value) is int:
        return "q" if -_ARRAY_INT_MAX <= value <= _ARRAY_INT_MAX else None
    return "d" if type(value) is float else None


Groups: TypeAlias = dict[Observe, Group]


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
        self.groups: dict[int, Groups] = {}
        """By depth: how many updates come one after another, from 1; below 0 if deferred; 0 for rules."""
        self.several: dict[int, dict[Observe, dict[int, SelectedRow]]] = {}
        """The members with several triggers. Their rows are in `SelectedRows`."""
        self.pending: list[tuple[int, int, bool]] = []
        self.size = 0

    def add(self, member: int, depth: int, *, several: bool = False) -> None:
        """Add a rule with depth 0, or the update of a memory with its depth: see `groups`.

        `several` tells whether an event may meet more buckets of this member.
        """
        self.size += 1
        self.pending.append((member, depth, several))
        if len(self.pending) >= PENDING_MAX:
            self.take_in()

    def remove(self, member: int, depth: int, *, several: bool = False) -> None:
        """Undo `add`."""
        self.size -= 1
        if (member, depth, several) in self.pending:
            self.pending.remove((member, depth, several))
            return
        if several:
            self._remove_selected(member, depth)
            return
        groups = self.groups[depth]
        for observe, group in groups.items():
            if group.remove(member):
                if not group.rest:
                    del groups[observe]
                    if not groups:
                        del self.groups[depth]
                return
        raise AssertionError(member)

    def _remove_selected(self, member: int, depth: int) -> None:
        observe = self._selected.row(member)[-1]
        shapes = self.several[depth]
        del shapes[observe][member]
        if not shapes[observe]:
            del shapes[observe]
            if not shapes:
                del self.several[depth]

    def take_over(self, other: "Bucket") -> None:
        """Add all members of another bucket."""
        other.take_in()
        for depth, groups in other.groups.items():
            _take_over(self.groups.setdefault(depth, {}), groups)
        for depth, shapes in other.several.items():
            mine = self.several.setdefault(depth, {})
            for observe, rows in shapes.items():
                mine.setdefault(observe, {}).update(rows)
        self.size += other.size

    def take_in(self) -> None:
        """Compile the members that are pending."""
        while self.pending:
            member, depth, several = self.pending.pop(0)
            if several:
                row = self._selected.row(member)
                self.several.setdefault(depth, {}).setdefault(row[-1], {})[member] = row
                continue
            observe, constants, rest = self._compile(member, self._known)
            groups = self.groups.setdefault(depth, {})
            group = groups.get(observe)
            if group is None:
                group = groups[observe] = Group(len(constants), len(rest) + 1)
            group.add(constants, [*rest, member])


def _take_over(mine: Groups, others: Groups) -> None:
    for observe, group in others.items():
        if observe not in mine:
            mine[observe] = Group(len(group.constants), group.width)
        mine[observe].take_over(group)


class Turn(NamedTuple):
    """A table with filtered keys, and the row that fires if an event with those keys belongs to a slice."""

    depth: int
    """That of the updates on which it depends."""
    table: KeyTable
    observe: Observe
    row: Group

    @classmethod
    def of(cls, depth: int, table: KeyTable, row: Row) -> Self:
        """Return a turn by a row for events of which nothing is known."""
        group = Group(len(row.constants), len(row.rest) + 1)
        group.add(row.constants, [*row.rest, 0])
        return cls(depth, table, row.observe, group)


def run(  # noqa: PLR0917 -- keyword arguments would cost more than many rules
    met: list[Bucket | Selected],
    turns: Iterable[Turn],
    fields: Mapping[str, Any],
    sent: Mapping[str, Any],
    now_us: int,
    tick: int,
    relations: Relations | None,
    fire: Fire,
) -> None:
    """Evaluate an event for the buckets that it meets and what it selects, each member once.

    Updates come first, those of inner nodes before those of outer ones. Between them, the tables that have
    waited for updates turn to the event, those of the least depth first. Then come the rules, and then the
    deferred updates, those of outer nodes before those of inner ones.
    """
    groups: dict[int, list[Groups]] = {}
    selections: dict[int, list[Shapes]] = {}
    _collect(met, groups, selections)
    done = 0
    for turn in (*turns, None):
        for depth in _due(groups, selections, done, turn):
            for of_bucket in groups.get(depth, ()):
                for observe, group in of_bucket.items():
                    observe(group.constants, group.rest, fields, sent, now_us, tick, relations, fire)
            if depth in selections:
                for observe, rows in each_once(selections[depth]):
                    observe(_NO_COLUMNS, rows, fields, sent, now_us, tick, relations, fire)
        if turn is None:
            return
        done, table, observe, row = turn
        belongs: list[int] = []
        observe(row.constants, row.rest, fields, sent, now_us, tick, relations, belongs.append)
        if belongs:
            table.turn_to(fields, sent, now_us, tick)
            _collect(table.triggered(), groups, selections)
        else:
            table.leave()


def _collect(
    met: Iterable[Bucket | Selected],
    groups: dict[int, list[Groups]],
    selections: dict[int, list[Shapes]],
) -> None:
    """Add what is in some buckets, by depth."""
    for bucket in met:
        if bucket.pending:
            bucket.take_in()
        for depth, of_bucket in bucket.groups.items():
            if depth in groups:
                groups[depth].append(of_bucket)
            else:
                groups[depth] = [of_bucket]
        if bucket.several:
            for depth, shapes in bucket.several.items():
                selections.setdefault(depth, []).append(shapes)


def _due(groups: Collection[int], selections: Collection[int], done: int, turn: Turn | None) -> list[int]:
    """Return the depths that come next, in order: those up to a turn or, without one, all that are left."""
    depths = sorted({*groups, *selections}) if selections else sorted(groups)
    if turn is not None:
        return [depth for depth in depths if done < depth <= turn.depth]
    if done == 0 and depths[:1] == _RULES:
        # So it is at most events: no table has waited, and no update is deferred.
        return depths[1:] + _RULES
    return [*(depth for depth in depths if depth > done), 0, *(depth for depth in depths if depth < 0)]


_RULES: Final = [0]
_NO_COLUMNS: Final[list[Any]] = []
