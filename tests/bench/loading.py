"""The costs of large stored relations: loading one over HTTP, and an event that is looked up in it.

    python -m tests.bench.loading              a million tuples of two short texts, and 10 beside 200 000
    python -m tests.bench.loading --tuples N   loads N

The relation is one request of NDJSON. Memory is that of the worker that has the detector: resident before, at
most meanwhile, and afterwards.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import httpx

from engine import Detector
from tests.bench.measuring.processes import cpu_by_kind_s, held_bytes
from tests.process_table import workers
from tests.service_process import served

FEW: Final = 10
MANY: Final = 200_000
EVENTS: Final = 5_000
ROUNDS: Final = 21
CONDITIONS: Final = {
    "one argument": "blocked(ip)",
    "two arguments, one of them a literal": 'owns(ip, "account-0000003")',
    "with history": "per ip (count(blocked(ip)) within 10m >= 3)",
}


def main() -> None:
    """Load and evaluate; print the costs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.loading", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--tuples", type=int, default=1_000_000)
    load(parser.parse_args().tuples)
    for name, condition in CONDITIONS.items():
        ratios, event_us = events(condition)
        print(
            f"an event, {name}: {MANY} tuples cost {statistics.median(ratios):.2f} times {FEW}, "
            f"at most {max(ratios):.2f}; {event_us:.2f} us"
        )


def load(count: int) -> None:
    """Load a relation over HTTP, twice: the second time it replaces the first."""
    body = "".join(f'["user-{number:07d}","account-{number:07d}"]\n' for number in range(count)).encode()
    with tempfile.TemporaryDirectory() as name, served(Path(name) / "data") as service:
        detector = service.call("POST", "/api/detectors", {"name": "shop"})["id"]
        service.call(
            "POST", f"/api/detectors/{detector}/rules", {"name": "r", "condition": "owns(user, account)"}
        )
        for what in ("load", "replace"):
            # The largest worker has the detector; others are spare.
            worker = max(workers(service.process.pid), key=held_bytes)
            before_s, resident, started_s = (
                cpu_by_kind_s(service.process.pid),
                held_bytes(worker),
                time.perf_counter(),
            )
            headers = {"Authorization": f"Bearer {service.token}", "Content-Type": "application/x-ndjson"}
            url = f"{service.url}/api/detectors/{detector}/relations/owns"
            response = httpx.put(url, content=body, headers=headers, timeout=600, trust_env=False)
            took_s = time.perf_counter() - started_s
            assert response.json()["success"], response.text[:500]
            print(f"{what} {count} tuples, {len(body) / 1e6:.0f} MB: {took_s:.1f} s")
            for process, used_s in (cpu_by_kind_s(service.process.pid) - before_s).items():
                print(f"    {used_s:.1f} s of CPU: {process}")
            sizes = (resident, held_bytes(worker, "VmHWM"), held_bytes(worker))
            print("    worker: {} MB, at most {}, then {}".format(*(size // 2**20 for size in sizes)))


def events(condition: str) -> tuple[list[float], float]:
    """Return an event's cost with many tuples relative to few, and in us with many."""
    detectors = []
    for count in (FEW, MANY):
        detector = Detector()
        detector.put_relation("blocked", ((_ip(number),) for number in range(count)), 0)
        owned = ((_ip(number), f"account-{number:07d}") for number in range(count))
        detector.put_relation("owns", owned, 0)
        detector.add_rule("r", condition)
        detectors.append(detector)
    # Half of the addresses are in the small relation, too.
    given = [({"ip": _ip(number % (2 * FEW))}, number * 10.0, None) for number in range(EVENTS)]
    took_s: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for place, detector in enumerate(detectors):
            started_s = time.process_time()
            detector.evaluate_many(given)
            took_s[place].append(time.process_time() - started_s)
    pairs = zip(took_s[1][1:], took_s[0][1:], strict=True)
    return [many / few for many, few in pairs], statistics.median(took_s[1]) / EVENTS * 1e6


def _ip(number: int) -> str:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


if __name__ == "__main__":
    main()
