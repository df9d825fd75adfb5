"""Rows as a table in Markdown, aligned so that it is read as easily in a terminal."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench.rows import Other, Row

PAGE: Final = Path(__file__).with_name("README.md")
HEADINGS = ("case", "what", "unit", "ours", "worst", "floor", "peers", "ours costs", "target")
PLACES = ("cases", "day", "machine", "Python")


def figure(value: float) -> str:
    """Give a figure with three significant digits, never in powers of ten."""
    if math.isnan(value):
        return ""
    if value == 0:
        return "0"
    decimals = 0
    while decimals < 9 and abs(value) * 10**decimals < 99.5:
        decimals += 1
    # Beyond hundreds nothing stands behind the point, and before it every digit.
    return f"{value:.{decimals}f}"


def peers_shown(peers: Mapping[str, Other]) -> str:
    """Give each peer with its figure, or with the reason why it has none."""
    return ", ".join(
        f"{name} {value if isinstance(value, str) else figure(value)}" for name, value in peers.items()
    )


def cells(row: Row) -> tuple[str, ...]:
    """Give what stands in a row's columns."""
    unit = f"{row.unit} ({row.remark})" if row.remark else row.unit
    target = "" if row.target is None else f"{row.target.text}: {'met' if row.target.met else 'MISSED'}"
    return (
        row.case,
        row.name,
        unit,
        figure(row.ours),
        "" if row.worst is None else figure(row.worst),
        "" if row.floor is None else figure(row.floor),
        peers_shown(row.peers),
        f"{figure(row.ratio)}x {row.over}",
        target,
    )


def table(rows: Sequence[Row]) -> str:
    """Give all rows as one table."""
    lines = [HEADINGS, *(_escaped(cells(row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    shown = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    shown.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(shown)


def _escaped(line: Sequence[str]) -> tuple[str, ...]:
    return tuple(cell.replace("|", r"\|") for cell in line)


def write_page(rows: Sequence[tuple[Row, Mapping[str, str]]], page: Path = PAGE) -> None:
    """Put rows in the place of the page's table, and when and on what they were measured in that below it."""
    cases: dict[tuple[str, str, str], dict[str, None]] = {}
    for row, measured in rows:
        measured_on = measured["date"], measured["machine"], measured["python"]
        cases.setdefault(measured_on, {})[f"`{row.case}`"] = None
    places = [(", ".join(of), *measured_on) for measured_on, of in cases.items()]
    text = page.read_text("utf-8")
    text = _replaced(text, HEADINGS, [cells(row) for row, _ in rows])
    page.write_text(_replaced(text, PLACES, places), "utf-8")


def _replaced(text: str, headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Replace the table with these headings; its lines are as long as they need to be."""
    first = "| " + " | ".join(headings) + " |\n"
    before, found, after = text.partition(first)
    assert found, f"the page has a table that begins with {first}"
    rest = after.splitlines(keepends=True)
    while rest and rest[0].startswith("|"):
        rest.pop(0)
    shown = ["| " + " | ".join(_escaped(line)) + " |\n" for line in lines]
    return "".join([before, first, "|" + "---|" * len(headings) + "\n", *shown, *rest])
