"""The storms over processes, and a Markdown table of what they came to."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.crash.owners import meetings
from tests.crash.service_storm import service_storm
from tests.crash.storm import storm
from tests.crash.system_faults import CALLS, MORE_CALLS, faults, strace_can_trace

Lines = list[str]


def storms(seed: object, *, many: bool) -> Iterator[tuple[str, Callable[[Path], Lines]]]:
    """Give each storm by its title: given a folder it says what it came to, a number and a name to a line."""
    times = 10 if many else 1
    yield "actors that are killed", lambda data: storm(data, seed, kills=300 * times).lines()
    yield (
        "two owners of one detector",
        lambda data: meetings(data, seed, batches=5 * times, snapshots=times, wakes=times).lines(),
    )
    if (reason := strace_can_trace()) is None:
        calls = CALLS + MORE_CALLS if many else CALLS
        yield "calls to the system that fail", lambda data: faults(data, seed, calls, every=many).lines()
    else:
        yield "calls to the system that fail", lambda _: [f"0 of them: {reason}"]
    yield (
        "processes of the running service that are killed",
        lambda data: service_storm(data, seed, kills=24 * times, services=times).lines(),
    )


def print_table(seed: object, *, many: bool) -> None:
    """Print the table. Whatever is lost is raised."""
    print("\n| storm over processes | what | count |\n|---|---|---:|")
    for title, run in storms(seed, many=many):
        with tempfile.TemporaryDirectory() as folder:
            begun_s = time.monotonic()
            lines = run(Path(folder) / "data")
            lines.append(f"{time.monotonic() - begun_s:.0f} s it took")
        for place, line in enumerate(lines):
            count, what = line.split(maxsplit=1)
            print(f"| {'' if place else title} | {what} | {count} |", flush=True)
