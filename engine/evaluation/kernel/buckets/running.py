"""Evaluates the rows that an event meets or selects: each member once, stage by stage, by shape."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, Self, TypeAlias

from engine.evaluation.facts.relations import Relations
from engine.evaluation.kernel.buckets.buckets import (
    Bucket,
    Fire,
    Group,
    Observe,
    Row,
    Rows,
    RowsByPlace,
    SelectedRow,
    Shapes,
    member_of,
)
from engine.evaluation.slices.slices import Slices

Selection: TypeAlias = Mapping[int, Shapes]
"""Rows by stage and by the function of their shape; see `Use.stage`."""

Loop: TypeAlias = tuple[int, Observe, list[Any], Iterable[Any], int]
"""The stage, function, columns and rest of the rows of one shape, and the length of a row in the rest, 0 if
each is a tuple."""


class Selected(NamedTuple):
    """The rows that an event selects, in the form of a bucket."""

    several: Selection
    groups: Mapping[Any, Loop]
    pending: tuple[()] = ()

    @classmethod
    def of(cls, found: RowsByPlace) -> Self:
        """Return the rows of a search, by stage and shape."""
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
    """Yield the selected rows without duplicates, in parts of one shape."""
    by_shape: dict[Observe, list[Rows]] = {}
    for shapes in selected:
        for observe, rows in shapes.items():
            by_shape.setdefault(observe, []).append(rows)
    for observe, parts in by_shape.items():
        for part in parts if len(parts) == 1 else _disjoint(parts):
            yield observe, part if isinstance(part, list) else part.values()


def _disjoint(parts: list[Rows]) -> list[Rows]:
    """Return some parts without duplicates. The largest part is not copied, because it may be large."""
    dicts = [part if isinstance(part, dict) else {member_of(row): row for row in part} for part in parts]
    *smaller, largest = sorted(dicts, key=len)
    others: dict[int, SelectedRow] = {}
    for part in smaller:
        others.update(part)
    for member in others.keys() & largest.keys():
        del others[member]
    return [largest, others]


class SliceTest(NamedTuple):
    """Slices with filtered keys, and a row that fires if an event with those keys belongs to a slice."""

    stage: int
    """The stage of the last updates that the row depends on."""
    slices: Slices
    row: Group

    @classmethod
    def of(cls, stage: int, slices: Slices, row: Row) -> Self:
        """Return a slice test whose row assumes nothing about the event."""
        group = Group.like(stage, row)
        group.add(row.constants, [*row.rest, 0])
        return cls(stage, slices, group)

    def enter(self, *event: Any) -> Sequence[Bucket]:
        """Have an event enter its slice, and return the buckets that its entries trigger.

        The event is passed as to `run`, from its fields to its relations.
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


def run(  # noqa: PLR0917 -- keyword arguments would take longer than many rules
    met: Sequence[Bucket | Selected],
    tests: Sequence[SliceTest],
    fields: Mapping[str, Any],
    sent: Mapping[str, Any],
    now_us: int,
    tick: int,
    relations: Relations | None,
    fire: Fire,
    timed: Callable[[list[Loop]], list[Loop]] | None,
) -> None:
    """Evaluate an event for the buckets it meets and the rows it selects, each member once.

    Each stage is complete before the next. Between them, the event enters the slices that depend on updates,
    in the order of their stages. `timed` replaces the loops of a stage, to measure them.
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
        # Most events have no slices with filtered keys, and select nothing.
        due = groups if test is None and not selections else _due(groups, selections, test)
        if len(due) > 1:
            due.sort(key=_stage)
        if timed is not None:
            due = timed(due)
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
