"""What a detector worker takes of memory and CPU by the detectors in it, idle and under load.

    python -m tests.bench.workers

Each shape is a service of its own, with so many workers of so many detectors that have two rules each. Idle,
all that workers, the directory and the main process do is tell each other that they live, and count.
"""

import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.bench.many import RULES, Callers
from tests.bench.measuring.processes import cpu_s, held_bytes
from tests.bench.recovery import kind, share_bytes
from tests.process_table import family
from tests.service_process import Served, served

SHAPES: Final = ((1, 1), (1, 50), (1, 200), (4, 1), (12, 1))
"""Workers, and detectors in each."""
MEASURED: Final = ("detector worker", "directory", "main process")
SECONDS: Final = 20.0
EVENTS_A_S: Final = 200.0
SETTLE_S: Final = 8.0


def event(number: int) -> dict[str, object]:
    """Give the body of an evaluation."""
    fields = {"user": f"u{number % 50}", "action": "login", "ok": number % 7 != 0, "amount": number % 200}
    return {"event": {"fields": fields, "timestamp_ms": 1_700_000_000_000 + number}}


async def filled(service: Served, detectors: int) -> list[str]:
    """Give the ids of new detectors."""
    callers = Callers(service)
    await callers.open()
    return await callers.create(detectors, RULES)


async def send(service: Served, ids: list[str]) -> int:
    """Send events to all detectors in turn, at a rate; give how many were answered."""
    callers = Callers(service)
    await callers.open()
    began_s, sent, answered = time.monotonic(), 0, 0
    while (now_s := time.monotonic() - began_s) < SECONDS:
        due = int(now_s * EVENTS_A_S)
        posts = (
            callers.post(f"/api/detectors/{ids[n % len(ids)]}/evaluate", event(n)) for n in range(sent, due)
        )
        answered += sum(reply.success for reply in await asyncio.gather(*posts))
        sent = due
        await asyncio.sleep(0.01)
    return answered


def spent_s(service: Served) -> Counter[str]:
    """Give the CPU time of the service's processes by their kind."""
    found = Counter[str]()
    for pid in family(service.process.pid):
        found[kind(pid)] += cpu_s(pid)
    return found


def measure(workers: int, detectors: int) -> None:
    """Print what a shape takes."""
    options = ["--detectors-per-worker", str(detectors), "--max-resident", str(workers * detectors)]
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), *options, "--spares", "0") as service:
        ids = asyncio.run(filled(service, workers * detectors))
        for number, each in enumerate(ids):
            service.call("POST", f"/api/detectors/{each}/evaluate", event(number))
        time.sleep(SETTLE_S)
        before = spent_s(service)
        time.sleep(SECONDS)
        idle = spent_s(service) - before
        before = spent_s(service)
        answered = asyncio.run(send(service, ids))
        busy = spent_s(service) - before
        pids = [pid for pid in family(service.process.pid) if kind(pid) == "detector worker"]
        resident, share = (sum(map(one, pids)) / len(pids) / 1e6 for one in (held_bytes, share_bytes))
        print(f"\n{len(pids)} workers with {detectors} detectors: {resident:.0f} MB, {share:.0f} MB by share")
        for name in MEASURED:
            each = len(pids) if name == "detector worker" else 1
            idle_share, extra_us = idle[name] / SECONDS / each, (busy[name] - idle[name]) / answered * 1e6
            print(f"  {name}: idle {idle_share:.2%} of a core each, then {extra_us:.0f} µs for each event")
        service.end()


def main() -> None:
    """Measure all shapes."""
    for workers, detectors in SHAPES:
        measure(workers, detectors)


if __name__ == "__main__":
    main()
