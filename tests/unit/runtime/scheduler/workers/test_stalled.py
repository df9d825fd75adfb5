"""A disk that is stalled is a problem long before the worker that waits for it counts as hung."""

import asyncio
import re
from pathlib import Path

import pytest

from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import Held
from tests.local_runtime.service import local_service, until

pytestmark = pytest.mark.skipping_clock

HUNG_S = 60.0


async def test_a_worker_that_makes_no_progress_is_a_problem_until_it_does(tmp_path: Path) -> None:
    async with local_service(tmp_path, hung_s=HUNG_S, spares=1) as service:
        await until(lambda: bool(service.scheduler._workers.all))
        (worker,) = service.scheduler._workers.all
        goes_on = asyncio.Event()

        async def held() -> list[Held]:
            await goes_on.wait()
            return []

        worker.port.held = held  # type: ignore[method-assign]
        assert (await service.backend.status()).problems == []
        await asyncio.sleep(HUNG_S * 3 / 8)
        (problem,) = (await service.scheduler.status()).problems
        assert re.search(
            r"\(pid 1 on the node n\) has made no progress for 2\d s; does its disk answer\?", problem
        )
        goes_on.set()
        await asyncio.sleep(HUNG_S / 2)
        assert (await service.scheduler.status()).problems == []


async def test_an_activation_that_takes_long_is_a_problem_until_it_is_over(tmp_path: Path) -> None:
    async with local_service(tmp_path, hung_s=HUNG_S, spares=1) as service:
        detector_id = await service.backend.create_detector("one")
        await until(lambda: bool(service.scheduler._workers.all))
        (worker,) = service.scheduler._workers.all
        goes_on, activate = asyncio.Event(), worker.port.activate

        async def stalls(*arguments: object) -> object:
            await goes_on.wait()
            return await activate(*arguments)  # type: ignore[arg-type]

        worker.port.activate = stalls  # type: ignore[method-assign, assignment]
        routed = asyncio.create_task(service.scheduler.route(detector_id, 0))
        await asyncio.sleep(HUNG_S / 3)
        (problem,) = (await service.scheduler.status()).problems
        assert f"detector {detector_id}: its activation has taken 20 s" in problem
        goes_on.set()
        await routed
        assert (await service.scheduler.status()).problems == []


async def test_a_detector_that_makes_no_progress_is_a_problem_though_its_worker_does(tmp_path: Path) -> None:
    async with local_service(tmp_path, hung_s=HUNG_S, detectors_per_worker=4, spares=1) as service:
        ids = [await service.backend.create_detector(name) for name in ("one", "other")]
        for detector_id in ids:
            await service.backend.call(detector_id, ops.add_rule("r", "a == 1"))
        worker = service.actors.with_detector(ids[0])
        assert worker is not None
        goes_on = asyncio.Event()
        asked: list[str] = []

        async def before(call: str) -> None:
            if call == "handle" and not asked:
                asked.append(call)
                await goes_on.wait()

        worker.before = before
        stalls = asyncio.create_task(service.backend.call(ids[0], ops.rules()))
        await until(lambda: asked)
        await service.backend.call(ids[1], ops.rules())
        await asyncio.sleep(HUNG_S / 3)
        (problem,) = (await service.scheduler.status()).problems
        assert problem == f"detector {ids[0]}: it has been at one step for 15 s; does its disk answer?"
        goes_on.set()
        await stalls
        await until(lambda: not service.scheduler._problems.current)
        assert (await service.scheduler.status()).problems == []
