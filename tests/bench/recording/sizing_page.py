"""The CPU figures of api/SIZING.md, and its model of a cluster, from the recorded rows of `front`."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.bench.measuring.rows import Row

PAGE: Final = Path(__file__).parents[3] / "api/SIZING.md"
SINGLE: Final = "front: evaluations on 64 connections"
BATCHED: Final = "front: batches of 1000 as JSON, 4 connections"
MODEL_PER_S: Final = 100_000
BUSY_MAX: Final = 0.7
"""How busy a front end of the model is."""

_CPU: Final = re.compile(r"front end ([\d.]+) µs, actor ([\d.]+)")


def write_sizing(rows: Mapping[str, Row], page: Path = PAGE) -> None:
    """Put what the recorded rows say in the lines of the page that are about it."""
    if SINGLE not in rows or BATCHED not in rows:
        return
    text = page.read_text("utf-8")
    for begin, line in _lines(_cpu_us(rows[SINGLE]), _cpu_us(rows[BATCHED])).items():
        text, found = re.subn(rf"(?m)^\| {re.escape(begin)} \|.*$", f"| {begin} | {line} |", text)
        assert found == 1, f"{page.name} has one line that begins with {begin}"
    page.write_text(text, "utf-8")


def _cpu_us(row: Row) -> tuple[float, float]:
    """Give the CPU time of a request or event in the front end and in the worker."""
    found = _CPU.search(row.remark)
    assert found, row.remark
    return float(found[1]), float(found[2])


def _lines(single_us: tuple[float, float], batched_us: tuple[float, float]) -> dict[str, str]:
    front_us, worker_us = single_us
    fronts, workers, batched_fronts, batched_workers = (
        us * MODEL_PER_S / 1e6 for us in (*single_us, *batched_us)
    )
    return {
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


def _thousands(value: float) -> str:
    """Give a number with two digits and groups of three: 1 700 000."""
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):,.0f}".replace(",", " ")
