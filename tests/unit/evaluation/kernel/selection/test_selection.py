"""The members that an event selects one by one: when they are compiled, and how each is run once."""

from engine.evaluation.kernel.selection.selected_rows import SelectedRows, each_once


def test_members_with_several_triggers_are_compiled_sixteen_at_a_time() -> None:
    compiled = []

    def compile_member(member: int, known: object) -> tuple[int, object]:
        compiled.append(member)
        return member, known

    rows = SelectedRows(compile_member)
    for member in range(15):
        rows.add(member)
    assert not compiled
    rows.add(15)
    rows.add(16)
    assert compiled == [*range(16)]
    assert [rows.row(16), rows.row(16)] == [(16, None), (16, None)]
    assert rows.row(3) == (3, None)
    assert compiled == [*range(17)]
    rows.remove(3)
    rows.add(17)
    rows.remove(17)
    rows.row(3)
    assert compiled == [*range(17), 3]


def test_of_several_parts_the_largest_is_run_as_it_is_and_the_others_without_what_is_in_it() -> None:
    first, second = ([(member, str) for member in members] for members in ((1, 2, 3, 6), (3, 4, 5)))
    by_member = {row[0]: row for row in first}
    assert [*each_once([{str: second}])] == [(str, second)]
    for selected in ([{str: second}, {str: by_member}], [{str: by_member}, {str: second}]):
        assert [(observe, [*rows]) for observe, rows in each_once(selected)] == [
            (str, first),
            (str, [(4, str), (5, str)]),
        ]
