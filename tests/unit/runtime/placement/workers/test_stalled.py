"""A disk that is stalled is a problem long before the worker that waits for it counts as hung."""

import asyncio
from pathlib import Path

import pytest

from tests.local_runtime.service import local_service, until

pytestmark = pytest.mark.skipping_clock

HUNG_S = 60.0


async def test_a_worker_that_makes_no_progress_is_a_problem_until_it_does(tmp_path: Path) -> None:
    async with local_service(tmp_path, hung_s=HUNG_S, spares=1) as service:
        await until(lambda: bool(service.broker._workers.all))
        (worker,) = service.broker._workers.all
        goes_on = asyncio.Event()

        async def ping() -> None:
            await goes_on.wait()

        worker.port.ping = ping  # type: ignore[method-assign]
        # The watch has kept the method that was there before.
        for watcher in worker.watchers:
            watcher.cancel()
        service.broker._workers._watch.begin(worker)
        assert (await service.fleet.status()).problems == []
        await asyncio.sleep(HUNG_S * 3 / 8)
        (problem,) = (await service.broker.status()).problems
        assert "(pid 1 on the node n) has made no progress for 15 s; does its disk answer?" in problem
        goes_on.set()
        await asyncio.sleep(HUNG_S / 2)
        assert (await service.broker.status()).problems == []


async def test_an_activation_that_takes_long_is_a_problem_until_it_is_over(tmp_path: Path) -> None:
    async with local_service(tmp_path, hung_s=HUNG_S, spares=1) as service:
        detector_id = await service.fleet.create_detector("one")
        await until(lambda: bool(service.broker._workers.all))
        (worker,) = service.broker._workers.all
        goes_on, activate = asyncio.Event(), worker.port.activate

        async def stalls(*arguments: object) -> object:
            await goes_on.wait()
            return await activate(*arguments)  # type: ignore[arg-type]

        worker.port.activate = stalls  # type: ignore[method-assign, assignment]
        routed = asyncio.create_task(service.broker.route(detector_id, 0))
        await asyncio.sleep(HUNG_S / 3)
        (problem,) = (await service.broker.status()).problems
        assert f"detector {detector_id}: its activation has taken 20 s" in problem
        goes_on.set()
        await routed
        assert (await service.broker.status()).problems == []
