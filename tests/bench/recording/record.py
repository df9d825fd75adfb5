"""Ratios as they were once recorded, and what has become worse since.

Ratios are compared later: they hold ours against a yardstick of the same run, and so survive a change of
machine better than times do. A target that was met is to be met again. The figures are kept for the table.
Quick and full runs are recorded apart.
"""

import itertools
import json
import math
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.bench.measuring.rows import Part, Row, Target

RECORDED: Final = Path(__file__).parents[1] / "recorded.json"
AGAIN_S_MAX: Final = 15
"""What takes longer is measured twice for the record, not three times."""
MEASURED_AGAIN_MAX: Final = 2
"""How often what looks worse is measured again before it is called worse."""


Results = Sequence[tuple[Part, list[Row]]]
"""What was measured, with the parts that can measure it again."""

Watch = Callable[[Part], None]
"""Told of each part before it is measured."""


def unwatched(_: Part) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Worse:
    """A row whose ratio is past what was recorded and tolerated."""

    key: str
    recorded: float
    measured: float

    def __str__(self) -> str:
        return f"{self.key}: {self.measured:.3g}x, recorded {self.recorded:.3g}x"


@dataclass(frozen=True, slots=True)
class Missed:
    """A row that misses its target, and met it when it was recorded."""

    key: str
    target: str

    def __str__(self) -> str:
        return f"{self.key}: misses its target ({self.target}), which was met when recorded"


def measured(parts: Sequence[Part], watch: Watch = unwatched) -> Results:
    """Give the rows of each part."""
    results: list[tuple[Part, list[Row]]] = []
    for part in parts:
        watch(part)
        results.append((part, part.measure()))
    return results


def settled(results: Results, watch: Watch = unwatched) -> list[Row]:
    """Give rows to be recorded: of each part, a typical one of three measurements, or of two that take long.

    One lucky measurement, recorded, would make every later one look worse. The rows of a part are of one
    measurement, so that they can be compared; only `worst` is the worst of all.
    """
    rows = []
    for part, first in results:
        if not part.settles:
            rows += first
            continue
        started_s = time.monotonic()
        watch(part)
        measurements = [first, part.measure()]
        if time.monotonic() - started_s < AGAIN_S_MAX:
            measurements.append(part.measure())
        rows += _typical(measurements)
    return rows


def _typical(measurements: Sequence[list[Row]]) -> list[Row]:
    """Give the measurement whose ratios are nearest to the medians, of two the one with the larger ratios."""
    alike: dict[str, list[Row]] = {}
    for row in itertools.chain(*measurements):
        alike.setdefault(row.key, []).append(row)
    median = {key: statistics.median(row.ratio for row in rows) for key, rows in alike.items()}

    def distance(rows: list[Row]) -> tuple[float, float]:
        logs = [math.log(row.ratio / median[row.key]) for row in rows if row.ratio]
        return round(sum(map(abs, logs)), 9), -sum(logs)

    return [_with_worst(row, alike[row.key]) for row in min(measurements, key=distance)]


def _with_worst(row: Row, alike: Sequence[Row]) -> Row:
    worst = [each.worst for each in alike if each.worst is not None]
    if row.worst is None:
        return row
    # Of a time the worst is the longest, of a rate the lowest.
    return replace(row, worst=(max if row.worst >= row.ours else min)(worst))


def looks_worse(row: Row, ratios: Mapping[str, float]) -> bool:
    """Tell whether a row's ratio is past the recorded one by more than the row tolerates."""
    recorded = ratios.get(row.key)
    return recorded is not None and row.ratio > recorded * (1 + row.tolerance)


