"""Runs every kind of crash, longer than the tests do, and prints the results as a Markdown table.

    python -m tests.crash [SECONDS]

Draws random schedules for this many seconds (60). Raises Lost at the first loss.
"""

import random
import sys
import time
from collections.abc import Callable

from snapshots.errors import StorageError
from tests.crash.kill_table import print_table
from tests.crash.model.history import Lost
from tests.crash.service.planted_defects import SERVICE_DEFECTS
from tests.crash.service.service_images import RUNS as SERVICE_RUNS
from tests.crash.service.service_images import ServiceImages
from tests.crash.store.corruption import (
    Changed,
    ends_near_a_sector,
    folder_of_segments,
    long_folder,
    small_folder,
)
from tests.crash.store.crash_images import Images
from tests.crash.store.file_faults import FileFaults
from tests.crash.store.interleaving import (
    Interleavings,
    drawn,
    first_script,
    reader,
    second_script,
    switches,
    third_script,
)
from tests.crash.store.planted_defects import DEFECTS
from tests.crash.store.runs import RUNS

MANY_S = 600
"""From this many seconds on, the runs that kill processes are ten times as long."""


def main(seconds: float) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"Seed {seed}.\n\n| what | tried | how it ended | s |\n|---|---:|---|---:|")

    def row(what: str, work: Callable[[], tuple[int, str]]) -> None:
        begun_s = time.monotonic()
        tried, ended = work()
        print(f"| {what} | {tried:,} | {ended} | {time.monotonic() - begun_s:.0f} |", flush=True)

    def images() -> tuple[int, str]:
        tried = Images(4_096, random.Random(seed), again=1.0)
        for run in RUNS.values():
            tried.of(run)
        ended = f"nothing lost; {tried.moments} moments, {tried.different} different images"
        within.append(tried.within_recovery)
        return tried.images, ended

    within: list[int] = []

    def service() -> tuple[int, str]:
        tried = ServiceImages(64, random.Random(seed))
        for run in SERVICE_RUNS.values():
            tried.of(run, "always")
            tried.of(run, "interval")
        return tried.different, f"nothing lost; {tried.moments} moments"

    def faults() -> tuple[int, str]:
        faults = FileFaults(32, random.Random(seed))
        for run in RUNS.values():
            faults.of(run)
        return faults.faults, f"nothing lost; with {faults.images} crash images after them"

    def bits() -> tuple[int, str]:
        changed = Changed()
        for folder in (small_folder, folder_of_segments, long_folder):
            changed.flip_bits(*folder())
        for history, image in ends_near_a_sector():
            changed.flip_bits(history, image, last_bytes=62)
        return changed.changed, f"{changed.exact} exact, {changed.refused} refused, 0 less or other"

    def prefixes() -> tuple[int, str]:
        changed = Changed()
        changed.cut_every_file(*small_folder())
        return changed.changed, f"{changed.exact} exactly the whole records, {changed.refused} refused"

    def two_owners() -> tuple[int, str]:
        interleavings, scripts = Interleavings(random.Random(seed)), [first_script, second_script]
        schedules = [one for count in (1, 2) for one in switches(interleavings.lengths(scripts), count)]
        for schedule in schedules:
            interleavings.run(scripts, schedule)
        return interleavings.schedules, "nothing lost; every way to take turns up to twice"

    def more_owners() -> tuple[int, str]:
        interleavings = Interleavings(random.Random(seed))
        scripts = [first_script, second_script, third_script, reader]
        lengths = interleavings.lengths(scripts)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            interleavings.run(scripts, drawn(lengths, interleavings.chance))
        return interleavings.schedules, "nothing lost; drawn"

    def defects() -> tuple[int, str]:
        for name, defect in (DEFECTS | SERVICE_DEFECTS).items():
            with defect.planted():
                try:
                    defect.noticed_by()
                except (Lost, StorageError):
                    continue
            raise AssertionError(f"not noticed: {name}")
        return len(DEFECTS | SERVICE_DEFECTS), "all noticed"

    row("legal crash images of short runs", images)
    print(f"| … of the recovery from each, and of what comes after | {within[0]:,} | nothing lost | |")
    row("different crash images of actors and directory", service)
    row("file calls that fail, or are the last", faults)
    row("flipped bits", bits)
    row("prefixes of files", prefixes)
    row("two owners at once", two_owners)
    row("three owners and a reader at once", more_owners)
    row("planted defects", defects)
    print_table(seed, many=seconds >= MANY_S)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60)
