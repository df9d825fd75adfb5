"""A service on a Ray cluster, and callers who continue while its nodes are stopped and killed."""

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from tests import process_table
from tests.ray_cluster import RayCluster
from tests.service_process import Served, served, until

TOKEN: Final = "rd_" + "t" * 43
GIVE_UP_S: Final = 120.0


@contextmanager
def service_on(nodes: RayCluster, data: Path, *options: str, **variables: str) -> Iterator[Served]:
    """Yield a service on the cluster."""
    more = {"RULE_DETECTOR_BOOTSTRAP_TOKEN": TOKEN, "RAY_AUTH_MODE": "disabled", **variables}
    with served(data, "--ray-address", nodes.address, *options, **more) as service:
        service.token = TOKEN
        yield service


class Callers:
    """Sends events to one detector, whose rule counts distinct ones, through several services."""

    def __init__(self, detector: str) -> None:
        self.detector = detector
        self.sent = 0
        self.outcomes: Counter[str] = Counter()
        self.answers: list[tuple[float, float]] = []
        """When each acknowledged request was begun and answered."""
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    @property
    def acknowledged(self) -> int:
        return len(self.answers)

    @property
    def longest_s(self) -> float:
        """Return the maximum time of an answer."""
        return max(answered_s - began_s for began_s, answered_s in self.answers)

    def call(self, service: Served, name: str = "") -> threading.Event:
        """Start to send through a service until the given event is set."""
        stop = threading.Event()
        self._threads.append(threading.Thread(target=self._run, args=(service, name, stop)))
        self._threads[-1].start()
        return stop

    def _run(self, service: Served, name: str, stop: threading.Event) -> None:
        url = f"{service.url}/api/detectors/{self.detector}/evaluate"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(headers=headers, timeout=60, trust_env=False) as client:
            while not (self._stop.is_set() or stop.is_set()):
                with self._lock:
                    self.sent += 1
                    number = self.sent
                event = {"event": {"fields": {"n": number}, "timestamp_ms": 1_700_000_000_000}}
                began_s = time.monotonic()
                try:
                    response = client.post(url, json=event)
                except httpx.TransportError as error:
                    outcome = type(error).__name__
                else:
                    errors = response.json()["errors"]
                    outcome = str(errors[0]["code"]) if errors else "200"
                    if not errors:
                        self.answers.append((began_s, time.monotonic()))
                with self._lock:
                    self.outcomes[f"{name} {outcome}".strip()] += 1
                # Many callers at full speed would leave the service no time on two cores.
                time.sleep(0.04)

    def until(self, more: int) -> None:
        """Wait until this many more requests are acknowledged."""
        wanted = self.acknowledged + more
        until(lambda: self.acknowledged >= wanted, f"no answers: {self.outcomes}")

    def answered_after(self, since_s: float) -> float | None:
        """Return when the first request begun after a time was answered; None if none was."""
        return next((answered_s for began_s, answered_s in self.answers if began_s >= since_s), None)

    def counted(self, service: Served) -> int:
        """Return how many distinct events the detector has evaluated, as counted by its rule."""
        document = {"event": {"fields": {}, "timestamp_ms": 1_700_000_000_000}}
        (rule,) = service.call("POST", f"/api/detectors/{self.detector}/explain", document)["rules"]
        found: int = rule["node"]["found"]
        return found

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def counting_detector(service: Served, name: str) -> str:
    """Create a detector for callers."""
    detector: str = service.call("POST", "/api/detectors", {"name": name})["id"]
    rule = {"name": "many", "condition": "distinct(n) > 9999"}
    service.call("POST", f"/api/detectors/{detector}/rules", rule)
    return detector


class Load:
    """Callers of several detectors through one service."""

    def __init__(self, service: Served, detectors: int) -> None:
        self.service = service
        self.callers = [Callers(counting_detector(service, f"d{number}")) for number in range(detectors)]
        for one in self.callers:
            one.call(service)
        self.all_answer()
        # Until enough workers have started, detectors take turns.
        until(lambda: sum(map(len, workers_on(service).values())) >= detectors, "too few workers", GIVE_UP_S)

    def all_answer(self, since_s: float | None = None) -> list[float]:
        """Wait until each detector has answered. Return how long each took from `since_s` on, sorted."""
        since_s = time.monotonic() if since_s is None else since_s
        waiting = self.callers
        while waiting:
            assert time.monotonic() < since_s + GIVE_UP_S, [caller.outcomes for caller in waiting]
            time.sleep(0.01)
            waiting = [caller for caller in waiting if caller.answered_after(since_s) is None]
        took = (caller.answered_after(since_s) for caller in self.callers)
        return sorted(at_s - since_s for at_s in took if at_s is not None)

    def end(self) -> None:
        """Stop all callers."""
        for one in self.callers:
            one.end()


@contextmanager
def load(service: Served, detectors: int) -> Iterator[Load]:
    """Yield callers, and stop them."""
    begun = Load(service, detectors)
    try:
        yield begun
    finally:
        begun.end()


def workers_on(service: Served) -> dict[str, list[int]]:
    """Return the pids of the workers with detectors, by the ids of their nodes."""
    time.sleep(1.1)
    found: dict[str, list[int]] = {}
    for worker in service.call("GET", "/api/cluster")["workers"]:
        if worker.get("detectors") and worker.get("process"):
            found.setdefault(worker["node"], []).append(worker["process"]["pid"])
    return found


def directory_node(nodes: RayCluster, data: Path) -> str:
    """Return the node of the directory."""
    return _directory(nodes, data)[0]


def move_directory_off_head(nodes: RayCluster, data: Path) -> None:
    """Kill the directory if it is on the head. The next one starts elsewhere."""
    head = next(iter(nodes.raylets))
    node, pid = _directory(nodes, data)
    if node == head:
        os.kill(pid, signal.SIGKILL)
        give_up_s = time.monotonic() + GIVE_UP_S
        while node == head:
            assert time.monotonic() < give_up_s
            time.sleep(0.1)
            with contextlib.suppress(LookupError):
                node, _ = _directory(nodes, data)


def _directory(nodes: RayCluster, data: Path) -> tuple[str, int]:
    """Return the node and the pid of the process that has the folder's lock. Raises LookupError."""
    holding = process_table.holders(lambda path: path == data / "lock")
    for node, raylet in nodes.raylets.items():
        if found := holding & process_table.family(raylet):
            return node, found.pop()
    raise LookupError("nobody has the lock")


def fullest(nodes: RayCluster, service: Served, but: str = "") -> str:
    """Return the node with the most workers, other than the head and one more."""
    _, *others = nodes.raylets
    spread = workers_on(service)
    found = max(others, key=lambda node: (node != but, len(spread.get(node, ()))))
    assert spread.get(found), f"no detector is active on {found}"
    return found
