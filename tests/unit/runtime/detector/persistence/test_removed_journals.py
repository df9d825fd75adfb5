"""Files of a journal that somebody removes under its owner: told under `problems`, and mended if possible."""

import json
from pathlib import Path

import pytest

from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.tokens import digest_of
from tests.local_runtime.service import LocalService, local_service, until
from tests.unit.runtime.backend.requests import fired

pytestmark = pytest.mark.skipping_clock


async def problems(service: LocalService) -> list[str]:
    return (await service.backend.status()).problems


def segment(folder: Path) -> Path:
    """The segment that is written to."""
    return max(path for path in folder.glob("journal-*.rdj") if path.stat().st_size)


def put_out_of_the_way(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.unlink()
    if how == "replaced":
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_a_segment_that_goes_under_its_owner_is_told_of_and_nothing_is_lost(
    tmp_path: Path, how: str
) -> None:
    async with local_service(tmp_path) as service:
        detector_id = await service.backend.create_detector("one")
        await service.backend.call(detector_id, ops.add_rule("seen", "once a == 1"))
        assert await fired(service.backend, detector_id, 1, a=1) == ["seen"]
        assert await problems(service) == []
        gone = segment(tmp_path / "detectors" / detector_id)
        put_out_of_the_way(gone, how)
        for timestamp_ms in (2, 3):
            assert await fired(service.backend, detector_id, timestamp_ms) == ["seen"]
        await until(lambda: service.scheduler.counts["snapshots_written"])
        [said] = await problems(service)
        assert detector_id in said
        assert gone.name in said
        assert await fired(service.backend, detector_id, 4) == ["seen"]
        assert len(await problems(service)) == 1
        # Its process dies without having saved anything more.
        handle = service.actors.with_detector(detector_id)
        assert handle is not None
        handle.die()
        await until(lambda: not service.scheduler.active_detectors)
        assert await fired(service.backend, detector_id, 5) == ["seen"]
        assert said in await problems(service)


async def test_a_segment_that_is_gone_when_its_detector_is_passivated_is_mended(tmp_path: Path) -> None:
    async with local_service(tmp_path, max_resident=1, turn_s=0) as service:
        one, two = [await service.backend.create_detector(name) for name in ("one", "two")]
        await service.backend.call(one, ops.add_rule("seen", "once a == 1"))
        assert await fired(service.backend, one, 1, a=1) == ["seen"]
        segment(tmp_path / "detectors" / one).unlink()
        assert await fired(service.backend, two, 1) == []
        assert await fired(service.backend, one, 2) == ["seen"]


async def test_a_claim_that_goes_under_its_owner_is_told_of_also_when_all_goes_on(tmp_path: Path) -> None:
    async with local_service(tmp_path, retry_s=0.01) as service:
        detector_id = await service.backend.create_detector("one")
        await fired(service.backend, detector_id, 1)
        for path in (tmp_path / "detectors" / detector_id).glob("journal-*-000000.rdj"):
            path.unlink()
        body = json.dumps({"event": {"fields": {}, "timestamp_ms": 2}}).encode()
        with pytest.raises(Exception, match="was removed"):
            await service.backend.call(detector_id, ops.evaluate(body))
        assert await fired(service.backend, detector_id, 3) == []
        [said] = await problems(service)
        assert detector_id in said
        assert "was removed" in said


@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_a_segment_of_the_directory_that_goes_is_told_of_and_nothing_is_lost(
    tmp_path: Path, how: str
) -> None:
    async with local_service(tmp_path, poll_s=0.005, ask_s=0.001) as service:
        first = await service.backend.mint_token()
        gone = segment(tmp_path / "directory")
        put_out_of_the_way(gone, how)
        second = await service.backend.mint_token()
        await until(lambda: service.scheduler._problems.lasting)
        [said] = await problems(service)
        assert gone.name in said
        service.directories.fail()
        with pytest.raises(DetectorUnavailable):
            await service.backend.tokens()
        assert await service.backend.permit_asked(digest_of(second.token))
    async with local_service(tmp_path) as service:
        assert all(service.backend.permit(digest_of(one.token)) for one in (first, second))


async def test_a_claim_of_the_directory_that_goes_is_told_of_also_when_all_goes_on(tmp_path: Path) -> None:
    async with local_service(tmp_path, poll_s=0.005, ask_s=0.001) as service:
        await service.backend.mint_token()
        for path in (tmp_path / "directory").glob("journal-*-000000.rdj"):
            path.unlink()
        try:
            await service.backend.mint_token()
        except DetectorUnavailable as error:
            # The call was first to notice. Otherwise a poll was, and the next directory has answered.
            assert "was removed" in error.message  # noqa: PT017
        await service.backend.mint_token()
        [said] = await problems(service)
        assert "tokens and catalogue" in said
        assert "was removed" in said
