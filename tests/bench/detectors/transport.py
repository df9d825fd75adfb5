"""Evaluations on their way to a worker and back: what one costs by a Unix socket and by TCP.

The floor is a bare call of Ray to a method that does nothing. All of it runs in a process of its own, which
starts Ray. One event is what a caller that waits for each answer sends.
"""

import asyncio
import gc
import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from engine.runtime.contract.requests import operations
from engine.runtime.contract.settings import RuntimeSettings, Transport
from tests.bench.detectors.ray_inside import on_ray
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.fresh import call
from tests.bench.measuring.rows import Part, Row, at_most

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CASE = "transport"
ROUNDS = 10
"""All ways take turns, so that what else the machine does hits all of them."""
CALLERS = (1, 256)
WAYS: dict[Transport, str] = {"auto": "a Unix socket", "tcp": "TCP"}
BARE = "bare"
SYNCED = "synced"
RULE = "per user once within 10m failed == true"


def parts(effort: Effort) -> list[Part]:
    """Give a part for the delay of one evaluation, and one for the rate of a fleet."""
    return [
        Part(CASE, partial(measure_delay, effort), "delay"),
        Part(CASE, partial(measure_rate, effort), "rate"),
    ]


# -- in processes of their own -------------------------------------------------------------------------------


@dataclass(slots=True)
class Events:
    """Evaluations that follow each other in time."""

    sent: int = 0

    def next(self) -> operations.Operation:
        """Give the next one."""
        self.sent += 1
        fields = {"user": f"user-{self.sent % 1_000}", "failed": self.sent % 7 == 0}
        event = {"fields": fields, "timestamp_ms": 1_700_000_000_000 + self.sent}
        return operations.evaluate(json.dumps({"event": event}).encode())


def delay(calls: int) -> dict[str, float]:
    """Give the median and the 99th percentile, in ms, of each way, for one caller."""
    return on_ray(partial(_delay, calls))


async def _delay(calls: int, folder: Path) -> dict[str, float]:
    from engine.runtime.cluster.ray_calls import OPTIONS, ray  # noqa: PLC0415

    bare = ray.remote(**OPTIONS)(_Bare).remote()
    ways: dict[str, Callable[[], Awaitable[Any]]] = {BARE: bare.nothing.remote}
    fleets = []
    for way, transport, sync in (*((way, way, "interval") for way in WAYS), (SYNCED, "auto", "always")):
        settings = RuntimeSettings(data=folder / way, journal_sync=sync, spares=0, transport=transport)
        fleet, detector_id = await _fleet(settings)
        fleets.append(fleet)
        ways[way] = partial(_evaluate, fleet, detector_id, Events())
    took_ms: dict[str, list[float]] = {way: [] for way in ways}
    gc.collect()
    gc.freeze()
    for one_round in range(1 + ROUNDS):
        for way, ask in ways.items():
            for _ in range(max(1, calls // ROUNDS)):
                began_ns = time.perf_counter_ns()
                await ask()
                # What comes first warms up.
                if one_round:
                    took_ms[way].append((time.perf_counter_ns() - began_ns) / 1e6)
    for fleet in fleets:
        await fleet.close()
    ray.kill(bare)
    return {
        f"{way} {name}": value
        for way, times in took_ms.items()
        for name, value in (
            ("p50", median(times)),
            ("p99", quantiles(times, n=100)[98]),
            ("worst", max(times)),
        )
    }


class _Bare:
    """An actor with nothing to do."""

    def nothing(self) -> None:
        """Come back."""


async def _fleet(settings: RuntimeSettings) -> tuple[Any, str]:
    """Give a started fleet, and a detector with a rule."""
    from engine.runtime.cluster.ray_fleet import fleet_on_ray  # noqa: PLC0415

    fleet = fleet_on_ray(settings)
    await fleet.start()
    detector_id = await fleet.create_detector("one")
    await fleet.call(detector_id, operations.add_rule("failed lately", RULE))
    return fleet, detector_id


async def _evaluate(fleet: Any, detector_id: str, events: Events) -> None:
    await fleet.call(detector_id, events.next())


def rate(seconds: float) -> dict[str, float]:
    """Give the calls a second through a fleet, by TCP and by a Unix socket, for some numbers of callers."""
    return on_ray(partial(_rate, seconds))


async def _rate(seconds: float, folder: Path) -> dict[str, float]:
    rates: dict[str, list[float]] = {}
    fleets = {}
    for way in WAYS:
        settings = RuntimeSettings(data=folder / way, journal_sync="interval", spares=0, transport=way)
        fleets[way] = *await _fleet(settings), Events()
    for one_round in range(1 + ROUNDS):
        for way, (fleet, detector_id, events) in fleets.items():
            for callers in CALLERS:
                began_s = time.perf_counter()
                asked = partial(_ask_until, fleet, detector_id, events, began_s + seconds / ROUNDS)
                counts = await asyncio.gather(*(asked() for _ in range(callers)))
                if one_round:
                    key = f"{way} {callers}"
                    took_s = time.perf_counter() - began_s
                    rates.setdefault(key, []).append(sum(counts) / took_s)
    for fleet, _, _ in fleets.values():
        await fleet.close()
    medians = {key: median(each) for key, each in rates.items()}
    return medians | {f"{key} worst": min(each) for key, each in rates.items()}


async def _ask_until(fleet: Any, detector_id: str, events: Events, until_s: float) -> int:
    done = 0
    while time.perf_counter() < until_s:
        await _evaluate(fleet, detector_id, events)
        done += 1
    return done


# -- what comes of them --------------------------------------------------------------------------------------


def measure_delay(effort: Effort) -> list[Row]:
    """Give what an evaluation costs beside a bare call of Ray."""
    run = call(__name__, "delay", calls=effort.transport_calls)
    bare = run[f"{BARE} p50"]
    named = {**{way: f"by {name}" for way, name in WAYS.items()}, SYNCED: "by a Unix socket, on the disk"}
    return [
        Row(
            case=CASE,
            name=f"one evaluation, {name}",
            unit="ms",
            ours=run[f"{way} p50"],
            worst=run[f"{way} worst"],
            floor=bare,
            ratio=run[f"{way} p50"] / bare,
            over="a bare call of Ray",
            target=at_most(1, run[f"{way} p50"] / bare, "no more than a bare call of Ray"),
            # What the disk takes is most of it, where it is waited for.
            tolerance=2.0 if way == SYNCED else 0.5,
            remark=f"p99 {run[f'{way} p99']:.2f}, of the bare call {run[f'{BARE} p99']:.2f}",
        )
        for way, name in named.items()
    ]


def measure_rate(effort: Effort) -> list[Row]:
    """Give how many evaluations a second a fleet answers, beside the same by TCP."""
    run = call(__name__, "rate", seconds=effort.transport_s)
    return [
        Row(
            case=CASE,
            name=f"evaluations of {callers} {'caller' if callers == 1 else 'callers'}",
            unit="/s",
            ours=run[f"auto {callers}"],
            worst=run[f"auto {callers} worst"],
            floor=run[f"tcp {callers}"],
            ratio=run[f"tcp {callers}"] / run[f"auto {callers}"],
            over="the same by TCP",
            tolerance=0.5,
        )
        for callers in CALLERS
    ]
