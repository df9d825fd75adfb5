"""What has become worse than recorded.

Ratios are compared: they hold ours against a yardstick of the same run, and so survive a change of machine
better than times do. A target that was met is to be met again.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.measuring.rows import Part, Row
from tests.bench.recording.record import Entry

AGAIN_S_MAX: Final = 15
"""Parts that take longer are measured twice for the record, not three times."""
MEASURED_AGAIN_MAX: Final = 2
"""How many times a row that looks worse is measured again before it counts as worse."""

Results = Sequence[tuple[Part, list[Row]]]
"""The measured rows, with the parts that can measure them again."""

Watch = Callable[[Part], None]
"""Called with each part before it is measured."""


def unwatched(_: Part) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Worse:
    """A row whose ratio exceeds the recorded one and the tolerance, or that misses a target met before."""

    key: str
    what: str

    def __str__(self) -> str:
        return f"{self.key}: {self.what}"


def settled(results: Results, watch: Watch = unwatched) -> list[Row]:
    """Return rows to be recorded: of three measurements the one with the median ratio, of two the worse.

    One lucky measurement, recorded, would make every later one look worse.
    """
    rows = []
    for part, first in results:
        measurements = [first]
        started_s = time.monotonic()
        for _ in range(2):
            if time.monotonic() - started_s < AGAIN_S_MAX:
                watch(part)
                measurements.append(part.measure())
        for alike in zip(*measurements, strict=True):
            middle = statistics.median_high(row.ratio for row in alike)
            rows.append(next(row for row in alike if row.ratio == middle))
    return rows


def worse(row: Row, entry: Entry | None) -> list[Worse]:
    """Return in what a row is worse than recorded."""
    if not entry:
        return []
    found = []
    if row.ratio > entry["ratio"] * (1 + row.tolerance):
        found.append(Worse(row.key, f"{row.ratio:.3g}x, recorded {entry['ratio']:.3g}x"))
    was_met = entry.get("target", {}).get("met", False)
    if was_met and row.target is not None and not row.target.met:
        found.append(Worse(row.key, f"misses its target ({row.target.text}), which was met when recorded"))
    return found


def worse_than_recorded(
    results: Results, entries: Mapping[str, Entry], watch: Watch = unwatched
) -> list[Worse]:
    """Return what is worse than recorded each time that it is measured.

    A part with a row that looks worse is measured again, at most twice: one calm measurement of each row is
    enough.
    """
    found: list[Worse] = []
    for part, rows in results:
        bad = {row.key: worse(row, entries.get(row.key)) for row in rows}
        for _ in range(MEASURED_AGAIN_MAX):
            if not any(bad.values()):
                break
            watch(part)
            again = {row.key: worse(row, entries.get(row.key)) for row in part.measure()}
            bad = {key: each and again.get(key, each) for key, each in bad.items()}
        found += [one for each in bad.values() for one in each]
    return found


def gone(results: Results, entries: Mapping[str, Entry]) -> list[str]:
    """Return the recorded rows of the measured cases that are no longer measured."""
    keys = {row.key for _, rows in results for row in rows}
    cases = {part.case for part, _ in results}
    return [key for key in entries if key not in keys and key.partition(": ")[0] in cases]
