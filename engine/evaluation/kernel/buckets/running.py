"""Runs the members of the buckets that an event meets, stage by stage."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol, Self

from engine.evaluation.facts.relations import Relations
from engine.evaluation.kernel.buckets.buckets import Bucket, Group
from engine.evaluation.kernel.selection.selected_rows import (
    Fire,
    Loop,
    Row,
    Selected,
    Shapes,
    each_once,
    loop_over,
)


class Table(Protocol):
    """Slices by the keys of a path, of which an event may enter one."""

    def enter(self, fields: Mapping[str, Any], sent: Mapping[str, Any], now_us: int, tick: int, /) -> None:
        """Enter an event, if it has the keys."""

    def leave(self) -> None:
        """Enter none."""

    def meet(self) -> list[Any]:
        """Return the buckets that the event meets because of what its slice remembers."""


class SliceTest(NamedTuple):
    """A table with filtered keys, and the row that fires if an event with those keys belongs to a slice."""

    stage: int
    """The stage of the last updates on which the row depends."""
    table: Table
    row: Group

    @classmethod
    def of(cls, stage: int, table: Table, row: Row) -> Self:
        """Return a slice test whose row assumes nothing about the event."""
        group = Group.like(stage, row)
        group.add(row.constants, [*row.rest, 0])
        return cls(stage, table, group)

    def enter(self, *event: Any) -> Sequence[Bucket]:
        """Have the table enter an event of its slices, and return the buckets that the event then meets.

        The event is given as to `run`, from its fields to its relations.
        """
        fields, sent, now_us, tick, relations = event
        belongs: list[int] = []
        _, observe, constants, rest, _ = self.row
        observe(constants, rest, fields, sent, now_us, tick, relations, belongs.append)
        if not belongs:
            self.table.leave()
            return ()
        self.table.enter(fields, sent, now_us, tick)
        return self.table.meet()


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

    Each stage is complete before the next. Between them, the tables that have waited for updates enter the
    event, in the order of their stages.
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
        # At most events no table has waited, and nothing is selected.
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
