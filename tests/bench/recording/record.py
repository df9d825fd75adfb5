"""The file of what was measured: each row with when, on what, and of which commit.

Every row stands on a line of its own, so that a difference between two commits shows which rows it changes.
"""

import json
import math
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.bench.measuring.rows import Row, Target
from tests.bench.rules.peers import version_of

RECORDED: Final = Path(__file__).parents[1] / "recorded.json"

Entry = Mapping[str, Any]
"""What is kept of a row: its figures, and the result of `circumstances`."""


def read(path: Path = RECORDED) -> dict[str, Any]:
    """Return the entries by the keys of their rows; none where nothing has been recorded."""
    entries: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return entries


def record(
    rows: Sequence[Row],
    path: Path = RECORDED,
    *,
    whole: bool = True,
    because: Mapping[str, str] | None = None,
) -> None:
    """Put these rows in the place of those recorded for their cases: of all of them, if they are `whole`.

    `because` says of rows that are worse than before what that buys. Of others, the best ratio is kept, too.
    """
    cases = {row.case for row in rows} if whole else set()
    before = read(path)
    entries = {key: entry for key, entry in before.items() if key.partition(": ")[0] not in cases}
    here = circumstances()
    for row in rows:
        packages = {name.partition(",")[0] for name in row.peers}
        versions = {name: version for name in sorted(packages) if (version := version_of(name))}
        more: dict[str, Any] = {"peer versions": versions} if versions else {}
        if row.key in (because or {}):
            more["because"] = (because or {})[row.key]
        elif (best := at_best(before.get(row.key, {})).get("ratio", row.ratio)) < row.ratio:
            more["best"] = best
        entries[row.key] = {**_entry(row), **here, **more}
    write(entries, path)


def at_best(entry: Entry) -> Entry:
    """Return an entry with the best ratio since it was last recorded with a reason."""
    return {**entry, "ratio": entry["best"]} if "best" in entry else entry


def write(entries: Mapping[str, Entry], path: Path = RECORDED) -> None:
    """Write the file."""
    lines = (
        f"  {json.dumps(key, ensure_ascii=False)}: {json.dumps(entry, ensure_ascii=False)}"
        for key, entry in entries.items()
    )
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def recorded_rows(path: Path = RECORDED) -> list[tuple[Row, Entry]]:
    """Return the recorded rows, each with its entry."""
    return [(_row(key, entry), entry) for key, entry in read(path).items()]


def circumstances() -> dict[str, str]:
    """Return when, on what machine and at which commit the figures were measured."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "commit": _commit(),
    }


def _commit() -> str:
    """Return the present commit, with a `+` if tracked files have changed since."""
    try:
        return _git("rev-parse", "--short=12", "HEAD") + ("+" if _git("diff", "--stat", "HEAD") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    command = ("git", *arguments)
    return subprocess.run(
        command, cwd=RECORDED.parent, capture_output=True, text=True, check=True
    ).stdout.strip()


def _processor() -> str:
    told = Path("/proc/cpuinfo")
    lines: Iterable[str] = told.read_text("utf-8").splitlines() if told.exists() else ()
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _entry(row: Row) -> dict[str, Any]:
    left_out = {"case", "name", "tolerance"}
    return {
        name: _rounded(value)
        for name, value in asdict(row).items()
        if name not in left_out and value not in (None, "", {})
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _row(key: str, entry: Entry) -> Row:
    case, _, name = key.partition(": ")
    names = {one.name for one in fields(Row)}
    told = {"unit": "", "ours": math.nan, **{name: each for name, each in entry.items() if name in names}}
    if "target" in told:
        told["target"] = Target(**told["target"])
    return Row(**told | {"case": case, "name": name})
