"""How callers fare while thousands of detectors are due at once: `python -m tests.bench.dues [N [S]]`.

All of the runtime is in one process, without Ray, so the callers share its processor with the work that they
are compared beside. A detector of theirs is asked every 5 ms, before the others are due and while they are
woken, ticked and rest again.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from engine.evaluation.wire.events import Done
from engine.runtime.contract.measurements.counters import DUE_ACTIVATIONS
from engine.runtime.contract.requests import operations
from engine.runtime.front_end.backend import Backend
from tests.local_runtime.service import local_service

DETECTORS: Final = 5_000
QUIET_S: Final = 5.0
PAUSE_S: Final = 0.005
MADE_IN_S: Final = 0.05
"""How long it takes at most to make a detector. Together, they take less than five minutes: a detector whose
events are older than that counts as replayed."""


async def event(backend: Backend, detector: str, timestamp_ms: float) -> None:
    body = {"event": {"fields": {"host": "a", "beat": 1}, "timestamp_ms": timestamp_ms}}
    assert isinstance(await backend.call(detector, operations.evaluate(json.dumps(body).encode())), Done), (
        detector
    )


async def asked(backend: Backend, detector: str, until: Callable[[], bool]) -> list[float]:
    """Ask a detector again and again; return how long each answer took, in milliseconds."""
    took_ms = []
    while not until():
        began_s = time.perf_counter()
        await event(backend, detector, time.time() * 1_000)
        took_ms.append((time.perf_counter() - began_s) * 1_000)
        await asyncio.sleep(PAUSE_S)
    return took_ms


def shown(name: str, took_ms: list[float]) -> None:
    parts = statistics.quantiles(took_ms, n=100)
    print(f"{name}: {len(took_ms)} answers, median {parts[49]:.2f} ms, 99 % {parts[98]:.2f} ms")


async def measure(detectors: int, made_in_s: float) -> None:
    """Make them, wait until they are due, and print."""
    window_s = round(detectors * made_in_s + QUIET_S + 5)
    rule = operations.add_rule("silent", f"per host (not once within {window_s}s beat == 1)", timed=True)
    with tempfile.TemporaryDirectory() as folder:
        async with local_service(Path(folder), passivate_after_s=0.1, tick_s=1.0) as service:
            backend = service.backend
            heard_s = time.time()
            for number in range(detectors):
                detector = await backend.create_detector(f"{number}")
                await backend.call(detector, rule)
                await event(backend, detector, heard_s * 1_000)
            own = await backend.create_detector("callers'")
            await backend.call(own, operations.add_rule("any", "per host count(beat == 1) within 1m > 3"))
            due_s = heard_s + window_s
            assert time.time() < due_s - QUIET_S, "they took too long to make"
            await asyncio.sleep(due_s - QUIET_S - time.time())
            counts = lambda: service.scheduler.counts[DUE_ACTIVATIONS]  # noqa: E731 -- read below, twice
            quiet = await asked(backend, own, lambda: time.time() >= due_s)
            assert counts() == 0, "they were woken early"
            storm = await asked(backend, own, lambda: counts() >= detectors)
            over_s = time.time() - due_s
    shown("before", quiet)
    shown("while they are woken", storm)
    ratio = statistics.median(storm) / statistics.median(quiet)
    print(f"ratio of the medians {ratio:.2f}; {detectors} in {over_s:.1f} s, {detectors / over_s:.0f}/s")


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    asyncio.run(measure(int(given.get(1, DETECTORS)), float(given.get(2, MADE_IN_S))))
