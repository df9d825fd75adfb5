"""A data folder that another service has, or that is swapped under a service."""

import dataclasses
from typing import Any

import pytest

from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from snapshots.data_folder.identity import begin_folder
from tests.local_runtime.owners import event
from tests.local_runtime.service import local_service, until
from tests.unit.runtime.backend.requests import fired, fired_at_last, refused

pytestmark = pytest.mark.skipping_clock


def held(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("instead", ["empty", "begun"])
async def test_a_data_folder_that_is_swapped_under_a_service_is_told_of_and_left_alone(tmp_path, instead):
    data, aside, other = tmp_path / "data", tmp_path / "aside", tmp_path / "other"
    async with local_service(data, poll_s=0.01, ask_s=0.001, retry_s=0.01) as service:
        backend = service.backend
        warm, cold = await backend.create_detector("warm"), await backend.create_detector("cold")
        await backend.call(warm, ops.add_rule("seen", "once a == 1"))
        assert await fired(backend, warm, 1, a=1) == ["seen"]
        data.rename(aside)
        data.mkdir()
        if instead == "begun":
            begin_folder(data)
        before = held(data)
        await until(lambda: service.scheduler.catalogue.problem)
        (reason,) = (await backend.status()).reasons
        assert "is not the service's data folder" in reason
        assert await refused(backend.call(warm, event(2))) in (1501, 1502)
        for work in (
            lambda: backend.call(warm, event(2)),
            lambda: backend.call(cold, event(1)),
            lambda: backend.create_detector("new"),
            backend.mint_token,
            lambda: backend.delete_detector(cold),
        ):
            assert await refused(work()) == 1501
        assert held(data) == before
        # As when the right file system is mounted again.
        data.rename(other)
        aside.rename(data)
        await until(lambda: not service.scheduler.catalogue.problem)
        assert (await backend.status()).reasons == []
        assert await backend.detectors() == [(warm, "warm"), (cold, "cold")]
        assert await fired_at_last(backend, warm, 3) == ["seen"]


async def test_a_process_with_another_folder_activates_nothing_and_the_next_one_does(tmp_path):
    (tmp_path / "without the mount").mkdir()
    elsewhere = [tmp_path / "without the mount"]
    async with local_service(tmp_path / "data", retry_s=0.01, spares=0) as service:
        backend = service.backend
        detector_id = await backend.create_detector("one")

        def make(settings: RuntimeSettings, **options: Any) -> OperationExecutor:
            data = elsewhere.pop() if elsewhere else settings.data
            return OperationExecutor(dataclasses.replace(settings, data=data), **options)

        service.actors.make = make
        assert await refused(backend.call(detector_id, event(1))) == 1501
        (problem,) = (await backend.status()).problems
        assert "without the mount" in problem
        assert "has no id" in problem
        assert list((tmp_path / "without the mount").iterdir()) == []
        assert await fired_at_last(backend, detector_id, 1) == []
        assert (await backend.status()).problems == []
        assert service.actors.started[0].dead
