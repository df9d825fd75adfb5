"""The pages with recorded figures: README.md, TABLE.md, the ratios in engine/TIMES.md, CPU in api/SIZING.md.

In a text, a comment before a number names the row whose ratio it is.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench.measuring.rows import Row
from tests.bench.recording.record import Entry
from tests.bench.recording.table import HEADINGS, cells, escaped, figure, peers_shown
from tests.bench.sets import curve

ROOT: Final = Path(__file__).parents[3]
README, TABLE, TIMES, SIZING = PAGES = (
    "tests/bench/README.md",
    "tests/bench/TABLE.md",
    "engine/TIMES.md",
    "api/SIZING.md",
)
HEADLINES: Final = {
    "stateless: 100 rules": "100 rules on one event",
    "indexed: 100000 rules": "an event that concerns 50 of 100 000 rules",
    "temporal: once within, 10000 keys": "`once within` for each of 10 000 keys",
    "counting: count, 100000 keys": "`count` for each of 100 000 keys",
    "counting: memory of 6250 keys, count": "memory of a key under `count`",
    "bodies: JSON, 1000 events a body, 10 rules": "events of a batch of 1 000, from body to answer",
    "worst: 10 000 events, 240 rules that fire": "a body of 10 000 events that each fire 240 rules",
    "front: evaluation by one caller, median": "an HTTP request with one event, one caller",
    "front: evaluations on 64 connections": "HTTP requests with one event each, 64 connections",
}
"""What README.md says about which rows, in its order. None of them compares the product with itself."""

HEADLINE_HEADINGS: Final = ("what", "ours", "others", "ours costs", "measured by")
CURVE_COUNTS: Final = (1, 8, 33, 81, 200)
CURVE_HEADINGS: Final = ("rules", *map(str, CURVE_COUNTS), "largest step")
PLACES: Final = ("cases", "day", "machine", "Python", "commit", "peers")

SINGLE: Final = "front: evaluations on 64 connections"
BATCHED: Final = "front: batches of 1000 as JSON, 4 connections"
MODEL_PER_S: Final = 100_000
BUSY_MAX: Final = 0.7
"""How busy a front end of the model of a cluster is."""

Recorded = Sequence[tuple[Row, Entry]]
"""Rows, each with its recorded entry."""


def write_pages(recorded: Recorded, root: Path = ROOT) -> None:
    """Put rows in the place of the figures on the pages.

    The curve has a row for each mix of rules on README.md, and none in TABLE.md.
    """
    by_key = {row.key: row for row, _ in recorded}
    headlines = [_headline(by_key[key], what) for key, what in HEADLINES.items() if key in by_key]
    _replace(root / README, {HEADLINE_HEADINGS: headlines, CURVE_HEADINGS: _curves(by_key)})
    rows = [cells(row) for row, _ in recorded if row.case != curve.CASE]
    _replace(root / TABLE, {HEADINGS: rows, PLACES: _places(recorded)})
    times = root / TIMES
    times.write_text(_with_ratios(times.read_text("utf-8"), by_key), "utf-8")
    if SINGLE in by_key and BATCHED in by_key:
        _write_sizing(_cpu_us(by_key[SINGLE]), _cpu_us(by_key[BATCHED]), root / SIZING)


def _headline(row: Row, what: str) -> tuple[str, ...]:
    worst = "" if row.worst is None else f", worst {figure(row.worst)}"
    ours = f"{figure(row.ours)} {row.unit}{worst}".strip()
    floor = "" if row.floor is None else f"floor {figure(row.floor)}"
    others = ", ".join(filter(None, (floor, peers_shown(row.peers))))
    return what, ours, others, f"{figure(row.ratio)}x {row.over}", f"`python -m tests.bench {row.case}`"


def _curves(rows: Mapping[str, Row]) -> Iterable[tuple[str, ...]]:
    for row in (row for row in rows.values() if row.case == curve.CASE):
        costs = (figure(row.peers[str(count)]) for count in CURVE_COUNTS)
        yield row.name, *costs, f"{figure(row.ratio)}x, {row.remark}"


def _with_ratios(text: str, rows: Mapping[str, Row]) -> str:
    """Replace each number after a comment that names a row by the ratio of that row."""

    def shown(found: re.Match[str]) -> str:
        row = rows.get(found[1])
        return found[0] if row is None else f"<!-- {found[1]} -->{figure(row.ratio)}"

    return re.sub(r"<!-- (\w+: [^>]+) -->[\d.]+", shown, text)


def _places(recorded: Recorded) -> Iterable[tuple[str, ...]]:
    cases: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for row, entry in recorded:
        measured_on = tuple(entry[name] for name in ("date", "machine", "python", "commit"))
        peers = cases.setdefault(measured_on, {}).setdefault(f"`{row.case}`", {})
        peers |= entry.get("peer versions", {})
    for measured_on, of in cases.items():
        peers = {name: version for each in of.values() for name, version in each.items()}
        yield ", ".join(of), *measured_on, ", ".join(map(" ".join, peers.items()))


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


# -- the model of a cluster ----------------------------------------------------------------------------------


def _cpu_us(row: Row) -> tuple[float, float]:
    """Return the CPU time of a request or event in the front end and in the worker."""
    found = re.search(r"front end ([\d.]+) µs, actor ([\d.]+)", row.remark)
    assert found, row.remark
    return float(found[1]), float(found[2])


def _write_sizing(single_us: tuple[float, float], batched_us: tuple[float, float], page: Path) -> None:
    front_us, worker_us = single_us
    fronts, workers, batched_fronts, batched_workers = (
        us * MODEL_PER_S / 1e6 for us in (*single_us, *batched_us)
    )
    lines = {
        "one evaluation": f"{front_us:g} µs | {worker_us:g} µs | 1 µs",
        "one event of a batch of 1 000": f"{batched_us[0]:g} µs | {batched_us[1]:g} µs | ",
        "front ends": f"1 s / {front_us:g} µs: {_thousands(1e6 / front_us)} a second and core "
        f"| {fronts:.1f} cores busy: {math.ceil(fronts / BUSY_MAX)} front ends at {100 * BUSY_MAX:.0f} %",
        "workers": f"1 s / {worker_us:g} µs: {_thousands(1e6 / worker_us)} a second and *detector*: "
        "one detector has one thread "
        f"| {workers:.1f} cores busy, over at least {math.ceil(workers)} detectors",
        "both, with batches of 1 000 events": f"{_thousands(1e6 / batched_us[0])} events a second and core, "
        f"{_thousands(1e6 / batched_us[1])} and *detector* "
        f"| {batched_fronts:.1f} cores busy in front ends, {batched_workers:.1f} in workers",
    }
    text = page.read_text("utf-8")
    for begin, line in lines.items():
        text, found = re.subn(rf"(?m)^\| {re.escape(begin)} \|.*$", f"| {begin} | {line} |", text)
        assert found == 1, f"{page.name} has one line that begins with {begin}"
    page.write_text(text, "utf-8")


def _thousands(value: float) -> str:
    """Return a number with two digits and groups of three: 1 700 000."""
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):,.0f}".replace(",", " ")
