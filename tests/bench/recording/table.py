"""Rows as a table in Markdown, aligned so that it is easy to read in a terminal."""

import math
from collections.abc import Mapping, Sequence

from tests.bench.measuring.rows import Other, Row

HEADINGS = ("case", "what", "unit", "ours", "worst", "floor", "peers", "ours costs", "target")


def figure(value: float) -> str:
    """Return a figure with three significant digits, never in powers of ten."""
    if math.isnan(value):
        return ""
    if value == 0:
        return "0"
    decimals = 0
    while decimals < 9 and abs(value) * 10**decimals < 99.5:
        decimals += 1
    # From hundreds on there are no decimals, and all digits before the point.
    return f"{value:.{decimals}f}"


def peers_shown(peers: Mapping[str, Other]) -> str:
    """Return each peer with its figure, or with the reason why it has none."""
    return ", ".join(
        f"{name} {value if isinstance(value, str) else figure(value)}" for name, value in peers.items()
    )


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row."""
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
    """Return all rows as one table."""
    lines = [HEADINGS, *(escaped(cells(row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    shown = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    shown.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(shown)


def escaped(line: Sequence[str]) -> tuple[str, ...]:
    """Return cells whose bars are escaped."""
    return tuple(cell.replace("|", r"\|") for cell in line)
