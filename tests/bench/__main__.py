"""Measures the engine beside its peers and what one would write by hand, and the service over HTTP.

    python -m tests.bench                     every case
    python -m tests.bench stateless --quick   one case, in smaller worlds
    python -m tests.bench ratios --check      the quick ratios that every change must keep
    python -m tests.bench shared --only count the parts of a case whose name has this text
    python -m tests.bench --record            and keep the rows in recorded.json, measured up to three times
    python -m tests.bench --table             measure nothing; put what is recorded on the pages
    python -m tests.bench --check             exit 1 where a ratio is worse than recorded, or a target missed

The table goes to standard output, in Markdown; progress to standard error. Peers come with the extra `bench`;
one that is not installed is named as such.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from tests.bench.cases import CASES
from tests.bench.measuring.effort import FULL, QUICK
from tests.bench.measuring.rows import Part
from tests.bench.recording.pages import FOLDER, write_pages
from tests.bench.recording.record import (
    RECORDED,
    Results,
    Watch,
    Worse,
    circumstances,
    gone,
    looks_worse,
    measured,
    ratios_recorded,
    record,
    recorded_rows,
    settled,
    targets_met,
    worse_than_recorded,
)
from tests.bench.recording.sizing_page import PAGE, write_sizing
from tests.bench.recording.table import table
from tests.bench.rules.peers import versions


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--only", default="", metavar="TEXT", help="the parts whose name has this text")
    parser.add_argument("--quick", action="store_true", help="smaller worlds")
    parser.add_argument("--record", action="store_true", help="keep the rows")
    parser.add_argument("--table", action="store_true", help="put the rows kept on the pages")
    parser.add_argument("--check", action="store_true", help="compare the ratios with those kept")
    options = parser.parse_args(given)
    unknown = [case for case in options.cases if case not in CASES]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    return options


def main(given: Sequence[str], recorded: Path = RECORDED, pages: Path = FOLDER, sizing: Path = PAGE) -> int:
    """Measure, print, and give the exit status."""
    options = arguments(given)
    if options.table:
        order = list(CASES)
        rows_kept = recorded_rows(FULL.name, recorded)
        write_pages(sorted(rows_kept, key=lambda one: order.index(one[0].case)), pages)
        write_sizing({row.key: row for row, _ in rows_kept}, sizing)
        return 0
    effort = QUICK if options.quick else FULL
    started_s = time.monotonic()

    def watch(part: Part) -> None:
        print(f"{time.monotonic() - started_s:5.0f} s  {part}", file=sys.stderr)

    parts = [part for case in options.cases or CASES for part in CASES[case](effort)]
    parts = [part for part in parts if options.only in part.name]
    results = measured(parts, watch)
    rows = [row for _, of_part in results for row in of_part]
    print(table(rows))
    print(f"\n{', '.join(circumstances().values())}; {effort.name}, {time.monotonic() - started_s:.0f} s")
    print(f"Peers: {versions()}")
    status = 0
    if options.check:
        ratios, met = ratios_recorded(effort.name, recorded), targets_met(effort.name, recorded)
        status = check(results, ratios, met, watch, whole=not options.only)
    if options.record:
        rows, ratios = settled(results, watch), ratios_recorded(effort.name, recorded)
        for row in rows:
            if looks_worse(row, ratios):
                # Whoever records a loss by it is to know, or it is never looked for.
                print(f"recorded, though worse: {Worse(row.key, ratios[row.key], row.ratio)}")
        record(rows, effort.name, recorded, whole=not options.only)
    return status


def check(
    results: Results, ratios: Mapping[str, float], met: AbstractSet[str], watch: Watch, *, whole: bool
) -> int:
    """Say what is worse than recorded, and give 1 where anything is.

    Where cases were measured `whole`, a recorded row that was not measured is worse, too.
    """
    worse = worse_than_recorded(results, ratios, watch, met)
    lost = gone(results, ratios) if whole else []
    unknown = [row.key for _, rows in results for row in rows if row.key not in ratios]
    print()
    for line in (
        *(f"worse: {each}" for each in worse),
        *(f"recorded, but not measured any more: {key}" for key in lost),
        *(f"not recorded yet: {key}" for key in unknown),
    ):
        print(line)
    compared = sum(len(rows) for _, rows in results) - len(unknown)
    print(f"{compared} ratios compared, {len(worse)} worse")
    return 1 if worse or lost or not compared else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
