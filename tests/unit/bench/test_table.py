"""How rows look in the table."""

import pytest

from tests.bench.measuring.rows import Row, Target, at_least, at_most
from tests.bench.recording.table import HEADINGS, figure, table
from tests.bench.rules.peers import NOT_INSTALLED


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.00512, "0.00512"),
        (0.0712345, "0.0712"),
        (1, "1.00"),
        (1.234, "1.23"),
        (9.996, "10.0"),
        (12.34, "12.3"),
        (99.96, "100"),
        (123.4, "123"),
        (1_234_567.8, "1234568"),
    ],
)
def test_a_figure_has_three_digits_and_no_power_of_ten(value: float, shown: str) -> None:
    assert figure(value) == shown


def rows() -> list[Row]:
    return [
        Row(
            case="a|b",
            name="many",
            unit="µs",
            remark="7 events",
            ours=1.5,
            worst=1.75,
            floor=3.0,
            peers={"fast": 0.25, "gone": NOT_INSTALLED},
            ratio=0.5,
            target=Target(text="at most 2x", met=True),
        ),
        Row(
            case="c",
            name="few",
            unit="ms",
            ours=12.0,
            ratio=4.0,
            over="dict",
            target=at_most(3, 4, "at most 3x"),
        ),
        Row(case="d", name="none", unit="s", ours=0.0, ratio=1.0),
    ]


def test_the_table_is_markdown_in_which_all_lines_have_all_columns() -> None:
    lines = table(rows()).splitlines()
    assert len(lines) == 2 + len(rows())
    assert len({len(line) for line in lines}) == 1, "the columns are aligned"
    assert set(lines[1]) == {"|", "-"}
    columns = [[cell.strip() for cell in line.replace(r"\|", "!").strip("|").split("|")] for line in lines]
    assert {len(cells) for cells in columns} == {len(HEADINGS)}
    assert columns[0] == list(HEADINGS)
    assert columns[2] == [
        "a!b",
        "many",
        "µs (7 events)",
        "1.50",
        "1.75",
        "3.00",
        "fast 0.250, gone not installed",
        "0.500x floor",
        "at most 2x: met",
    ]
    assert columns[3][3:] == ["12.0", "", "", "", "4.00x dict", "at most 3x: MISSED"]
    assert columns[4][-1] == ""


def test_targets_include_their_limit() -> None:
    assert at_most(2, 2, "").met
    assert not at_most(2, 2.01, "").met
    assert at_least(2, 2, "").met
    assert not at_least(2, 1.99, "").met
