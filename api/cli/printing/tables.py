"""Prints a table: framed on a terminal, as aligned lines otherwise."""

from collections.abc import Sequence
from typing import Final, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from api.cli.printing.terminal import on_one_line


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print rows under a header. On a terminal, a row whose second cell is `0` is dim.

    Cells may hold what callers sent: control characters are escaped, and nothing in them is markup.
    """
    rows = [[on_one_line(cell) for cell in row] for row in rows]
    if console.is_terminal:
        table = Table()
        for name in header:
            justify: Literal["left", "right"] = "right" if name in COUNTS else "left"
            table.add_column(name, overflow="fold", no_wrap=name.endswith(" at"), justify=justify)
        for row in rows:
            table.add_row(*map(Text, row), style="dim" if row[1] == "0" else None)
        console.print(table)
        return
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        console.file.write("  ".join(cells).rstrip() + "\n")


COUNTS: Final = ("fired", "only new", "only old", "both")
"""The columns that are aligned to the right."""
