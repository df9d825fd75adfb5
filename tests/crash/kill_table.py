"""Runs everything that kills processes, and prints a Markdown table of the results."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.crash.actors.actor_kills import kill_actors
from tests.crash.actors.system_call_faults import CALLS, MORE_CALLS, faults, strace_can_trace
from tests.crash.actors.two_owners import successions
from tests.crash.running_service.service_kills import kill_service_processes

Lines = list[str]


def kill_runs(seed: object, *, many: bool) -> Iterator[tuple[str, Callable[[Path], Lines]]]:
    """Yield each run by its title: a function from a data folder to the lines of its results."""
    times = 10 if many else 1
    yield "actors that are killed", lambda data: kill_actors(data, seed, kills=300 * times).lines()
    yield (
        "two owners of one detector",
        lambda data: successions(data, seed, batches=5 * times, snapshots=times, activations=times).lines(),
    )
    if (reason := strace_can_trace()) is None:
        calls = CALLS + MORE_CALLS if many else CALLS
        yield "system calls that fail", lambda data: faults(data, seed, calls, every=many).lines()
    else:
        yield "system calls that fail", lambda _: [f"0 of them: {reason}"]
    yield (
        "processes of the running service that are killed",
        lambda data: kill_service_processes(data, seed, kills=24 * times, services=times).lines(),
    )


def print_table(seed: object, *, many: bool) -> None:
    """Print the table. Raises Lost."""
    print("\n| processes | what | count |\n|---|---|---:|")
    for title, run in kill_runs(seed, many=many):
        with tempfile.TemporaryDirectory() as folder:
            begun_s = time.monotonic()
            lines = run(Path(folder) / "data")
            lines.append(f"{time.monotonic() - begun_s:.0f} s it took")
        for place, line in enumerate(lines):
            count, what = line.split(maxsplit=1)
            print(f"| {'' if place else title} | {what} | {count} |", flush=True)
