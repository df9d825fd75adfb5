"""The members of a trigger, asked directly: their rows by shape, and the order in which events run them."""

from array import array
from typing import Any

import pytest

from engine.evaluation.kernel.buckets.buckets import Bucket, Group, run
from engine.evaluation.kernel.selection.selected_rows import PENDING_MAX, Row, SelectedRows
from engine.evaluation.kernel.selection.triggers import Known, Value

LARGE = (1 << 63) - 1


def even(*_: Any) -> None:
    """Stands for the function of a shape."""


def odd(*_: Any) -> None:
    """Stands for the function of another shape."""


def row(member: int, known: Known | None) -> Row:
    return Row(odd if member % 2 else even, [member, 0.5], ["rest", known])


def selected_row(member: int, _: Known | None) -> tuple[Any, ...]:
    return "constant", member, odd if member % 2 else even


class Selection(SelectedRows):
    """Counts what is compiled."""

    def __init__(self) -> None:
        self.compiled: list[int] = []
        super().__init__(self._noted)

    def _noted(self, member: int, known: Known | None) -> tuple[Any, ...]:
        self.compiled.append(member)
        return selected_row(member, known)


@pytest.fixture
def selected() -> Selection:
    return Selection()


def group(*values: Any) -> Group:
    """Give rows with one constant each, and a member that is its place."""
    made = Group.like(7, Row(even, [None], ["rest"]))
    for member, value in enumerate(values):
        made.add([value], ["rest", member])
    return made


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, -2, LARGE, -LARGE], "q"),
        ([1.5, -2.0], "d"),
        ([1, LARGE + 1], None),
        ([LARGE + 1, 1], None),
        ([-LARGE - 1], None),
        ([1, 1.5], None),
        ([1.5, 1], None),
        ([True], None),
        (["a", 1], None),
        ([1, "a", 2], None),
    ],
)
def test_numbers_of_one_kind_are_an_array_and_anything_else_a_list(
    values: list[Any], kind: str | None
) -> None:
    [column] = group(*values).constants
    assert list(column) == values
    assert list(map(type, column)) == list(map(type, values))
    assert (column.typecode if isinstance(column, array) else None) == kind


def test_the_row_of_a_member_is_removed_alone() -> None:
    made = group(10, 11, 12)
    assert (made.stage, made.width) == (7, 2)
    assert made.remove(1)
    assert (list(made.constants[0]), made.rest) == ([10, 12], ["rest", 0, "rest", 2])
    assert not made.remove(1)
    assert not made.remove("rest")  # type: ignore[arg-type]
    assert made.remove(2)
    assert made.remove(0)
    assert (list(made.constants[0]), made.rest) == ([], [])


def test_new_members_are_compiled_together_for_what_is_known(selected: Selection) -> None:
    compiled, known = [], Value("a", 1)

    def noted(member: int, of: Known | None) -> Row:
        compiled.append((member, of))
        return row(member, of)

    bucket = Bucket(noted, selected, known)
    for member in range(PENDING_MAX - 1):
        bucket.add(member, 5)
    assert (bucket.size, compiled, len(bucket.pending)) == (PENDING_MAX - 1, [], PENDING_MAX - 1)
    bucket.remove(3, 5)
    assert (bucket.size, len(bucket.pending)) == (PENDING_MAX - 2, PENDING_MAX - 2)
    bucket.add(3, 5)
    bucket.add(50, 6)
    assert (bucket.pending, len(compiled)) == ([], PENDING_MAX)
    assert {of for _, of in compiled} == {known}
    assert {name: found.rest[2 :: found.width] for name, found in bucket.groups.items()} == {
        (5, even): [*range(0, PENDING_MAX - 1, 2)],
        (5, odd): [1, 5, 7, 9, 11, 13, 3],
        (6, even): [50],
    }
    bucket.remove(50, 6)
    assert (6, even) not in bucket.groups
    for member in range(PENDING_MAX - 1):
        bucket.remove(member, 5)
    assert (bucket.size, bucket.groups) == (0, {})
    with pytest.raises(AssertionError):
        bucket.remove(50, 6)


def test_members_with_several_triggers_share_their_rows(selected: Selection) -> None:
    buckets = [Bucket(row, selected) for _ in range(2)]
    for member in (1, 2, 3):
        selected.add(member)
        for bucket in buckets:
            bucket.add(member, member, several=True)
    for bucket in buckets:
        bucket.take_in()
    assert selected.compiled == [1, 2, 3]
    assert buckets[0].several == {
        member: {(odd if member % 2 else even): {member: selected_row(member, None)}} for member in (1, 2, 3)
    }
    assert buckets[0].several[1][odd][1] is buckets[1].several[1][odd][1]
    for member in (1, 2):
        buckets[0].remove(member, member, several=True)
    assert ([*buckets[0].several], buckets[0].size) == ([3], 1)
    selected.remove(1)
    selected.add(9)
    selected.remove(9)
    assert (selected._rows.keys(), selected._pending) == ({2, 3}, {})


def test_an_event_runs_each_stage_before_the_next(selected: Selection) -> None:
    ran: list[int] = []

    def observe(constants: Any, rest: Any, *event: Any) -> None:
        *given, fire = event
        assert given == [{"a": 1}, {}, 7, 3, None]
        for member in [*rest][1::2] if constants else [each[-2] for each in rest]:
            fire(member)

    def compiled(member: int, _: Known | None) -> Row:
        return Row(observe, [member], ["rest"])

    chosen = SelectedRows(lambda member, _: (member, observe))
    first, second = (Bucket(compiled, chosen) for _ in range(2))
    for member, stage in ((1, 9), (2, 1), (3, 5)):
        first.add(member, stage)
    second.add(4, 3)
    for member, stage in ((5, 1), (6, 9)):
        chosen.add(member)
        first.add(member, stage, several=True)
        second.add(member, stage, several=True)
    run([first, second], [], {"a": 1}, {}, 7, 3, None, ran.append)
    assert ran == [2, 5, 4, 3, 1, 6]
