"""The two pages with recorded figures: the few that answer a newcomer's questions, and all of them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench.measuring.rows import Row
from tests.bench.recording.table import HEADINGS, cells, escaped, figure, peers_shown
from tests.bench.sets import curve

FOLDER: Final = Path(__file__).parents[1]
HEADLINES: Final = {
    "stateless: 100 rules": "100 rules on one event",
    "indexed: stateless, 100000 rules": "an event that concerns 50 of 100 000 rules",
    "temporal: once within, 10000 keys": "`once within` for each of 10 000 keys",
    "counting: count, 100000 keys": "`count` for each of 100 000 keys",
    "counting: memory of 25000 keys, count": "memory of a key under `count`",
    "growth: memory of 100000 rules": "memory of one of 100 000 rules",
    "worst: 10 000 events, 240 rules that fire": "a body of 10 000 events that each fire 240 rules",
    "try: three rules over 1,000,000 events": "`rule-detector try` with three rules and a million events",
    "front: evaluation by one caller, median": "an HTTP request with one event, one caller",
    "front: evaluations on 64 connections": "HTTP requests with one event each, 64 connections",
    "front: batches of 1000 as JSON, 4 connections": "events in HTTP requests of 1 000, 4 connections",
    "activation: 16 detectors in turn, 4 active at once": "requests that each activate a passive detector",
    "durability: 1000000 live keys usable again from a snapshot": "recovery of a million live keys",
}
"""What README.md says of which rows, in its order."""

HEADLINE_HEADINGS: Final = ("what", "ours", "others", "ours costs", "measured by")
CURVE_COUNTS: Final = (1, 8, 33, 81, 200)
CURVE_HEADINGS: Final = ("rules", *map(str, CURVE_COUNTS), "largest step")
PLACES: Final = ("cases", "day", "machine", "Python")

Recorded = Sequence[tuple[Row, Mapping[str, str]]]
"""Rows, each with when and on what it was measured."""


def write_pages(recorded: Recorded, folder: Path = FOLDER) -> None:
    """Put rows in the place of those in the tables of README.md and TABLE.md.

    The curve has a row for each mix of rules on README.md, and none in TABLE.md.
    """
    by_key = {row.key: row for row, _ in recorded}
    headlines = [_headline(by_key[key], what) for key, what in HEADLINES.items() if key in by_key]
    _replace(folder / "README.md", {HEADLINE_HEADINGS: headlines, CURVE_HEADINGS: _curves(by_key)})
    rows = [cells(row) for row, _ in recorded if row.case != curve.CASE]
    _replace(folder / "TABLE.md", {HEADINGS: rows, PLACES: _places(recorded)})


def _headline(row: Row, what: str) -> tuple[str, ...]:
    worst = "" if row.worst is None else f", worst {figure(row.worst)}"
    ours = f"{figure(row.ours)} {row.unit}{worst}".strip()
    floor = "" if row.floor is None else f"floor {figure(row.floor)}"
    others = ", ".join(filter(None, (floor, peers_shown(row.peers))))
    return what, ours, others, f"{figure(row.ratio)}x {row.over}", f"`python -m tests.bench {row.case}`"


def _curves(rows: Mapping[str, Row]) -> Iterable[tuple[str, ...]]:
    for mix in curve.MIXES:
        step = rows.get(f"{curve.CASE}: {curve.largest_step_of(mix)}")
        if step is not None:
            costs = (rows[f"{curve.CASE}: {curve.name_of(mix, count)}"] for count in CURVE_COUNTS)
            yield mix, *(figure(row.ours) for row in costs), f"{figure(step.ratio)}x, {step.remark}"


def _places(recorded: Recorded) -> Iterable[tuple[str, ...]]:
    cases: dict[tuple[str, str, str], dict[str, None]] = {}
    for row, measured in recorded:
        measured_on = measured["date"], measured["machine"], measured["python"]
        cases.setdefault(measured_on, {})[f"`{row.case}`"] = None
    return ((", ".join(of), *measured_on) for measured_on, of in cases.items())


def _replace(page: Path, tables: Mapping[Sequence[str], Iterable[Sequence[str]]]) -> None:
    """Replace the lines of the tables with these headings."""
    text = page.read_text("utf-8")
    for headings, lines in tables.items():
        first = "| " + " | ".join(headings) + " |\n"
        before, found, after = text.partition(first)
        assert found, f"{page.name} has a table that begins with {first}"
        rest = after.splitlines(keepends=True)
        while rest and rest[0].startswith("|"):
            rest.pop(0)
        shown = ["| " + " | ".join(escaped(line)) + " |\n" for line in lines]
        text = "".join([before, first, "|" + "---|" * len(headings) + "\n", *shown, *rest])
    page.write_text(text, "utf-8")
