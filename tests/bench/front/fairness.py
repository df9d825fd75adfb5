"""What a flood of one detector does to others: callers at fixed times, beside callers who take no refusal.

For a process of its own, which makes the load. How late an answer is is counted from when its request was
due, so that a service which makes callers wait is charged for all of them.
"""

import asyncio
import gc
import itertools
from collections.abc import Iterator
from functools import partial
from statistics import quantiles
from typing import Final, NamedTuple

from tests.bench.front.disturbance import WARM_S, measured
from tests.bench.front.load import world
from tests.bench.front.load.load import ClosedLoop, OpenLoop, Tally, Unexpected, callers
from tests.bench.front.load.service import Service
from tests.bench.front.load.wire import Response

STEADY_DETECTORS: Final = 2
STEADY_PER_S: Final = 500
STEADY_CONNECTIONS: Final = 32
FLOOD_CONNECTIONS: Final = 64
HEAVY_EVENTS: Final = 10_000
"""The events of each batch of a heavy flood: the most that a batch may have."""
WAITING_MAX: Final = 32
"""The bound on waiting requests in the light flood, whose callers are too few to reach the usual one."""


class Flood(NamedTuple):
    """What a flood sends, to a service with which settings, and how many events each success stands for."""

    options: tuple[str, ...]
    heavy: bool

    @property
    def events(self) -> int:
        """In each request."""
        return HEAVY_EVENTS if self.heavy else 1

    def requests(self, path: str, token: str) -> Iterator[bytes]:
        """Give one request after another."""
        if not self.heavy:
            return world.single_requests(f"{path}/evaluate", token)
        # All at one time, so that none is late whichever comes first.
        documents = [event | {"timestamp_ms": world.FIRST_MS} for event in world.events(0, HEAVY_EVENTS)]
        body = world.json_batch(documents)
        head = world.head(f"{path}/evaluate/batch", token, "application/json", len(body))
        return itertools.repeat(head + body)


LIGHT: Final = Flood(("--max-waiting", str(WAITING_MAX)), heavy=False)
HEAVY: Final = Flood((), heavy=True)


def fairness(seconds: float, *, heavy: bool) -> dict[str, float]:
    """Give what becomes of two detectors at a fixed rate, alone and beside a flood of a third."""
    flood = HEAVY if heavy else LIGHT
    return measured(partial(_fairness, flood=flood, seconds=seconds), *flood.options)


async def _fairness(ours: Service, flood: Flood, seconds: float) -> dict[str, float]:
    steady = [_Steady(ours, f"steady {number}") for number in range(STEADY_DETECTORS)]
    flooded = ours.detector("flooded")
    flooding = ClosedLoop(flood.requests(flooded, ours.token), taken_or_refused)
    async with callers(ours.place, FLOOD_CONNECTIONS) as made:
        # What comes first warms up.
        warm = await flooding.run(made[:1], 0.1)
        ours.evaluated(flooded, flood.events * warm.kinds["200"])
        await _together(steady, WARM_S)
        gc.collect()
        gc.freeze()
        alone = await _together(steady, seconds)
        front_before, actor_before = ours.front_peak_bytes, ours.actor_peak_bytes
        async with asyncio.TaskGroup() as tasks:
            # It begins before, and ends behind, what it is to disturb.
            flood_task = tasks.create_task(flooding.run(made, seconds + 1.0))
            await asyncio.sleep(0.5)
            beside = await _together(steady, seconds)
        tally = flood_task.result()
    ours.evaluated(flooded, flood.events * tally.kinds["200"])
    return {
        **{f"alone {name}": value for name, value in _told(alone).items()},
        **{f"beside {name}": value for name, value in _told(beside).items()},
        "flood 200/s": tally.kinds["200"] / tally.seconds,
        "flood 1401/s": tally.kinds["1401"] / tally.seconds,
        "front peak MB": ours.front_peak_bytes / 1e6,
        "front grown MB": (ours.front_peak_bytes - front_before) / 1e6,
        "actor peak MB": ours.actor_peak_bytes / 1e6,
        "actor grown MB": (ours.actor_peak_bytes - actor_before) / 1e6,
        "body MB": len(next(flood.requests(flooded, ours.token))) / 1e6,
    }


def taken_or_refused(response: Response) -> str:
    """Take success, and the refusal of one request too many."""
    if response.status == 200:
        return "200"
    if response.status == 429 and b'"code":1401' in response.body:
        return "1401"
    raise Unexpected(f"status {response.status}: {response.body[:300]!r}")


class _Steady:
    """A detector that is asked at fixed times."""

    def __init__(self, ours: Service, name: str) -> None:
        self._ours = ours
        self._path = ours.detector(name)
        self._loop = OpenLoop(world.single_requests(f"{self._path}/evaluate", ours.token))

    async def run(self, seconds: float) -> Tally:
        """Ask for this long; all has to succeed."""
        async with callers(self._ours.place, STEADY_CONNECTIONS) as made:
            tally = await self._loop.run(made, STEADY_PER_S, seconds)
        self._ours.evaluated(self._path, tally.kinds["200"])
        return tally


async def _together(steady: list[_Steady], seconds: float) -> list[Tally]:
    return list(await asyncio.gather(*(one.run(seconds) for one in steady)))


def _told(tallies: list[Tally]) -> dict[str, float]:
    """Give the rate of the slowest, and the delays of all."""
    hundredths = quantiles((took_ns for tally in tallies for took_ns in tally.took_ns), n=100)
    return {
        "per s": min(tally.per_s for tally in tallies),
        "p50": hundredths[49] / 1e6,
        "p99": hundredths[98] / 1e6,
    }
