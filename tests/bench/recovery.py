"""How long a detector is away when a process of the service dies, and what memory its processes take.

    python -m tests.bench.recovery
    python -m tests.bench.recovery --nodes

Every kind of death happens a few times, while one caller sends an evaluation after the other. With `--nodes`,
the service is in a cluster of four nodes on this machine, twelve callers have a detector each, and nodes die.
"""

import argparse
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx

from tests.node_deaths import (
    Nodes,
    cluster,
    directory_node,
    fullest,
    load,
    move_directory_off_head,
    service_on,
    workers_on,
)
from tests.process_table import command, family
from tests.service_process import Served, served

TIMES: Final = 3
STEADY: Final = 50
"""Answers in a row after which the service counts as recovered."""
GIVE_UP_S: Final = 120
_EVENT: Final = {"event": {"fields": {}, "timestamp_ms": 0}}
_DETECTORS: Final = 12
_NOTICED_S: Final = 0.3
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


def kind(pid: int) -> str:
    """What a process of the service is, from its command line."""
    line = command(pid)
    for part, name in (
        ("ray::Directory", "directory"),
        ("ray::RuntimeEnv", "Ray's runtime environment agent"),
        ("ray::Dashboard", "Ray's other agents"),
        ("ray::", "detector worker"),
        ("gcs_server", "Ray's control store"),
        ("raylet/raylet", "raylet"),
        ("runtime_env", "Ray's runtime environment agent"),
        ("dashboard", "Ray's other agents"),
        ("api.process.front_end_process", "front end"),
        ("rule-detector", "main process"),
    ):
        if part in line:
            return name
    return "other"


def share_bytes(pid: int) -> int:
    """The memory of a process, shared pages by share."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def kinds(nodes: Nodes, service: Served, data: Path) -> dict[str, tuple[Callable[[], float], list[int]]]:
    """What can happen to a part of the cluster: how it is done, and which processes go on afterwards."""
    home = directory_node(nodes, data)
    node = fullest(nodes, service, but=home)
    worker = workers_on(service)[node][0]
    of_node, of_home = (list(family(nodes.raylets[one])) for one in (node, home))

    def to_worker(number: signal.Signals) -> float:
        os.kill(worker, number)
        return time.monotonic()

    return {
        "a worker is killed": (lambda: to_worker(signal.SIGKILL), []),
        "a worker is stopped": (lambda: to_worker(signal.SIGSTOP), [worker]),
        "a node is stopped": (lambda: nodes.signal(node, signal.SIGSTOP), of_node),
        "a node is killed": (lambda: nodes.signal(node, signal.SIGKILL), []),
        "the node of the directory is stopped": (lambda: nodes.signal(home, signal.SIGSTOP), of_home),
        "the node of the directory is killed": (lambda: nodes.signal(home, signal.SIGKILL), []),
    }


def of_nodes() -> None:
    """Print what happens when parts of a cluster die: each time in a new one."""
    print("| what happens | its detectors answer after, seconds: median, longest |\n|---|---|", flush=True)
    for what in (
        "a worker is killed",
        "a worker is stopped",
        "a node is stopped",
        "a node is killed",
        "the node of the directory is stopped",
        "the node of the directory is killed",
    ):
        away: list[float] = []
        for _ in range(TIMES):
            away += once(what)
        print(f"| {what} | {statistics.median(away):.1f}, {max(away):.1f} |", flush=True)


def once(what: str) -> list[float]:
    """How long each detector that noticed was away."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        with (
            cluster(Path(name), more=3) as nodes,
            service_on(nodes, data) as service,
            load(service, _DETECTORS) as callers,
        ):
            if "directory" in what:
                # With the head, the control store would end as well.
                move_directory_off_head(nodes, data)
                callers.all_answer()
            happen, stopped = kinds(nodes, service, data)[what]
            all_s = callers.all_answer(happen())
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            callers.all_answer()
    return [one_s for one_s in all_s if one_s > _NOTICED_S] or [max(all_s)]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.recovery", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--nodes", action="store_true", help="nodes die, instead of processes")
    if parser.parse_args().nodes:
        of_nodes()
        return
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
