"""How the rate grows with front ends and with nodes, where each has the same share of a core.

    python -m tests.bench.shares             front ends, then nodes, in twenty minutes
    python -m tests.bench.shares --quick     one and two of each, once

A machine of two cores has no room for four front ends and their callers. So the kernel gives each front end,
or each node with its front end and its workers, a small share of a core (control groups, which need root);
all else, callers included, has the rest. The rates then add up as on machines of their own, unless something
that all requests share stands in the way.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.nodes import DETECTORS, TOKEN, Load, await_starts, detectors
from tests.process_table import command, family
from tests.ray_cluster import ray_cluster
from tests.service_process import served

PERIOD_US: Final = 10_000
"""In so short a period nobody waits long for the next share; the kernel takes no share below 1 000."""
CONNECTIONS: Final = 256
"""The callers of each front end. With fewer, all of them would often wait for a share at the same time."""
SHARES: Final = {"front-ends": 0.1, "nodes": 0.3}
"""The cores of each. A node's raylet and its agents take some of its share."""
WARM_S: Final = 3.0
FIRST_VERSION: Final = Path("/sys/fs/cgroup/cpu")
SECOND_VERSION: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    counts: tuple[int, ...]
    seconds: float
    rounds: int


FULL: Final = Size(counts=(1, 2, 4), seconds=8, rounds=3)
QUICK: Final = Size(counts=(1, 2), seconds=4, rounds=1)


class Share:
    """Processes that together get so much of a core, with all that they start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, pids: set[int]) -> None:
        """Take running processes in."""
        for pid in pids:
            (self._folder / "cgroup.procs").write_text(str(pid))

    def limit(self, cores: float) -> None:
        """Give them so much of a core from now on."""
        quota_us = round(cores * PERIOD_US)
        if self._folder.parent == FIRST_VERSION:
            (self._folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self._folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (self._folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")


@contextmanager
def shares(count: int) -> Iterator[list[Share]]:
    """Give this many groups that have no limit yet; at the end their processes have none any more."""
    root = FIRST_VERSION if FIRST_VERSION.exists() else SECOND_VERSION
    folders = [root / f"rule-detector-{number}" for number in range(count)]
    try:
        for folder in folders:
            folder.mkdir()
        yield [Share(folder) for folder in folders]
    finally:
        for folder in filter(Path.exists, folders):
            for pid in (folder / "cgroup.procs").read_text().split():
                (root / "cgroup.procs").write_text(pid)
            folder.rmdir()


def rate(count: int, share: float, size: Size, *, whole_nodes: bool) -> float:
    """Give the evaluations a second of this many front ends, or of this many nodes, with such shares."""
    with tempfile.TemporaryDirectory() as temporary, shares(count) as groups, ExitStack() as stack:
        folder = Path(temporary)
        cluster = stack.enter_context(ray_cluster(folder, count if whole_nodes else 1))
        if whole_nodes:
            raylets = (pid for pid in sorted(family(cluster.pid)) if "/raylet/raylet " in command(pid))
            for group, raylet in zip(groups, raylets, strict=True):
                group.add(family(raylet))
        more = {"RULE_DETECTOR_BOOTSTRAP_TOKEN": TOKEN, "RAY_AUTH_MODE": "disabled"}
        services = []
        for group in groups:
            service = stack.enter_context(served(folder / "data", "--ray-address", cluster.address, **more))
            service.token = TOKEN
            group.add(family(service.process.pid))
            services.append(service)
        ids = detectors(services[0], count if whole_nodes else DETECTORS)
        load = Load(services, ids, CONNECTIONS * count)
        asyncio.run(load.run(1, WARM_S))
        await_starts([cluster.pid, *(one.process.pid for one in services)])
        for group in groups:
            group.limit(share)
        asyncio.run(load.run(1, WARM_S))
        done = asyncio.run(load.run(1, size.seconds))
        for group in groups:
            group.limit(1)
        for service in reversed(services):
            service.end()
        return done / size.seconds


def main(given: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.shares", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer of each, for a shorter time")
    parser.add_argument("what", nargs="*", metavar="WHAT", help=f"of {', '.join(SHARES)}; both by default")
    options = parser.parse_args(given)
    size = QUICK if options.quick else FULL
    print("| what | evaluations/s, median | least, most | times one |\n|---|---|---|---|")
    for what in options.what or SHARES:
        share = SHARES[what]
        rates = [
            [rate(count, share, size, whole_nodes=what == "nodes") for count in size.counts]
            for _ in range(size.rounds)
        ]
        for number, count in enumerate(size.counts):
            each = sorted(one[number] for one in rates)
            times = statistics.median(one[number] / one[0] for one in rates)
            print(
                f"| {count} {what} with {share:.0%} of a core each | {statistics.median(each):.0f} "
                f"| {each[0]:.0f}, {each[-1]:.0f} | {times:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
