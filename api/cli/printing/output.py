"""Prints the result of a command: a table for people, or the service's JSON for programs."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import click
import msgspec

from api.cli.messages import warn
from api.cli.printing.terminal import on_one_line
from rule_detector_client.results import Entry

if TYPE_CHECKING:
    from rich.console import Console

Option: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]
"""A decorator that adds an option to a command."""

output_option: Option = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Format.  [default: table]"
)

yes_option: Option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")

COUNTS: Final = ("fired", "only new", "only old", "both")
"""The right-aligned columns of tables."""

_FOLDED_CHARS_MIN: Final = 16
"""The least width of a column whose texts are folded."""

KEYS_MAX: Final = 100_000
"""The maximum number of keys of a rule that are counted separately."""
KEYS_SHOWN: Final = 20
"""The maximum number of keys of a rule in a table."""


def show(output: str, document: Any, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a document as one line of JSON, or the rows under the header."""
    if output == "json":
        click.echo(msgspec.json.encode(document))
    else:
        # Imported late: few commands print tables, and importing rich takes as long as whole other commands.
        from rich.console import Console  # noqa: PLC0415

        print_table(header, list(rows), Console(soft_wrap=True))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], console: "Console") -> None:
    """Print rows under a header. On a terminal, a row whose second cell is `0` is dim.

    Cells may hold text of callers, so control characters are escaped, and markup is ignored. On a terminal so
    narrow that cells would be folded into many lines, the table has no lines, and the terminal folds the
    rows.
    """
    rows = [[on_one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    if console.is_terminal and _least_chars(header, widths) <= console.width:
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table()
        for name in header:
            justify: Literal["left", "right"] = "right" if name in COUNTS else "left"
            table.add_column(name, overflow="fold", no_wrap=name.endswith(" at"), justify=justify)
        for row in rows:
            table.add_row(*map(Text, row), style="dim" if row[1] == "0" else None)
        console.print(table)
        return
    for row in [header, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        console.file.write("  ".join(cells).rstrip() + "\n")


def _least_chars(header: Sequence[str], widths: Sequence[int]) -> int:
    """Return how wide a table with lines must be, if texts are folded and times and numbers are not."""
    whole = [name.endswith(" at") or name in COUNTS for name in header]
    cells = [
        width if one else min(width, _FOLDED_CHARS_MIN) for one, width in zip(whole, widths, strict=True)
    ]
    return sum(cells) + 3 * len(cells) + 1


def value_text(value: object) -> str:
    """Return a value on one line: a string unchanged, any other value as JSON."""
    return on_one_line(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
    )


def keys_text(keys: Mapping[str, Any]) -> str:
    """Return the keys of a firing, such as `ip=192.0.2.7`."""
    return " ".join(f"{value_text(name)}={value_text(value)}" for name, value in keys.items())


def tell(output: str, document: Any, sentence: str) -> None:
    """Print a document as one line of JSON, or the sentence."""
    click.echo(msgspec.json.encode(document) if output == "json" else sentence)


def tell_messages(name: str, messages: Iterable[Entry]) -> None:
    """Print the service's messages about a rule."""
    for message in messages:
        warn(f"`{on_one_line(name)}`: {message.code} {message.message}")
