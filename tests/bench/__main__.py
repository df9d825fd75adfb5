"""Measures the engine beside its peers and handwritten code, and the service over HTTP.

    python -m tests.bench                     every case
    python -m tests.bench stateless           one case
    python -m tests.bench ratios --check      the quick ratios that every change must keep
    python -m tests.bench worst --only fire   the parts of a case whose name has this text
    python -m tests.bench --check             exit 1 where a ratio is worse than recorded, or a target missed
    python -m tests.bench --record            measure up to three times, and keep the rows in recorded.json
    python -m tests.bench --record --because 'the check of numbers that take long to decode'
                                              the same, though some ratios are worse
    python -m tests.bench --table             measure nothing; put what is recorded on the pages

The table goes to standard output, in Markdown; progress to standard error. Peers come with the extra `bench`;
one that is not installed is named as such.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.cases import CASES
from tests.bench.measuring.effort import FULL
from tests.bench.measuring.rows import Part, Row
from tests.bench.recording.checking import Results, Watch, gone, settled, worse, worse_than_recorded
from tests.bench.recording.pages import ROOT, write_pages
from tests.bench.recording.record import RECORDED, Entry, at_best, circumstances, read, record, recorded_rows
from tests.bench.recording.table import table


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--only", default="", metavar="TEXT", help="the parts whose name has this text")
    parser.add_argument("--record", action="store_true", help="keep the rows")
    parser.add_argument("--because", metavar="REASON", help="record ratios that are worse; what that buys")
    parser.add_argument("--table", action="store_true", help="put the rows kept on the pages")
    parser.add_argument("--check", action="store_true", help="compare the ratios with those kept")
    options = parser.parse_args(given)
    unknown = [case for case in options.cases if case not in CASES]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    if options.because and not options.record:
        parser.error("--because goes with --record")
    return options


def main(given: Sequence[str], recorded: Path = RECORDED, root: Path = ROOT) -> int:
    """Measure, print, and return the exit status."""
    options = arguments(given)
    if options.table:
        order = list(CASES)
        write_pages(sorted(recorded_rows(recorded), key=lambda one: order.index(one[0].case)), root)
        return 0
    started_s = time.monotonic()

    def watch(part: Part) -> None:
        print(f"{time.monotonic() - started_s:5.0f} s  {part}", file=sys.stderr)

    results: list[tuple[Part, list[Row]]] = []
    for part in (part for case in options.cases or CASES for part in CASES[case](FULL)):
        if options.only in part.name:
            watch(part)
            results.append((part, part.measure()))
    print(table([row for _, of_part in results for row in of_part]))
    print(f"\n{', '.join(circumstances().values())}; {time.monotonic() - started_s:.0f} s")
    entries, whole, status = read(recorded), not options.only, 0
    if options.check:
        status = check(results, entries, watch, whole=whole)
    if options.record:
        rows = settled(results, watch)
        lost = [one for row in rows for one in worse(row, at_best(entries.get(row.key, {})))]
        print(*(f"worse: {one}" for one in lost), sep="\n")
        if lost and not options.because:
            print("nothing is recorded: find the loss, or say with --because what it buys")
            return 1
        record(rows, recorded, whole=whole, because={one.key: options.because for one in lost})
    return status


def check(results: Results, entries: Mapping[str, Entry], watch: Watch, *, whole: bool) -> int:
    """Print what is worse than recorded, and return 1 if anything is.

    Where cases were measured `whole`, a recorded row that was not measured is worse, too.
    """
    lost = worse_than_recorded(results, entries, watch)
    missing = gone(results, entries) if whole else []
    unknown = [row.key for _, rows in results for row in rows if row.key not in entries]
    print()
    for line in (
        *(f"worse: {each}" for each in lost),
        *(f"recorded, but not measured any more: {key}" for key in missing),
        *(f"not recorded yet: {key}" for key in unknown),
    ):
        print(line)
    compared = sum(len(rows) for _, rows in results) - len(unknown)
    print(f"{compared} ratios compared, {len(lost)} worse")
    return 1 if lost or missing or not compared else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
