"""Detectors that take turns: what it costs to passivate one and activate another, and to restart.

The floor of the first row is one detector that stays active. All of it goes through a fleet on Ray, in a
process of its own.
"""

import asyncio
import json
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from engine.runtime.contract.measurements.counters import ACTIVATIONS
from engine.runtime.contract.requests import operations
from engine.runtime.contract.settings import RuntimeSettings
from tests.bench.detectors.ray_inside import on_ray
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.fresh import call
from tests.bench.measuring.rows import Part, Row, at_least, at_most

CASE = "activation"
RESIDENT: Final = 4
ROTATING: Final = 16
"""So many detectors take turns in `RESIDENT` processes: each call activates one."""
ACTIVATIONS_MIN: Final = 500
"""A second."""
ROUNDS: Final = 5
RESTARTED: Final = 50
TIMES_ALONE_MAX: Final = {"first": 1.5, "median": 2.0, "last": 3.0}
"""Of the time of one detector alone. Workers are started ahead of requests, and shared by small detectors."""
CALLERS: Final = 8
RULE: Final = "per user once within 10m failed == true"


def parts(effort: Effort) -> list[Part]:
    """Give a part for the turns and one for the restart."""
    return [
        Part(CASE, partial(measure_turns, effort), "turns"),
        Part(CASE, partial(measure_restart, effort), "restart"),
    ]


# -- in processes of their own -------------------------------------------------------------------------------


def turns(seconds: float) -> dict[str, float]:
    """Give evaluations and activations a second, of detectors that take turns and of one always active.

    For those that take turns, give the CPU time of the workers for an activation, too, in microseconds. All
    are medians of several rounds; `worst` is the lowest rate of those that take turns.
    """
    return on_ray(partial(_turns, seconds / ROUNDS))


async def _turns(seconds: float, folder: Path) -> dict[str, float]:
    settings = RuntimeSettings(data=folder, max_resident=RESIDENT, spares=1)
    fleet = await _started(settings)
    ids = [await _detector(fleet, number) for number in range(ROTATING)]
    rounds = defaultdict[str, list[float]](list)
    await _ask(fleet, ids, time.perf_counter() + seconds)
    for _ in range(ROUNDS):
        before, cpu_before_s = (await fleet.status()).counts[ACTIVATIONS], await _workers_cpu_s(fleet)
        rounds["rotating"].append(await _rate(fleet, ids, seconds))
        activated = (await fleet.status()).counts[ACTIVATIONS] - before
        rounds["activations"].append(activated / seconds)
        rounds["worker CPU"].append((await _workers_cpu_s(fleet) - cpu_before_s) / activated * 1e6)
        rounds["one"].append(await _rate(fleet, ids[:1], seconds))
    await fleet.close()
    return {"worst": min(rounds["rotating"]), **{name: median(each) for name, each in rounds.items()}}


async def _workers_cpu_s(fleet: Any) -> float:
    """Give the CPU time that the workers have taken. No worker ends here: all have few activations."""
    return sum(worker.process.cpu_s for worker in (await fleet.cluster()).workers)


async def _rate(fleet: Any, ids: list[str], seconds: float) -> float:
    """Ask for some time; give how many answers come in a second."""
    began_s = time.perf_counter()
    done = await _ask(fleet, ids, began_s + seconds)
    return done / (time.perf_counter() - began_s)


async def _ask(fleet: Any, ids: list[str], until_s: float) -> int:
    """Ask one detector after the other, by several callers, until the time is up."""
    sent = 0

    async def caller() -> int:
        nonlocal sent
        done = 0
        while time.perf_counter() < until_s:
            sent += 1
            await fleet.call(ids[sent % len(ids)], _event(sent))
            done += 1
        return done

    return sum(await asyncio.gather(*(caller() for _ in range(CALLERS))))


def restart(detectors: int) -> dict[str, float]:
    """Give when the first and the last of many detectors answer that are all asked at once after a start."""
    return on_ray(partial(_restart, detectors))


async def _restart(detectors: int, folder: Path) -> dict[str, float]:
    settings = RuntimeSettings(data=folder)
    fleet = await _started(settings)
    ids = [await _detector(fleet, number) for number in range(detectors)]
    await fleet.close()
    began_s = time.perf_counter()
    fleet = await _started(settings)

    async def ask(detector_id: str) -> float:
        await fleet.call(detector_id, _event(1_000))
        return time.perf_counter() - began_s

    answered_s = sorted(await asyncio.gather(*map(ask, ids)))
    results = {"first": answered_s[0], "last": answered_s[-1], "median": answered_s[len(answered_s) // 2]}
    await fleet.close()
    began_s = time.perf_counter()
    fleet = await _started(settings)
    await ask(ids[0])
    results["alone"] = time.perf_counter() - began_s
    await fleet.close()
    return results


async def _started(settings: RuntimeSettings) -> Any:
    from engine.runtime.cluster.ray_fleet import fleet_on_ray  # noqa: PLC0415 -- the other cases need no Ray

    fleet = fleet_on_ray(settings)
    await fleet.start()
    return fleet


async def _detector(fleet: Any, number: int) -> str:
    detector_id: str = await fleet.create_detector(f"detector {number}")
    await fleet.call(detector_id, operations.add_rule("failed lately", RULE))
    return detector_id


def _event(number: int) -> operations.Operation:
    fields = {"user": f"user-{number % 1_000}", "failed": number % 7 == 0}
    event = {"fields": fields, "timestamp_ms": 1_700_000_000_000 + number}
    return operations.evaluate(json.dumps({"event": event}).encode())


# -- what comes of them --------------------------------------------------------------------------------------


def measure_turns(effort: Effort) -> list[Row]:
    """Give how many detectors a second take turns, beside evaluations of one that stays active."""
    run = call(__name__, "turns", seconds=effort.transport_s)
    activations = run["activations"]
    return [
        Row(
            case=CASE,
            name=f"{ROTATING} detectors in turn, {RESIDENT} active at once",
            unit="/s",
            ours=run["rotating"],
            worst=run["worst"],
            floor=run["one"],
            ratio=run["one"] / run["rotating"],
            over="one that stays active",
            target=at_least(ACTIVATIONS_MIN, activations, f"at least {ACTIVATIONS_MIN} activations/s"),
            tolerance=1.0,
            remark=(
                f"{activations:.0f} activations/s; CPU an activation: workers {run['worker CPU']:.0f} µs"
            ),
        )
    ]


def measure_restart(effort: Effort) -> list[Row]:
    """Give how long many detectors that are asked at once after a restart wait, beside one alone."""
    detectors = min(RESTARTED, max(2, effort.transport_calls // 40))
    run = call(__name__, "restart", detectors=detectors)
    return [
        Row(
            case=CASE,
            name=f"{detectors} detectors asked at once after a restart, the {which}",
            unit="s",
            ours=run[which],
            floor=run["alone"],
            ratio=run[which] / run["alone"],
            over="one detector alone",
            target=at_most(limit, run[which] / run["alone"], f"at most {limit}x one alone"),
            tolerance=1.0,
        )
        for which, limit in TIMES_ALONE_MAX.items()
    ]
