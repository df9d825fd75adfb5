"""Kills processes of the running service under load, and checks that nothing it answered is lost."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from tests.crash.running_service.callers import Caller, CatalogueCaller
from tests.crash.running_service.service import (
    DIRECTORY,
    SERVICE,
    WORKER,
    RunningService,
    Tally,
    running_service,
)


def planned(chance: random.Random, kills: int, services: int) -> list[str]:
    """Plan the target of each kill: the service evenly spread, every kind at least once."""
    directories = max(1, round(0.15 * kills))
    targets = [DIRECTORY] * directories + [WORKER] * (kills - directories - services)
    chance.shuffle(targets)
    for number in range(services):
        targets.insert(kills * (number + 1) // (services + 1), SERVICE)
    return targets


def kill_service_processes(
    data: Path, seed: object, *, kills: int, services: int, detectors: int = 4, pause_s: float = 0.3
) -> Tally:
    """Kill this many processes, among them the whole service this many times. Raises Lost."""
    chance = random.Random(f"{seed}")
    tally = Tally()
    with running_service(data, tally) as running:
        callers = [Caller(running, f"{seed} {number}") for number in range(detectors)]
        catalogue_caller = CatalogueCaller(running)
        catalogue_caller.work()
        for caller in callers:
            caller.start()
        targets = planned(chance, kills, services)
        deaths: list[tuple[float, str, Caller]] = []
        try:
            while targets:
                time.sleep(pause_s * (0.3 + chance.random()))
                for caller in callers:
                    if caller.failed is not None:
                        raise caller.failed
                target, before = targets[0], tally.kills.total()
                if target == SERVICE:
                    running.kill_the_service()
                    catalogue_caller.check()
                elif target == DIRECTORY:
                    _kill_the_directory(running)
                    catalogue_caller.work()
                    catalogue_caller.check()
                else:
                    _kill_a_worker(running, chance, callers, deaths)
                    catalogue_caller.work()
                # A target that did not exist at the moment stays the next one.
                if tally.kills.total() > before:
                    targets.pop(0)
            time.sleep(3)
        finally:
            running.over.set()
            for caller in callers:
                caller.join(60)
        catalogue_caller.check(latest=None)
        catalogue_caller.client.close()
        for caller in callers:
            if caller.failed is not None:
                raise caller.failed
        for killed_s, detector_id, caller in deaths:
            away_s = caller.away_s(killed_s, detector_id)
            restarted = any(killed_s - 1 < at < killed_s + (away_s or 0) for at in running.restarted_at_s)
            if away_s is not None and not restarted:
                tally.away_s.append(away_s)
    return tally


def _kill_a_worker(
    running: RunningService,
    chance: random.Random,
    callers: list[Caller],
    deaths: list[tuple[float, str, Caller]],
) -> None:
    """Kill a worker that has one of the callers' detectors."""
    active = [(pid, running.active_in(pid)) for pid in running.pids(WORKER)]
    asked = {caller.detector_id: caller for caller in callers}
    known = [(pid, detector_id) for pid, detector_id in active if detector_id in asked]
    if not known:
        return
    pid, detector_id = chance.choice(known)
    assert detector_id is not None
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        deaths.append((time.monotonic(), detector_id, asked[detector_id]))
        running.tally.kills[WORKER] += 1


def _kill_the_directory(running: RunningService) -> None:
    for pid in running.pids(DIRECTORY):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            running.tally.kills[DIRECTORY] += 1
