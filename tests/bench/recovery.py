"""How long a detector is unavailable when a process of the service dies, and the memory of its processes.

    python -m tests.bench.recovery

Every kind of death happens a few times, while one caller sends an evaluation after the other. How long it
takes when nodes of a cluster die is told by tests/integration/cluster/test_node_deaths.py.
"""

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx

from tests.bench.measuring.processes import kind
from tests.process_table import family
from tests.service_process import Served, served

TIMES: Final = 3
STEADY: Final = 50
"""The number of consecutive answers after which the service counts as recovered."""
GIVE_UP_S: Final = 120
_EVENT: Final = {"event": {"fields": {}, "timestamp_ms": 0}}
_OPTIONS: Final = ("--front-ends", "2", "--spares", "2")


def away_s(service: Served, detector: str, kill: Callable[[], None]) -> float:
    """Seconds from a death until the detector answers again; the longest gap, if answers came between."""
    path = f"/api/detectors/{detector}/evaluate"
    died_s = answered_s = time.monotonic()
    kill()
    longest_s, in_a_row = 0.0, 0
    while in_a_row < STEADY and time.monotonic() < died_s + GIVE_UP_S:
        try:
            answered = service.request("POST", path, _EVENT).status_code == 200
        except httpx.HTTPError:
            answered = False
        now_s = time.monotonic()
        if not answered:
            in_a_row = 0
            time.sleep(0.005)
            continue
        longest_s, answered_s, in_a_row = max(longest_s, now_s - answered_s), now_s, in_a_row + 1
    return longest_s


def detector_of(service: Served) -> tuple[str, int]:
    """A new active detector, and the pid of its worker."""
    detector = service.call("POST", "/api/detectors", {"name": "d"})["id"]
    for _ in range(20):
        service.call("POST", f"/api/detectors/{detector}/evaluate", _EVENT)
    time.sleep(1.1)
    for worker in service.call("GET", "/api/cluster")["workers"]:
        if any(one["id"] == detector for one in worker.get("detectors", [])):
            return detector, worker["process"]["pid"]
    raise AssertionError("it is active nowhere")


def kill(pid: int) -> Callable[[], None]:
    """Kill a process when called."""
    return lambda: os.kill(pid, signal.SIGKILL)


def share_bytes(pid: int) -> int:
    """The memory of a process, with its share of shared pages."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def main() -> None:
    """Print the tables."""
    with (
        tempfile.TemporaryDirectory() as name,
        served(Path(name) / "data", *_OPTIONS) as service,
    ):
        for _ in range(3):
            detector, _ = detector_of(service)
        print("| process | number | MB each, shared pages by share |\n|---|---|---|")
        sizes: dict[str, list[int]] = {}
        for pid in family(service.process.pid):
            try:
                sizes.setdefault(kind(pid), []).append(share_bytes(pid))
            except OSError:
                continue
        for what, all_bytes in sorted(sizes.items()):
            print(f"| {what} | {len(all_bytes)} | {statistics.median(all_bytes) / 1e6:.0f} |")
        print("\n| what dies | its detector is away for, seconds: median, longest |\n|---|---|", flush=True)
        times: dict[str, list[float]] = {}
        for _ in range(TIMES):
            detector, worker = detector_of(service)
            times.setdefault("the worker of the detector", []).append(away_s(service, detector, kill(worker)))
            for what in ("directory", "front end"):
                detector, _ = detector_of(service)
                (pid, *_) = [one for one in family(service.process.pid) if kind(one) == what]
                times.setdefault(f"a {what}", []).append(away_s(service, detector, kill(pid)))
                time.sleep(2)
        for what, all_s in times.items():
            print(f"| {what} | {statistics.median(all_s):.2f}, {max(all_s):.2f} |", flush=True)


if __name__ == "__main__":
    main()
