"""How long callers wait while thousands of detectors are due at once: `python -m tests.bench.dues [N [S]]`.

All of the runtime is in one process, without Ray, so the callers share its processor with the work that they
are compared beside. A detector of theirs is asked every 5 ms, before the others are due and while they are
woken, ticked and rest again.

`python -m tests.bench.dues keys [N]` has one tick fire for N keys, in the threads of a worker, and asks
another detector of that worker meanwhile.
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
from engine.runtime.activation.detector_thread import DetectorThread, WorkerThreads
from engine.runtime.contract.measures import DUE_ACTIVATIONS
from engine.runtime.contract.requests import operations
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.detector.persistence import detector_snapshot
from engine.runtime.front_end.backend import Backend
from snapshots.folders import create_folder
from tests.local_runtime.service import local_service

DETECTORS: Final = 5_000
QUIET_S: Final = 5.0
PAUSE_S: Final = 0.005
MADE_AT_ONCE: Final = 16
MADE_IN_S: Final = 0.08
"""The longest time to create a detector."""


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
    print(
        f"{name}: {len(took_ms)} answers, median {parts[49]:.2f} ms, 99 % {parts[98]:.2f}, {max(took_ms):.2f}"
    )


async def measure(detectors: int, made_in_s: float) -> None:
    """Create them, wait until they are due, and print."""
    with tempfile.TemporaryDirectory() as folder:
        async with local_service(Path(folder), passivate_after_s=0.1, tick_s=1.0) as service:
            backend = service.backend
            began_s = time.time()
            due_s = round(began_s + detectors * made_in_s + QUIET_S + 5)

            async def make(numbers: range) -> None:
                for number in numbers:
                    detector = await backend.create_detector(f"{number}")
                    heard_ms = round(time.time() * 1_000)
                    silent = f"per host (not once within {due_s - heard_ms / 1_000:.3f}s beat == 1)"
                    await backend.call(detector, operations.add_rule("silent", silent, timed=True))
                    await event(backend, detector, heard_ms)

            at_once = [range(first, detectors, MADE_AT_ONCE) for first in range(MADE_AT_ONCE)]
            await asyncio.gather(*map(make, at_once))
            print(f"{detectors} made in {time.time() - began_s:.0f} s")
            own = await backend.create_detector("callers'")
            await backend.call(own, operations.add_rule("any", "per host count(beat == 1) within 1m > 3"))
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


async def made(data: Path, number: int, threads: WorkerThreads) -> DetectorThread:
    """Return an active detector of a worker."""
    name = f"{number:032x}"
    empty = detector_snapshot.empty_snapshot()
    create_folder(data / "detectors" / name, empty, version=detector_snapshot.SNAPSHOT_VERSION)
    thread = DetectorThread(OperationExecutor(RuntimeSettings(data=data)), threads, alone=lambda: False)
    await thread.activate(name, 1)
    return thread


async def asked_of(detector: DetectorThread, until: Callable[[], bool]) -> list[float]:
    """Do as `asked`, with a detector of a worker."""
    took_ms = []
    body = {"event": {"fields": {"host": "a", "beat": 1}, "timestamp_ms": 0}}
    while not until():
        began_s = time.perf_counter()
        await detector.handle([operations.evaluate(json.dumps(body).encode())])
        took_ms.append((time.perf_counter() - began_s) * 1_000)
        await asyncio.sleep(PAUSE_S)
    return took_ms


async def measure_keys(keys: int) -> None:
    """Let many keys of one detector be due at one tick, and print."""
    with tempfile.TemporaryDirectory() as folder:
        threads = WorkerThreads(2)
        large, own = [await made(Path(folder), number, threads) for number in range(2)]
        rule = "per host (not once within 60s beat == 1)"
        await large.handle([operations.add_rule("silent", rule, timed=True, notify=True)])
        for first in range(0, keys, 1_000):
            hosts = [{"host": f"host-{number:07d}", "beat": 1} for number in range(first, first + 1_000)]
            body = {"events": [{"fields": fields, "timestamp_ms": 0} for fields in hosts]}
            await large.handle([operations.evaluate_batch(json.dumps(body).encode())])
        await own.handle([operations.add_rule("any", "per host count(beat == 1) within 1m > 3")])
        quiet_until_s = time.monotonic() + QUIET_S
        shown("before", await asked_of(own, lambda: time.monotonic() > quiet_until_s))
        began_s = time.monotonic()
        tick = operations.tick(json.dumps({"timestamp_ms": 61_000}).encode())
        ticked = asyncio.ensure_future(large.handle([tick]))
        await asyncio.sleep(0)
        shown("during the tick", await asked_of(own, ticked.done))
        print(f"{keys} keys fired in {time.monotonic() - began_s:.1f} s")


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    if given.get(1) == "keys":
        asyncio.run(measure_keys(int(given.get(2, 100_000))))
        sys.exit()
    asyncio.run(measure(int(given.get(1, DETECTORS)), float(given.get(2, MADE_IN_S))))
