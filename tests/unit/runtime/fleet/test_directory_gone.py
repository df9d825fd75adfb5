"""What goes on while the directory is gone, and what front ends know of tokens and detectors."""

import asyncio
from typing import Any

import pytest

from engine.runtime.catalogue.tokens import digest_of
from engine.runtime.contract.catalogue_changes import StoredToken
from engine.runtime.contract.errors import DetectorUnavailable
from snapshots.errors import StorageError
from tests.local_runtime.service import local_fleet, local_service, until
from tests.unit.runtime.fleet.requests import event, refused

pytestmark = pytest.mark.skipping_clock


async def test_warm_detectors_go_on_while_the_directory_is_gone(tmp_path):
    async with local_service(tmp_path, poll_s=0.005, ask_s=0.001, deadline_s=1) as service:
        fleet = service.fleet
        warm, cold = await fleet.create_detector("warm"), await fleet.create_detector("cold")
        minted = await fleet.mint_token()
        await fleet.call(warm, event(1))
        service.directories.refuse = True
        service.directories.fail()
        await asyncio.sleep(0.02)
        await fleet.call(warm, event(2))
        assert fleet.token_known(digest_of(minted.token))
        in_vain = (fleet.call(cold, event(1)), fleet.create_detector("three"), fleet.token_lookup(b"unknown"))
        assert await asyncio.gather(*map(refused, in_vain)) == [1501] * 3
        service.directories.refuse = False
        three = await fleet.create_detector("three")
        await until(lambda: fleet.exists(three))
        assert len(service.directories.started) > 1
        assert [name for _, name in await fleet.detectors()] == ["warm", "cold", "three"]


async def test_tokens_are_not_trusted_when_the_directory_has_been_silent_too_long(tmp_path):
    async with local_service(tmp_path, poll_s=0.005, directory_answer_age_max_s=0.3, deadline_s=2) as service:
        fleet = service.fleet
        minted = await fleet.mint_token()
        assert (await fleet.status()).reasons == []
        service.directories.refuse = True
        service.directories.fail()
        await until(lambda: not fleet.answer_is_fresh)
        assert "has not answered recently" in (await fleet.status()).reasons[-1]
        with pytest.raises(DetectorUnavailable, match="has not answered") as caught:
            fleet.token_known(digest_of(minted.token))
        assert caught.value.code == 1501
        service.directories.refuse = False
        await until(lambda: fleet.answer_is_fresh)
        assert fleet.token_known(digest_of(minted.token))


async def test_an_unknown_token_is_asked_for_and_a_flood_of_them_costs_few_questions(tmp_path):
    async with local_service(tmp_path, poll_s=60, ask_s=0.05) as service:
        fleet = service.fleet
        directory = service.directories.started[-1]
        # As another front end would.
        directory.add_token("t" * 32, StoredToken(b"digest", "hint"))
        assert not fleet.token_known(b"digest")
        before = service.directories.calls.count("changes")
        found = await asyncio.gather(*(fleet.token_lookup(b"digest") for _ in range(500)))
        assert found == [True] * 500
        assert not any(await asyncio.gather(*(fleet.token_lookup(b"%d" % number) for number in range(500))))
        assert service.directories.calls.count("changes") - before == 2
        before = service.directories.calls.count("changes")
        lookups = []
        for number in range(500):
            lookups.append(asyncio.create_task(fleet.token_lookup(b"%d" % number)))
            await asyncio.sleep(0)
        await asyncio.gather(*lookups)
        assert service.directories.calls.count("changes") - before < 50


async def test_a_question_that_is_under_way_does_not_answer_for_what_came_after_it(tmp_path):
    async with local_service(tmp_path, poll_s=60, ask_s=0.001) as service:
        directory = service.directories.started[-1]
        changes, go_on, under_way = directory.changes, asyncio.Event(), asyncio.Event()

        async def answered_late(*seen: int) -> Any:
            answer = changes(*seen)
            under_way.set()
            await go_on.wait()
            return answer

        service.scheduler.catalogue.changes = answered_late
        early = asyncio.create_task(service.fleet.token_lookup(b"digest"))
        await under_way.wait()
        directory.add_token("t" * 32, StoredToken(b"digest", "hint"))
        late = asyncio.create_task(service.fleet.token_lookup(b"digest"))
        await asyncio.sleep(0.01)
        go_on.set()
        assert await late
        await early


async def test_a_question_under_way_does_not_bring_a_revoked_token_back(tmp_path):
    async with local_service(tmp_path, poll_s=60) as service:
        fleet = service.fleet
        directory = service.directories.started[-1]
        minted = await fleet.mint_token()
        changes = directory.changes
        under_way, go_on = asyncio.Event(), asyncio.Event()

        async def answered_late(*seen: int) -> Any:
            answer = changes(*seen)
            under_way.set()
            await go_on.wait()
            return answer

        service.scheduler.catalogue.changes = answered_late
        lookup = asyncio.create_task(fleet.token_lookup(digest_of(minted.token)))
        await under_way.wait()
        await fleet.revoke_token(minted.id)
        go_on.set()
        assert not await lookup
        assert not fleet.token_known(digest_of(minted.token))


async def test_a_detector_that_another_front_end_made_or_deleted_is_noticed(tmp_path):
    async with local_service(tmp_path, poll_s=60) as service:
        fleet = service.fleet
        directory = service.directories.started[-1]
        directory.create_detectors({"a" * 32: "theirs"})
        await fleet.call("a" * 32, event(1))
        mine = await fleet.create_detector("mine")
        directory.delete_detector(mine)
        assert await refused(fleet.call(mine, event(1))) == 1200


async def test_a_service_whose_directory_cannot_start_says_so(tmp_path):
    (tmp_path / "directory").write_text("no folder")
    with pytest.raises(StorageError, match="directory"):
        async with local_fleet(tmp_path):
            pass
