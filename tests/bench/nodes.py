"""What a request costs in each process, on one, two and four nodes, and what an activation costs.

    python -m tests.bench.nodes             in five minutes

The nodes are raylets of this machine, each with a service of its own on one data folder, so their rates
do not add up here. Whether they would is seen from the CPU time of a request, which must not grow with the
nodes. Callers, who take CPU time too, send to all detectors through all services.
"""

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.many import Callers
from tests.bench.measuring.processes import cpu_by_kind_s
from tests.ray_cluster import ray_cluster
from tests.service_process import Served, served

TOKEN: Final = "rd_" + "t" * 43
RULE: Final = "per user (once within 10m failed == true)"
DETECTORS: Final = 4
"""The detectors of each node."""
CONNECTIONS: Final = 64
"""For each node: a detector has as many callers on one node as on four, so its batches are as large."""
BATCH: Final = 1_000
RESIDENT, ROTATING, CALLERS = 4, 16, 8
"""Detectors that take turns, in this many processes, and their callers: each call activates one."""
NODES: Final = (1, 2, 4)
SECONDS: Final = 15.0
QUIET_S: Final = 2.0
START_S: Final = 60.0
PARTS: Final = {
    "main process": "front end",
    "front end": "front end",
    "detector worker": "worker",
    "directory": "directory",
}
"""The kinds of processes; all others are Ray's own."""
COLUMNS: Final = ("front end", "worker", "directory", "Ray")


@dataclass(frozen=True, slots=True)
class Load:
    """Callers that send through all services, each one request after another."""

    services: Sequence[Served]
    ids: Sequence[str]
    """The ids of the detectors."""
    connections: int

    async def run(self, events: int, seconds: float) -> int:
        """Send requests of this many events for some seconds; return the number of events answered."""
        each = [Callers(one, self.connections // len(self.services)) for one in self.services]
        for callers in each:
            await callers.open()
        document, path = request(events)
        until_s = time.perf_counter() + seconds
        sent = 0

        async def one(number: int) -> int:
            nonlocal sent
            done = 0
            while time.perf_counter() < until_s:
                sent += 1
                detector = self.ids[sent % len(self.ids)]
                reply = await each[number % len(each)].post(f"/api/detectors/{detector}/{path}", document)
                assert reply.success, reply.errors
                done += events
            return done

        return sum(await asyncio.gather(*map(one, range(self.connections))))


def request(events: int) -> tuple[object, str]:
    """Return the body of a request with this many events, and the end of its path."""
    made = [
        {
            "fields": {"user": f"u{number % 50}", "failed": number % 7 == 0},
            "timestamp_ms": 1_700_000_000_000 + number,
        }
        for number in range(events)
    ]
    return ({"event": made[0]}, "evaluate") if events == 1 else ({"events": made}, "evaluate/batch")


def await_starts(roots: Sequence[int]) -> None:
    """Wait until no process is starting: workers are started ahead."""
    give_up_s = time.monotonic() + START_S
    while time.monotonic() < give_up_s:
        before_s = cpu_by_kind_s(*roots)
        time.sleep(QUIET_S)
        if (cpu_by_kind_s(*roots) - before_s).total() < QUIET_S / 4:
            return


def measure(what: str, roots: Sequence[int], load: Load, events: int) -> None:
    """Print the rate, and each part's CPU time per event."""
    asyncio.run(load.run(events, SECONDS / 4))
    await_starts(roots)
    before_s, began_s = cpu_by_kind_s(*roots), time.perf_counter()
    done = asyncio.run(load.run(events, SECONDS))
    took_s = time.perf_counter() - began_s
    costs: Counter[str] = Counter()
    for process, used_s in (cpu_by_kind_s(*roots) - before_s).items():
        costs[PARTS.get(process, "Ray")] += used_s  # type: ignore[assignment]
    each = " | ".join(f"{costs[part] / done * 1e6:.1f}" for part in COLUMNS)
    print(f"| {what} | {done / took_s:.0f} | {each} | {1e6 * costs.total() / done:.1f} |", flush=True)


def on_nodes(nodes: int, folder: Path) -> None:
    """Measure single evaluations and batches on this many nodes."""
    with ExitStack() as stack:
        cluster = stack.enter_context(ray_cluster(folder, nodes))
        more = {"RULE_DETECTOR_BOOTSTRAP_TOKEN": TOKEN, "RAY_AUTH_MODE": "disabled"}
        services = []
        for _ in range(nodes):
            service = stack.enter_context(served(folder / "data", "--ray-address", cluster.address, **more))
            service.token = TOKEN
            services.append(service)
        ids = detectors(services[0], DETECTORS * nodes)
        roots = [cluster.pid, *(one.process.pid for one in services)]
        load = Load(services, ids, CONNECTIONS * nodes)
        for events, what in ((1, "an evaluation"), (BATCH, f"an event in a batch of {BATCH}")):
            measure(f"{what}, {nodes} nodes", roots, load, events)
        for service in reversed(services):
            service.end()


def activations(folder: Path) -> None:
    """Measure evaluations, each of which activates a detector."""
    options = ("--max-resident", str(RESIDENT), "--spares", "1")
    with served(folder / "data", *options) as service:
        ids = detectors(service, ROTATING)
        what = f"an evaluation that activates its detector, {ROTATING} in turn"
        measure(what, [service.process.pid], Load([service], ids, CALLERS), 1)
        service.end()


def detectors(service: Served, count: int) -> list[str]:
    """Create detectors with a rule, and return their ids."""
    ids = [service.call("POST", "/api/detectors", {"name": f"d{number}"})["id"] for number in range(count)]
    for one in ids:
        service.call("POST", f"/api/detectors/{one}/rules", {"name": "lately", "condition": RULE})
    return ids


def main() -> None:
    """Print the table."""
    print(f"| what, on {os.cpu_count()} cores | events/s here | {' | '.join(COLUMNS)} | all, us |")
    print(f"|{'---|' * (len(COLUMNS) + 3)}")
    for nodes in NODES:
        with tempfile.TemporaryDirectory() as folder:
            on_nodes(nodes, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        activations(Path(folder))


if __name__ == "__main__":
    main()