def worse_than_recorded(
    results: Results,
    ratios: Mapping[str, float],
    watch: Watch = unwatched,
    met: AbstractSet[str] = frozenset(),
) -> list[Worse | Missed]:
    """Give the rows that are worse than recorded each time that they are measured.

    A part with a row that looks worse, or misses a target that was met, is measured again, at most twice.
    Each row's best ratio counts, and a target that is met once.
    """
    found: list[Worse | Missed] = []
    for part, rows in results:
        best = {row.key: row for row in rows}
        missed = _missed(rows, met)
        for _ in range(MEASURED_AGAIN_MAX):
            if not missed and not any(looks_worse(row, ratios) for row in best.values()):
                break
            watch(part)
            again = part.measure()
            still = _missed(again, met)
            missed = {key: one for key, one in missed.items() if key in still}
            for row in again:
                if row.key not in best or row.ratio < best[row.key].ratio:
                    best[row.key] = row
        found += [
            Worse(row.key, ratios[row.key], row.ratio) for row in best.values() if looks_worse(row, ratios)
        ]
        found += missed.values()
    return found


def _missed(rows: Sequence[Row], met: AbstractSet[str]) -> dict[str, Missed]:
    return {
        row.key: Missed(row.key, row.target.text)
        for row in rows
        if row.key in met and row.target is not None and not row.target.met
    }


def gone(results: Results, ratios: Mapping[str, float]) -> list[str]:
    """Give the recorded rows of the measured cases that are not measured any more."""
    keys = {row.key for _, rows in results for row in rows}
    cases = {part.case for part, _ in results}
    return [key for key in ratios if key not in keys and key.partition(": ")[0] in cases]


def ratios_recorded(effort: str, path: Path = RECORDED) -> dict[str, float]:
    """Give the recorded ratios of one kind of run; none where nothing has been recorded."""
    return {key: entry["ratio"] for key, entry in _read(path).get(effort, {}).items()}


def targets_met(effort: str, path: Path = RECORDED) -> frozenset[str]:
    """Give the rows of one kind of run whose targets were met when they were recorded."""
    entries = _read(path).get(effort, {})
    return frozenset(key for key, entry in entries.items() if (entry.get("target") or {}).get("met"))


def record(rows: Sequence[Row], effort: str, path: Path = RECORDED, *, whole: bool = True) -> None:
    """Put these rows in the place of those recorded for their cases: of all of them, if they are `whole`.

    Each is kept with when and on what it was measured: cases are recorded one by one.
    """
    document = _read(path)
    cases = {row.case for row in rows} if whole else set()
    kept = {
        key: entry for key, entry in document.get(effort, {}).items() if key.partition(": ")[0] not in cases
    }
    measured_on = circumstances()
    document[effort] = kept | {row.key: {**_entry(row), **measured_on} for row in rows}
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def recorded_rows(effort: str, path: Path = RECORDED) -> list[tuple[Row, dict[str, str]]]:
    """Give what was recorded of one kind of run as rows, each with when and on what it was measured.

    Of what was recorded by an earlier program, only the ratio is known.
    """
    return [(_row(key, entry), entry) for key, entry in _read(path).get(effort, {}).items()]


def _entry(row: Row) -> dict[str, Any]:
    told = {name: value for name, value in asdict(row).items() if name not in {"case", "name", "tolerance"}}
    return {"ratio": _rounded(told.pop("ratio")), **{name: _rounded(value) for name, value in told.items()}}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _row(key: str, entry: dict[str, Any]) -> Row:
    case, _, name = key.partition(": ")
    names = {one.name for one in fields(Row)}
    told = {"unit": "", "ours": math.nan, **{name: each for name, each in entry.items() if name in names}}
    if growth := re.search(r" over (\d+)$", name):
        told.setdefault("over", f"{growth[1]} rules")
    if told.get("target") is not None:
        told["target"] = Target(**told["target"])
    return Row(**told | {"case": case, "name": name})


def circumstances() -> dict[str, str]:
    """Tell when and on what the figures were measured."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def _processor() -> str:
    told = Path("/proc/cpuinfo")
    if told.exists():
        for line in told.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return document
